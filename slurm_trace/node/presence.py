"""The sampler's sign of life for the hooks: `PID START` in a file of its own directory.

Ids of processes are used again, so the start time (field 22 of /proc/PID/stat) goes with it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "pid"


def start_of(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None if there is none of that id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The second field, the program's name in brackets, may hold anything.
    return stat.rpartition(")")[2].split()[19]


def running(directory: str | Path) -> int | None:
    """The process id of the sampler that announced itself and still runs."""
    try:
        words = Path(directory, FILE).read_text(encoding="ascii").split()
        pid = int(words[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if len(words) == 2 and start_of(pid) == words[1] else None


def announce(directory: str | Path) -> None:
    """Say that this process is the sampler."""
    pid = os.getpid()
    fresh = Path(directory, f".{FILE}.{pid}")
    fresh.write_text(f"{pid} {start_of(pid)}\n", encoding="ascii")
    fresh.replace(Path(directory, FILE))


def withdraw(directory: str | Path) -> None:
    """Take it back, before the last look for leases: a prolog that comes after it starts a new sampler."""
    if running(directory) == os.getpid():
        with contextlib.suppress(OSError):
            Path(directory, FILE).unlink()
