"""Puts the hooks and their surroundings on a node. A plan first; what somebody else wrote or changed is left alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from slurm_trace.errors import EnvironmentProblem, InputProblem, unreadable

LIBEXEC = "/usr/libexec/slurm-trace"
MANIFEST = f"{LIBEXEC}/installed.sha256"
PROLOG_FLAGS = ("alloc", "contain", "run-in-job")
_WRITTEN = ("create", "update", "overwrite")


@dataclass(frozen=True)
class Piece:
    """A file of this package and its place on a node. `yours`: meant to be edited there."""

    source: str
    target: str
    mode: int = 0o644
    yours: bool = False


# What the hooks read comes before them.
PIECES = (
    Piece("common.sh", f"{LIBEXEC}/common.sh"),
    Piece("sampler.sh", f"{LIBEXEC}/sampler.sh"),
    Piece("prolog", f"{LIBEXEC}/prolog", 0o755),
    Piece("epilog", f"{LIBEXEC}/epilog", 0o755),
    Piece("conf/hooks.conf", "/etc/slurm-trace/hooks.conf", yours=True),
    Piece("conf/node.conf", "/etc/slurm-trace/node.conf", yours=True),
    Piece("systemd/slurm-trace-node.service", "/etc/systemd/system/slurm-trace-node.service"),
    Piece("systemd/tmpfiles.conf", "/etc/tmpfiles.d/slurm-trace.conf"),
    Piece("systemd/sysusers.conf", "/etc/sysusers.d/slurm-trace.conf"),
)
DROP_INS = (
    Piece("dropin/prolog", "/etc/slurm/prolog.d/50-slurm-trace", 0o755),
    Piece("dropin/epilog", "/etc/slurm/epilog.d/50-slurm-trace", 0o755),
)
SAMPLER = f"{LIBEXEC}/slurm-trace-node"
HOOK_FILES = tuple(Path(piece.target).name for piece in PIECES if piece.target.startswith(LIBEXEC))
"""The hooks and what they read, without which they do nothing."""


@dataclass(frozen=True)
class Step:
    """One file of the plan.

    Attributes:
        action: `create`, `update`, `overwrite` (told to), `unchanged`, `kept` (yours, edited), or `conflict`.
    """

    action: str
    target: str
    path: Path
    content: bytes
    mode: int


def hook_file(name: str) -> bytes:
    """A file of the node side's package, from wherever it is installed."""
    return files("slurm_trace.prolog_epilog").joinpath(name).read_bytes()


def make_plan(
    root: Path, *, drop_ins: bool = False, sampler: Path | None = None, force: bool = False
) -> list[Step]:
    """What an installation below `root` would do.

    Args:
        root: `/`, or a staging directory.
        drop_ins: Also the files for prolog.d and epilog.d.
        sampler: The sampler's single-file build; None: the one that an earlier installation brought, else a call of the
            Python that runs this.
        force: Overwrite what somebody else wrote or changed, except files meant to be edited.

    Raises:
        EnvironmentProblem: A file cannot be read.
    """
    recorded = _read_manifest(root)
    pieces = PIECES + (DROP_INS if drop_ins else ())
    steps = [
        _step(root, piece.target, hook_file(piece.source), piece.mode, recorded, force, piece.yours)
        for piece in pieces
    ]
    content = (_sampler_there(root, recorded) if sampler is None else None) or _sampler(sampler)
    steps.append(_step(root, SAMPLER, content, 0o755, recorded, force, False))
    return steps


def carry_out(root: Path, plan: Sequence[Step]) -> None:
    """Write the plan's files, each in one move, and what was written into the manifest.

    Raises:
        EnvironmentProblem: A conflict in the plan, then nothing is written; or a file that cannot be.
    """
    conflicts = [step.target for step in plan if step.action == "conflict"]
    if conflicts:
        raise EnvironmentProblem(
            f"{conflicts[0]} was written or changed by somebody else; move it away, or say --force"
        )
    recorded = _read_manifest(root)
    before = dict(recorded)
    # The sampler's user, and slurmd's, have to reach what lies below.
    mask = os.umask(0o022)
    try:
        for step in plan:
            if step.action in _WRITTEN:
                _write(step.path, step.content, step.mode)
            if step.action != "kept":
                recorded[step.target] = _digest(step.content)
        if recorded != before:
            lines = "".join(f"{digest}  {target}\n" for target, digest in sorted(recorded.items()))
            _write(_below(root, MANIFEST), lines.encode(), 0o644)
    finally:
        os.umask(mask)


def slurm_conf_lines(flags: str = "alloc", *, drop_ins: bool = False) -> str:
    """The lines to add to slurm.conf, with their comments."""
    names = ("hooks-dropin" if drop_ins else "hooks", flags, "accounting")
    return "\n".join(hook_file(f"slurm/{name}.conf").decode() for name in names)


def _step(
    root: Path, target: str, content: bytes, mode: int, recorded: dict[str, str], force: bool, yours: bool
) -> Step:
    path = _below(root, target)
    found: bytes | None = None
    found_mode = mode
    try:
        # A pipe would be waited for; what is no file is somebody else's.
        if path.is_file():
            found, found_mode = path.read_bytes(), path.stat().st_mode & 0o7777
        elif os.path.lexists(path):
            action = "kept" if yours else "overwrite" if force else "conflict"
            return Step(action, target, path, content, mode)
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be read ({error.strerror}); run this as root") from None
    if found is None:
        action = "create"
    elif found == content and found_mode == mode:
        action = "unchanged"
    elif found == content or recorded.get(target) == _digest(found):
        action = "update"
    elif yours:
        action = "kept"
    else:
        action = "overwrite" if force else "conflict"
    return Step(action, target, path, content, mode)


def _sampler_there(root: Path, recorded: dict[str, str]) -> bytes | None:
    """The single-file build that is installed, unchanged; not a call of a Python: that follows the one that runs."""
    try:
        there = _below(root, SAMPLER)
        content = there.read_bytes() if there.is_file() else b""
    except OSError:
        return None  # the step says why
    return content if recorded.get(SAMPLER) == _digest(content) and b"\nPK" in content[:200] else None


def _sampler(build: Path | None) -> bytes:
    if build is None:
        return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m slurm_trace.node "$@"\n'.encode()
    try:
        content = b"" if build.is_fifo() else build.read_bytes()
    except OSError as error:
        raise unreadable(build, error, "name the single file that make node builds") from None
    if not content.startswith(b"#!"):
        raise InputProblem(f"{build} is no program that can be started; build it with make node")
    return content


def _below(root: Path, target: str) -> Path:
    return root / target.lstrip("/")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_manifest(root: Path) -> dict[str, str]:
    try:
        lines = _below(root, MANIFEST).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise EnvironmentProblem(f"{MANIFEST} cannot be read ({error.strerror}); run this as root") from None
    pairs = (line.split("  ", 1) for line in lines if "  " in line)
    return {target: digest for digest, target in pairs}


def _write(path: Path, content: bytes, mode: int) -> None:
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(content)
        fresh.chmod(mode)
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise EnvironmentProblem(f"{path} cannot be written ({error.strerror}); run this as root") from None
