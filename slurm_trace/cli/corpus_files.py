"""The directory of a run of the corpus: written whole or not at all, and never a second time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slurm_trace.errors import EnvironmentProblem, UsageProblem


def real_folder(folder: Path) -> Path:
    """Where a run really comes to lie: a link to a directory stays one.

    Raises:
        UsageProblem: The link leads nowhere, or in a circle.
    """
    try:
        return folder.resolve(strict=True) if folder.is_symlink() else folder
    except (OSError, RuntimeError) as error:
        raise UsageProblem(f"{folder}: a link that leads nowhere; name another --out") from error


def refuse_written(folder: Path) -> None:
    """Nothing that lies there already is written over.

    Raises:
        UsageProblem: The directory holds something, or is none.
    """
    try:
        if folder.is_dir():
            if any(folder.iterdir()):
                raise UsageProblem(
                    f"{folder}: holds something already and is never written over; name another --out"
                )
        elif folder.exists() or folder.is_symlink():
            raise UsageProblem(f"{folder}: is no directory; name another --out")
    except OSError as error:
        raise EnvironmentProblem(f"{folder}: {error.strerror}; name another --out") from error


def write_run(
    folder: Path,
    config: Mapping[str, Any],
    seed: int,
    summary: Mapping[str, Any],
    lines: Mapping[str, Iterable[str]],
) -> None:
    """Write a run into a directory beside its place, and move it there when all of it is on disk.

    Args:
        folder: Where it is to lie; absent, or empty.
        config: What was asked for. The SHA-256 of every other file is added.
        seed: Also a file of its own.
        summary: The figures.
        lines: By name of a file, its lines.

    Raises:
        UsageProblem: Something has come to lie there meanwhile.
        EnvironmentProblem: It cannot be written.
    """
    refuse_written(folder)
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        try:
            files = {name: _write(partial / name, content) for name, content in lines.items()}
            files["seed"] = _write(partial / "seed", [str(seed)])
            files["summary.json"] = _write(partial / "summary.json", [json.dumps(summary, indent=2)])
            whole = {**config, "files": dict(sorted(files.items()))}
            _write(partial / "config.json", [json.dumps(whole, indent=2)])
            _move(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise EnvironmentProblem(
            f"{error.filename or folder}: {error.strerror}; name another --out"
        ) from error


def _move(partial: Path, folder: Path) -> None:
    try:
        partial.rename(folder)  # onto an empty directory, or none
    except OSError as error:
        refuse_written(folder)
        raise error


def _write(path: Path, lines: Iterable[str]) -> str:
    """Write lines, push them to the disk, and return their SHA-256."""
    digest = hashlib.sha256()
    with path.open("xb") as stream:
        for line in lines:
            data = line.encode() + b"\n"
            digest.update(data)
            stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()
