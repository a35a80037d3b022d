"""Whole columns of times and durations, put together from parts that repeat: days, hours, minutes with seconds."""

from __future__ import annotations

import re

from slurm_trace.accounting.memo import ODD, Memo
from slurm_trace.accounting.times import FIRST_MOMENT, LAST_MOMENT, LONGEST_RUN_S, TimeReader, parse_duration

_TAIL = re.compile(r":([0-5]\d:\d\d)(Z|[+-]\d\d:?\d\d)", re.ASCII)
_HOUR = re.compile(r"(\d{4}-\d\d-\d\d)[T ]([01]\d|2[0-3])", re.ASCII)
_MINUTES = re.compile(r"\d\d:\d\d", re.ASCII)

#: Length of `2026-11-30T14:48:01`, and of it up to the hour.
_CLOCK_LENGTH = 19
_HOUR_LENGTH = 13
_HOUR_S = 3600
_DAY_S = 86_400


class TimeColumns:
    """Resolves columns of times of one input."""

    def __init__(self, times: TimeReader) -> None:
        self._times = times
        self._local: Memo[float] = Memo(lambda hour: self._hour(hour, ""))
        self._zoned: Memo[float] = Memo(lambda hour: self._hour(hour, "Z"))
        self._days: Memo[float] = Memo(
            lambda day: self._span(f"{day[:10]}T", "00:00:00", "23:59:59", day[10:])
        )
        seconds = {f":{m:02}:{s:02}": m * 60 + s for m in range(60) for s in range(60)}
        self._plain: Memo[float] = Memo(lambda tail: seconds.get(tail, ODD))
        self._offset: Memo[float] = Memo(self._offset_tail)

    def read(self, column: list[str]) -> tuple[list[float], bool]:
        """Epoch seconds of each cell, and whether the cells are local times.

        A cell without a time, or with more than one reading, is ODD.
        """
        sample = next((text for text in column if text[:1].isdigit()), "")
        if len(sample) < _CLOCK_LENGTH:
            return [_epoch(text) for text in column], False
        local = len(sample) == _CLOCK_LENGTH
        hours, tails = (self._local, self._plain) if local else (self._zoned, self._offset)
        return [hours[text[:_HOUR_LENGTH]] + tails[text[_HOUR_LENGTH:]] for text in column], local

    def _hour(self, text: str, zone: str) -> float:
        """The moment at which an hour begins; ODD unless it is an hour long there."""
        match = _HOUR.fullmatch(text)
        if match is None:
            return ODD
        day, hour = match.groups()
        midnight = self._days[day + zone]
        if midnight == midnight:
            return midnight + int(hour) * _HOUR_S
        return self._span(text, ":00:00", ":59:59", zone, _HOUR_S)

    def _span(self, start: str, first: str, last: str, zone: str, length_s: int = _DAY_S) -> float:
        """The moment at which a span of clock time begins; ODD if the zone changes its offset in it."""
        try:
            begin, end = self._times.read(f"{start}{first}{zone}"), self._times.read(f"{start}{last}{zone}")
        except ValueError:
            return ODD
        if begin.shift or end.shift or begin.latest is None or end.latest is None:
            return ODD
        return begin.latest if end.latest - begin.latest == length_s - 1 else ODD

    def _offset_tail(self, tail: str) -> float:
        match = _TAIL.fullmatch(tail)
        if match is None:
            return ODD
        past_hour, zone = match.groups()
        try:
            there = self._times.read(f"2020-01-01T12:{past_hour}{zone}").latest
        except ValueError:
            return ODD
        start = self._times.read("2020-01-01T12:00:00Z").latest
        return ODD if there is None or start is None else there - start


class DurationColumns:
    """Resolves columns of durations."""

    def __init__(self) -> None:
        self._hours: Memo[float] = Memo(lambda head: _seconds(f"{head}00:00"))
        self._minutes: Memo[float] = Memo(lambda tail: _seconds(tail) if _MINUTES.fullmatch(tail) else ODD)

    def read(self, column: list[str]) -> list[float]:
        """Seconds of each cell, ODD where there is no duration."""
        digits = "".join(column)
        if digits.isascii() and digits.isdigit():
            return [int(text) if 0 < len(text) < 9 else ODD for text in column]
        hours, minutes = self._hours, self._minutes
        return [hours[text[:-5]] + minutes[text[-5:]] for text in column]


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return ODD
    return ODD if seconds is None or seconds >= LONGEST_RUN_S else seconds


def _epoch(text: str) -> float:
    plain = 9 <= len(text) <= 10 and text.isascii() and text.isdigit()
    moment = int(text) if plain else 0
    return moment if FIRST_MOMENT <= moment < LAST_MOMENT else ODD
