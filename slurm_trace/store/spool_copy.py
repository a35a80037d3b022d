"""A private copy of a spool file, so that nobody can change it between the check and the reading."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_trace.errors import EnvironmentProblem
from slurm_trace.store.spool_values import Damaged

MAX_BYTES = 256 << 20
"""A day of eight GPUs read every second is below 8 MB."""
_BLOCK_BYTES = 1 << 20
_SEALED = re.compile(r".+\.([0-9a-f]{64})\.spool")


def sealed_as(name: str) -> str | None:
    """The SHA-256 that a sealed file's name says it has."""
    match = _SEALED.fullmatch(name)
    return match.group(1) if match else None


def copy_in(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file that others may still write to, and may have made anything but a file.

    Returns:
        Its size and its SHA-256.

    Raises:
        Damaged: It is no plain file, or too large.
        OSError: It cannot be read.
        EnvironmentProblem: The copy cannot be written.
    """
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    size, digest = 0, hashlib.sha256()
    with os.fdopen(handle, "rb") as whole:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Damaged("no plain file")
        with _writing(target) as copy:
            while block := whole.read(_BLOCK_BYTES):
                size += len(block)
                digest.update(block)
                if size > MAX_BYTES:
                    raise Damaged(f"larger than {MAX_BYTES >> 20} MiB")
                copy(block)
    return size, digest.hexdigest()


@contextmanager
def _writing(target: Path) -> Iterator[Callable[[bytes], None]]:
    def failed(error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(f"{target.parent}: {error.strerror}; make room for temporary files")

    try:
        copy = target.open("xb", buffering=0)
    except OSError as error:
        raise failed(error) from error

    def write(block: bytes) -> None:
        try:
            copy.write(block)
        except OSError as error:
            raise failed(error) from error

    with copy:
        yield write
