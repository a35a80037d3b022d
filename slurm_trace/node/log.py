"""Messages of the sampler: each kind of trouble once an hour, with how often it came in between."""

from __future__ import annotations

import sys
import syslog
from collections.abc import Callable

AGAIN_S = 3600.0
# Kinds carry names of devices or leases; their number is bounded whatever happens.
_KINDS = 500


class Log:
    """Writes lines to stderr (the journal takes them) or to syslog.

    Args:
        now_s: A clock that is never set.
        write: Takes a whole line.
    """

    def __init__(self, now_s: Callable[[], float], write: Callable[[str], None]) -> None:
        self._now_s = now_s
        self._write = write
        self._seen: dict[str, tuple[float, int]] = {}

    def say(self, message: str) -> None:
        """A line that is written in any case."""
        self._write(message)

    def trouble(self, kind: str, message: str) -> None:
        """A line, unless one of its kind was written within the hour."""
        now = self._now_s()
        at, held_back = self._seen.get(kind, (None, 0))
        if at is not None and now - at < AGAIN_S:
            self._seen[kind] = (at, held_back + 1)
            return
        if len(self._seen) >= _KINDS:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        self._write(f"{message} ({held_back} more like this in the last hour)" if held_back else message)


def to_stderr(line: str) -> None:
    """Write a line to stderr; where even that is full, it is lost."""
    try:
        sys.stderr.write(f"slurm-trace-node: {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def to_syslog(line: str) -> None:
    """Write a line to syslog."""
    syslog.openlog("slurm-trace-node", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_WARNING, line)
