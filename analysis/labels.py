"""Labels of devices: Slurm types, driver names, MIG profiles. Free text: spelling is levelled, nothing is guessed."""

from __future__ import annotations

import re

_MIG = re.compile(
    r"(?<![0-9a-z])(?:[0-9]+c[._-])?([0-9]+)g[._-]?([0-9]+)gb((?:[+_.-](?:me|gfx)(?:\.all)?)?)(?![0-9a-z])"
)
_PROFILE_SUFFIX = re.compile(r"[+-](?:me|gfx)(?:\.all)?$")
_SEPARATORS = re.compile(r"[^0-9a-z]+")


def level(label: str) -> str:
    """A label without case and separators: `NVIDIA A100-SXM4-40GB` and `nvidia_a100-sxm4-40gb` are one."""
    return _SEPARATORS.sub("", label.lower())


def without_vendor(levelled: str) -> str:
    """A levelled label without the vendor's name, which older drivers leave out."""
    return levelled.removeprefix("nvidia") or levelled


def split_mig(label: str) -> tuple[str | None, str | None]:
    """What a label says of the card, and the MIG profile in it.

    `nvidia_h100_80gb_hbm3_1g.10gb` is (`nvidia_h100_80gb_hbm3`, `1g.10gb`); a compute instance (`1c.3g.20gb`) counts as
    the GPU instance it lies in.
    """
    text = label.strip().lower()
    found = _MIG.search(text)
    if found is None:
        return label, None
    suffix = found[3]
    if suffix and suffix[0] in "_.":
        suffix = "+" + suffix[1:]
    rest = text[: found.start()] + " " + text[found.end() :]
    card = re.sub(r"(?<![0-9a-z])mig(?![0-9a-z])", " ", rest).strip(" _-:.")
    return card or None, f"{int(found[1])}g.{int(found[2])}gb{suffix}"


def plain_profile(profile: str) -> str:
    """A MIG profile without its media or graphics extension, which changes no SM count."""
    return _PROFILE_SUFFIX.sub("", profile)
