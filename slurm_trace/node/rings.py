"""The driver's ring buffers, made into windows that tile time without overlap; where entries were lost, a hole stays.

An entry with time stamp t and the one before it, at s, say what held over (s, t]. Every look asks for the last
entry that it has seen once more: if that comes back, nothing was overwritten in between, and the next window
begins where the last one ended. If it does not, or an entry cannot be true, or the wall clock was set, the next
window begins later, and what is between is a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

Entry = tuple[int, Optional[int]]

# Drivers sample at least once a second; a longer way from entry to entry has lost some.
_LONGEST_MS = 2_500


@dataclass(frozen=True)
class Window:
    """`entries` values that tile (from_ms, to_ms]; `value_ms` is the sum of value x milliseconds."""

    from_ms: int
    to_ms: int
    entries: int
    value_ms: int
    lowest: int
    highest: int


class Ring:
    """One ring buffer of one device, looked at again and again."""

    def __init__(self) -> None:
        self.holes = 0
        self._last_us: int | None = None
        self._last_ms: int | None = None

    @property
    def since_us(self) -> int:
        """What to ask the driver for: everything at first, then from the last entry on, that one included."""
        return 0 if self._last_us is None else self._last_us - 1

    def forget(self) -> None:
        """The driver was opened anew, or the wall clock was set: what comes next has no connection to the last."""
        if self._last_us is not None:
            self.holes += 1
        self._last_us = self._last_ms = None

    def take(self, entries: Sequence[Entry], offset_ms: int) -> list[Window]:
        """Windows of what is new.

        Args:
            entries: As the driver gave them: (epoch in µs, value or None).
            offset_ms: Wall clock minus CLOCK_BOOTTIME now.
        """
        fresh = sorted((entry for entry in entries if entry[0] >= self.since_us), key=lambda entry: entry[0])
        if self._last_us is not None:
            if fresh and fresh[0][0] == self._last_us:
                fresh = fresh[1:]
            elif fresh:
                self.forget()
        windows: list[Window] = []
        # What the driver kept from before the first look stays in single entries: much of it is another job's.
        single = self._last_us is None
        open_: Window | None = None
        for us, value in fresh:
            if us == self._last_us:
                continue
            at_ms, before_ms = us // 1000 - offset_ms, self._last_ms
            self._last_us, self._last_ms = us, at_ms
            whole = before_ms is not None and value is not None and 0 <= at_ms - before_ms <= _LONGEST_MS
            if not whole:
                if before_ms is not None:
                    self.holes += 1
                if open_ is not None:
                    windows.append(open_)
                open_ = None
            elif single:
                windows.append(_grown(None, before_ms or 0, at_ms, value or 0))
            else:
                open_ = _grown(open_, before_ms or 0, at_ms, value or 0)
        if open_ is not None:
            windows.append(open_)
        return windows


def _grown(window: Window | None, from_ms: int, to_ms: int, value: int) -> Window:
    area = value * (to_ms - from_ms)
    if window is None:
        return Window(from_ms, to_ms, 1, area, value, value)
    return Window(
        window.from_ms,
        to_ms,
        window.entries + 1,
        window.value_ms + area,
        min(window.lowest, value),
        max(window.highest, value),
    )
