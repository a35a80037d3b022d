"""The driver's ring buffers, made into windows that tile time without overlap; where entries were lost, a hole stays.

An entry with time stamp t and the one before it, at s, say what held over (s, t]. Every look asks for the last
entry that it has seen once more: if that comes back, nothing was overwritten in between, and the next window
begins where the last one ended. If it does not, or an entry cannot be true, or the wall clock was set, the next
window begins later, and what is between is a hole.
"""

from __future__ import annotations

import operator
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
            entries: As the driver gave them, oldest first: (epoch in µs, value or None).
            offset_ms: Wall clock minus CLOCK_BOOTTIME now.
        """
        whole = self._whole(entries, offset_ms)
        if whole is not None:
            return whole
        fresh = self._fresh(entries)
        windows: list[Window] = []
        # What the driver kept from before the first look stays in single entries: much of it is another job's.
        longest = 1 if self._last_us is None else len(fresh)
        before_ms = self._last_ms
        first_ms: int | None = None
        area = low = high = count = 0
        for us, value in fresh:
            at_ms = us // 1000 - offset_ms
            if before_ms is None or value is None or not 0 <= at_ms - before_ms <= _LONGEST_MS:
                if first_ms is not None:
                    windows.append(Window(first_ms, before_ms or 0, count, area, low, high))
                    first_ms = None
                if before_ms is not None:
                    self.holes += 1
            elif first_ms is None or count == longest:
                if first_ms is not None:
                    windows.append(Window(first_ms, before_ms, count, area, low, high))
                first_ms, area, low, high, count = before_ms, value * (at_ms - before_ms), value, value, 1
            else:
                area += value * (at_ms - before_ms)
                count += 1
                if value < low:
                    low = value
                elif value > high:
                    high = value
            before_ms = at_ms
        if first_ms is not None:
            windows.append(Window(first_ms, before_ms or 0, count, area, low, high))
        if fresh:
            self._last_us, self._last_ms = fresh[-1][0], before_ms
        return windows

    def _whole(self, entries: Sequence[Entry], offset_ms: int) -> list[Window] | None:
        """The rule: what is new goes on where the last look ended and has no hole; then it is one window."""
        if self._last_ms is None or len(entries) < 2 or entries[0][0] != self._last_us:
            return None
        stamps, values = zip(*entries[1:])
        ends_ms = [us // 1000 - offset_ms for us in stamps]
        steps_ms = [ends_ms[0] - self._last_ms, *map(operator.sub, ends_ms[1:], ends_ms)]
        if None in values or min(steps_ms) < 0 or max(steps_ms) > _LONGEST_MS:
            return None
        area = sum(map(operator.mul, values, steps_ms))
        window = Window(self._last_ms, ends_ms[-1], len(values), area, min(values), max(values))
        self._last_us, self._last_ms = stamps[-1], ends_ms[-1]
        return [window]

    def _fresh(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """What comes after the last entry; if that is not among them, the chain is broken."""
        last_us = self._last_us
        if entries and entries[0][0] == last_us:
            return entries[1:]
        if last_us is None:
            return entries
        fresh = [entry for entry in entries if entry[0] >= last_us]
        if fresh and fresh[0][0] == last_us:
            return fresh[1:]
        if fresh:
            self.forget()
        return fresh
