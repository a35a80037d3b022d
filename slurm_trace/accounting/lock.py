"""One at a time: a hung sacct must not gather company from every run of a timer."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_trace.errors import EnvironmentProblem


def lock_directory() -> Path:
    """Where locks live: the user's own state directory, /var/lib/slurm-trace for root."""
    if os.geteuid() == 0:
        return Path("/var/lib/slurm-trace")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "slurm-trace"


@contextmanager
def only_one(name: str, directory: Path | None = None) -> Iterator[None]:
    """Hold the lock of that name; it ends with the process, however that ends.

    Raises:
        EnvironmentProblem: Another process holds it, or it cannot be made.
    """
    path = (directory or lock_directory()) / f"{name.replace('/', '_')}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot make the lock {path}: {error.strerror}; make its directory writable"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            raise EnvironmentProblem(
                f"another import holds {path} (process {holder}); wait for it to end, or end that process"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
