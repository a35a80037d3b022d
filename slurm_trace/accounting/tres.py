"""Trackable resources: AllocTRES of every era, and AllocGRES of Slurm before 21.08."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

#: Fixed ids of TRES in slurmdbd (`sacctmgr show tres`); ids from 1001 on differ from site to site.
_STATIC_IDS = {
    "1": "cpu",
    "2": "mem",
    "3": "energy",
    "4": "node",
    "5": "billing",
    "6": "fs/disk",
    "7": "vmem",
    "8": "pages",
}

#: Figures of use that share the prefix `gres/gpu` but count nothing.
_USAGE = frozenset({"gpumem", "gpuutil"})

#: Number that old releases printed in place of the name `gpu` in AllocGRES.
_GRES_IDS = {"7696487": "gpu"}

_NOTHING = frozenset({"", "(null)", "n/a", "na", "none", "unknown"})
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGTP]?)", re.ASCII)
_SCALE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_PARENTHESES = re.compile(r"\((?!null\))[^)]*\)")
_COMMA = re.compile(r",(?![^(]*\))")
_TYPE = re.compile(r"[A-Za-z0-9_.\-+ ]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gres:
    """One generic resource: its name (`gpu`, `shard`, `mps`), its type if one was named, and how many in all."""

    name: str
    type: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Tres:
    """The resources of one allocation.

    Attributes:
        cpus: CPUs of the whole allocation.
        nodes: Nodes of the whole allocation.
        gres: Generic resources in the order given. Typed and untyped entries of one name count the same devices.
        unreadable: Parts that could not be read; the count is not known where there are any.
    """

    cpus: int | None
    nodes: int | None
    gres: tuple[Gres, ...]
    unreadable: tuple[str, ...]


@lru_cache(maxsize=16_384)
def parse_count(text: str) -> int:
    """A count with an optional suffix (`2`, `1.50K`), rounded up.

    Raises:
        ValueError: The text is no count, or does not fit 63 bits.
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no count")
    number, suffix = match.groups()
    count = math.ceil(float(number) * _SCALE[suffix]) if "." in number else int(number) * _SCALE[suffix]
    if count >= 2**63:
        raise ValueError(f"{text[:40]!r} is too large")
    return count


@lru_cache(maxsize=16_384)
def parse_tres(text: str | None) -> Tres:
    """Read AllocTRES (`billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1`).

    Also reads the numbered form (`1=4,4=1`); a number of 1001 and above stands for a resource that only the site
    can name, and is reported as unreadable.
    """
    if text is None or text.strip().lower() in _NOTHING:
        return Tres(None, None, (), ())
    counts: dict[str, int] = {}
    gres: list[Gres] = []
    unreadable: list[str] = []
    for part in _COMMA.split(text.strip()):
        key, equals, value = part.strip().partition("=")
        key = _STATIC_IDS.get(key, key)
        if key in ("cpu", "node") and equals:
            _store(counts, key, value, part, unreadable)
        elif key.startswith(("gres/", "gres:")):
            name, colon, kind = key[5:].partition(":")
            if name in _USAGE:
                continue
            if not equals:
                gres.extend(_per_node(part, unreadable))
            elif (colon and not kind) or not name:
                unreadable.append(part)
            else:
                _add(gres, name, kind or None, value, part, unreadable)
        elif not equals or key.isdecimal():
            unreadable.append(part)
    return Tres(counts.get("cpu"), counts.get("node"), tuple(gres), tuple(unreadable))


def _store(counts: dict[str, int], key: str, value: str, part: str, unreadable: list[str]) -> None:
    try:
        counts[key] = parse_count(value)
    except ValueError:
        unreadable.append(part)


def _add(gres: list[Gres], name: str, kind: str | None, value: str, part: str, unreadable: list[str]) -> None:
    try:
        gres.append(Gres(name.lower(), kind, parse_count(value)))
    except ValueError:
        unreadable.append(part)


@lru_cache(maxsize=16_384)
def parse_gres(text: str | None, nodes: int) -> tuple[Gres, ...]:
    """Totals over all nodes of AllocGRES, which counts per node (`gpu:v100:4`, `gpu:2(IDX:0-1)`, `PER_NODE:gpu:8`).

    What this leaves out is what `unreadable_gres` returns: ask it too.
    """
    return tuple(Gres(g.name, g.type, g.count * nodes) for g in _read_gres(text)[0])


def unreadable_gres(text: str | None) -> tuple[str, ...]:
    """The parts of AllocGRES that `parse_gres` could not read."""
    return _read_gres(text)[1]


@lru_cache(maxsize=16_384)
def _read_gres(text: str | None) -> tuple[tuple[Gres, ...], tuple[str, ...]]:
    if text is None or text.strip().lower() in _NOTHING:
        return (), ()
    unreadable: list[str] = []
    gres = [g for part in _COMMA.split(text.strip()) for g in _per_node(part, unreadable)]
    return tuple(gres), tuple(unreadable)


def _per_node(part: str, unreadable: list[str]) -> list[Gres]:
    """`[PER_NODE:][gres:|gres/]name[:type][:count][(...)]`; without a count it is one."""
    words = _PARENTHESES.sub("", part.strip()).replace("gres/", "gres:").split(":")
    while words and words[0].upper() in ("PER_NODE", "PER_JOB", "GRES"):
        words.pop(0)
    count = "1"
    if len(words) > 1 and _COUNT.fullmatch(words[-1]):
        count = words.pop()
    if words and words[0] in _USAGE:
        return []
    kind = words[1] if len(words) == 2 and words[1] not in ("(null)", "no_consume") else None
    if not 1 <= len(words) <= 2 or not words[0] or (kind is not None and not _TYPE.fullmatch(kind)):
        unreadable.append(part)
        return []
    found: list[Gres] = []
    _add(found, _GRES_IDS.get(words[0], words[0]), kind, count, part, unreadable)
    return found
