"""The driver's ring buffers, made into windows that tile time without overlap; where entries were lost, a hole stays.

An entry with time stamp t and the one before it, at s, say what held over (s, t]. Every look asks for the last
entry that it has seen once more: if that comes back, nothing was overwritten in between, and the next window
begins where the last one ended. If it does not, or an entry cannot be true, or the way to it is longer than the driver
takes from sample to sample, what is between is a hole.

Stamps are of the wall clock. One that was set leaves entries behind whose stamps mean another time, and these stay in
the buffer: until the clock has passed all of them nothing counts. Nor does what is there at a first look, for nobody
watched the clock before.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

Entry = tuple[int, Optional[int]]

# Drivers sample at least once a second; a longer way from entry to entry has lost some.
_LONGEST_MS = 2_500
_FEWEST_STEPS = 3
# What a clock that is only slewed can be off from look to look.
_SLEW_MS = 20


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
        self._last_ms = 0
        self._not_before_us = 0
        # 0 until it is known: then any way is too long.
        self._period_ms = 0
        self._offset_ms: int | None = None

    @property
    def since_us(self) -> int:
        """What to ask the driver for: everything at first, then from the last entry on, that one included."""
        return 0 if self._last_us is None else self._last_us - 1

    def forget(self, not_before_us: int = 0) -> None:
        """What comes next has no connection to the last: the driver was opened anew, or the wall clock was set.

        Args:
            not_before_us: The latest that a clock which was set has shown; older entries may mean another time.
        """
        if self._last_us is not None:
            self.holes += 1
        self._last_us = None
        self._not_before_us = max(self._not_before_us, not_before_us)

    def take(self, entries: Sequence[Entry], offset_ms: int, now_us: int) -> list[Window]:
        """Windows of what is new.

        Args:
            entries: As the driver gave them, oldest first: (epoch in µs, value or None).
            offset_ms: Wall clock minus CLOCK_BOOTTIME now.
            now_us: The wall clock, after they were given.
        """
        before_ms, self._offset_ms = self._offset_ms, offset_ms
        if before_ms is not None and abs(offset_ms - before_ms) > _SLEW_MS:
            self.forget(now_us + max(0, before_ms - offset_ms) * 1000)
        if not entries:
            return []
        if entries[-1][0] > now_us:
            self.forget(entries[-1][0])
            return []
        stamps, values = zip(*entries)
        ends_ms = [us // 1000 - offset_ms for us in stamps]
        steps_ms = list(map(operator.sub, ends_ms[1:], ends_ms))
        if stamps[0] > self._not_before_us and len(steps_ms) >= _FEWEST_STEPS:
            self._learn_period(steps_ms)
        longest_ms = min(self._period_ms * 3 // 2 + 1, _LONGEST_MS)
        if stamps[0] != self._last_us:
            self.forget()
            if stamps[-1] > self._not_before_us:
                self._last_us, self._last_ms = stamps[-1], ends_ms[-1]
            return []
        if not steps_ms:
            return []
        self._last_us = stamps[-1]
        begin_ms, self._last_ms = self._last_ms, ends_ms[-1]
        # The rule: no hole; then it is one window.
        if None not in values[1:] and min(steps_ms) >= 0 and max(steps_ms) <= longest_ms:
            return [_window(begin_ms, steps_ms, values[1:])]
        return self._between_holes(begin_ms, steps_ms, values[1:], longest_ms)

    def _between_holes(
        self, begin_ms: int, steps_ms: Sequence[int], values: Sequence[int | None], longest_ms: int
    ) -> list[Window]:
        windows: list[Window] = []
        steps: list[int] = []
        kept: list[int] = []
        at_ms = begin_ms
        for step_ms, value in zip(steps_ms, values):
            at_ms += step_ms
            if value is not None and 0 <= step_ms <= longest_ms:
                steps.append(step_ms)
                kept.append(value)
                continue
            self.holes += 1
            if steps:
                windows.append(_window(begin_ms, steps, kept))
            begin_ms, steps, kept = at_ms, [], []
        if steps:
            windows.append(_window(begin_ms, steps, kept))
        return windows

    def _learn_period(self, steps_ms: Sequence[int]) -> None:
        """The shortest usual way from entry to entry is the one on which none is missing."""
        usual_ms = sorted(steps_ms)[len(steps_ms) // 2]
        self._period_ms = min(usual_ms, self._period_ms or usual_ms)


def _window(begin_ms: int, steps_ms: Sequence[int], values: Sequence[int]) -> Window:
    area = sum(map(operator.mul, values, steps_ms))
    return Window(begin_ms, begin_ms + sum(steps_ms), len(values), area, min(values), max(values))
