"""From a file in an outbox to what can be stored of it, or to a damaged file kept aside with a reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from slurm_trace.errors import EnvironmentProblem
from slurm_trace.store.spool_check import CheckedSpool, read_checked, reading
from slurm_trace.store.spool_copy import copy_in
from slurm_trace.store.spool_figures import DeviceFigures, figures_of
from slurm_trace.store.spool_values import Damaged

ASIDE = "damaged"
"""Folder beside a damaged file that it is moved into."""

YOUNG_S = 60.0
"""A file that was written to within this time may still be on its way here, and is not moved."""


@dataclass(frozen=True, slots=True)
class PreparedSpool:
    """A spool file that is ready to be stored."""

    checked: CheckedSpool
    figures: dict[str, DeviceFigures]

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return self.checked.spool.digest


@dataclass(frozen=True, slots=True)
class RejectedSpool:
    """A file that is not taken in; `digest` is of what it holds, empty where it could not be read."""

    name: str
    size: int | None
    digest: str
    reason: str
    kept: str


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for copies, that nobody else can write to.

    Raises:
        EnvironmentProblem: There is no room for temporary files.
    """
    try:
        folder = TemporaryDirectory(prefix="slurm-trace-", ignore_cleanup_errors=True)
    except OSError as error:
        raise EnvironmentProblem(f"no temporary folder can be made: {error.strerror}; set TMPDIR") from error
    with folder as name:
        yield Path(name)


def prepare(path: Path, scratch: Path) -> PreparedSpool | RejectedSpool | None:
    """Copy and check a file and work out its figures; a damaged one is moved aside where that is possible.

    Returns:
        None where the file is not there any more: another import took care of it.

    Raises:
        EnvironmentProblem: The copy cannot be written.
    """
    copy, size, digest = scratch / path.name, None, ""
    try:
        size, digest = copy_in(path, copy)
        checked = read_checked(copy, size, digest)
        with reading(copy):
            return PreparedSpool(checked, figures_of(checked))
    except FileNotFoundError:
        return None
    except OSError as error:
        return RejectedSpool(path.name, None, "", f"cannot be read ({error.strerror})", str(path))
    except Damaged as problem:
        copy.unlink(missing_ok=True)
        kept = _set_aside(path) if digest else str(path)
        return RejectedSpool(path.name, size, digest, str(problem), kept)


def _set_aside(path: Path) -> str:
    """Move a damaged file into the folder for them; where it is then."""
    target = path.parent / ASIDE / path.name
    try:
        if path.parent.name != ASIDE and time.time() - path.lstat().st_mtime > YOUNG_S:
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
            return str(target)
    except OSError:
        # Its folder cannot be written to: it stays, and is listed.
        return str(path)
    return str(path)
