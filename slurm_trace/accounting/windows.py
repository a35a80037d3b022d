"""Which stretches of time to ask slurmdbd for, one after the other. Pure: no clock, no Slurm.

slurmdbd builds a whole answer in memory (about 2 KB a run), so a window shrinks when its answer was large or
slow and grows back when it was small.
"""

from __future__ import annotations

from dataclasses import dataclass

HOUR_S = 3600
DAY_S = 24 * HOUR_S
MIN_WIDTH_S = 600
MAX_WIDTH_S = 32 * DAY_S
LARGE_BYTES = 16 * 1024 * 1024
SLOW_S = 30.0
# slurmctld may hand over a record late (slurmdbd was down, a node came back): look back this far.
OVERLAP_S = DAY_S
# Until so many seconds ago the records may still be on their way.
SETTLE_S = 10
# sacct takes a start at the epoch for none at all.
EARLIEST = DAY_S
# No accounting by slurmdbd is older.
SLURMDBD_BORN = 1_167_609_600


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch [since, until), UTC epoch seconds."""

    since: int
    until: int


@dataclass(slots=True)
class WindowPlan:
    """Windows from `since` to `until`, in order; told how each went, it chooses the width of the next.

    Attributes:
        first_seen: Nothing is expected before this moment: what lies before is asked for in one window.
        widest_s: Widest window that slurmdbd allows.
    """

    since: int
    until: int
    first_seen: int | None = None
    width_s: int = DAY_S
    widest_s: int = MAX_WIDTH_S

    @property
    def finished(self) -> bool:
        """All is asked."""
        return self.since >= self.until

    def window(self) -> Window:
        """The window to ask for now."""
        if self.first_seen is not None and self.since < self.first_seen:
            return Window(self.since, min(self.first_seen, self.until))
        return Window(self.since, min(self.since + min(self.width_s, self.widest_s), self.until))

    def done(self, size_bytes: int, seconds: float) -> None:
        """The current window was answered."""
        self.since = self.window().until
        if size_bytes > LARGE_BYTES or seconds > SLOW_S:
            self.shrink()
        elif size_bytes < LARGE_BYTES / 4 and seconds < SLOW_S / 4:
            self.width_s = min(self.width_s * 2, MAX_WIDTH_S, self.widest_s)

    def shrink(self) -> None:
        """The current window was too much: halve it."""
        if self.first_seen is not None and self.since < self.first_seen:
            self.first_seen = min(self.first_seen, SLURMDBD_BORN)
        self.width_s = max(min(self.width_s, self.widest_s) // 2, MIN_WIDTH_S)


def plan(
    *,
    now: int,
    since: int | None,
    until: int | None,
    watermark: int | None,
    first_seen: int | None,
    widest_s: int | None = None,
) -> WindowPlan:
    """The plan of one import.

    A start that is asked for wins; otherwise the watermark less the overlap; otherwise the beginning. The
    end is now unless an earlier one is asked for.
    """
    end = now + 1 if until is None else min(until, now + 1)
    widest = MAX_WIDTH_S if widest_s is None else max(min(widest_s, MAX_WIDTH_S), MIN_WIDTH_S)
    if since is None and watermark is not None:
        since = watermark - OVERLAP_S
    if since is not None:
        return WindowPlan(max(since, EARLIEST), end, widest_s=widest)
    born = SLURMDBD_BORN if first_seen is None else first_seen
    if widest_s is not None:
        return WindowPlan(born, end, widest_s=widest)
    return WindowPlan(EARLIEST, end, first_seen=born)


def covered(window: Window, now: int, kept_since: int | None) -> Window | None:
    """The part of a window that its answer covers completely; None if there is none.

    Args:
        window: What was asked for.
        now: When it was asked.
        kept_since: slurmdbd has purged what is older.
    """
    since = window.since if kept_since is None else max(window.since, kept_since)
    until = min(window.until, now - SETTLE_S)
    return Window(since, until) if since < until else None
