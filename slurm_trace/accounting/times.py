"""Times and durations as sacct prints them.

A local time is ambiguous for an hour in autumn and does not exist for an hour in spring: both readings are kept, and
the row decides which one makes the held time larger.
"""

from __future__ import annotations

import calendar
import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from slurm_trace.errors import UsageProblem

#: Before this moment (2000-01-01) there was no Slurm: a time printed below it is a zero or a broken clock.
FIRST_MOMENT = 946_684_800

#: From this moment (2106-01-01) on a time is one of Slurm's sentinels (4294967294 = never, 4294967295 = infinite).
LAST_MOMENT = 4_291_747_200

#: No run lasts longer than this (30 years): what claims to was computed from a start of zero.
LONGEST_RUN_S = 946_684_800

_NOTHING = frozenset({"", "unknown", "none", "na", "n/a", "(null)", "null", "never", "invalid", "-"})
_EPOCH = re.compile(r"\d{9,10}|0|-\d{1,18}", re.ASCII)
_CLOCK = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d{1,9})?)? ?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
_DURATION = re.compile(r"(?:(\d{1,9})-)?(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,12}(?:\.\d{1,9})?)", re.ASCII)
_CACHE_SIZE = 20_000


class Moment(NamedTuple):
    """A printed time.

    Attributes:
        latest: Epoch seconds; the later reading of a local time that has two; None if there is no time.
        earliest: The earlier reading.
        local: The text carried no zone, so the zone of the options was used.
        shift: `dst_fold` or `dst_gap` where the two readings differ.
        ancient: A time was given, and lies before 2000.
    """

    latest: int | None = None
    earliest: int | None = None
    local: bool = False
    shift: str = ""
    ancient: bool = False


NO_TIME = Moment()


class TimeReader:
    """Reads the times of one input; remembers what it read."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone or UTC
        self._known: dict[str, Moment] = {}

    def read(self, text: str) -> Moment:
        """The moment a text names.

        Raises:
            ValueError: The text is neither a time nor one of the words for "no time".
        """
        moment = self._known.get(text)
        if moment is None:
            moment = self._parse(text.strip())
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[text] = moment
        return moment

    def _parse(self, text: str) -> Moment:
        if is_no_time(text):
            return NO_TIME
        if _EPOCH.fullmatch(text):
            return _in_range(int(text), int(text), local=False)
        match = _CLOCK.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:40]!r} is no time")
        parts = [int(part or 0) for part in match.groups()[:6]]
        if parts[0] == 0:
            return NO_TIME
        clock = datetime(parts[0], parts[1], parts[2], parts[3], parts[4], min(parts[5], 59))
        plain = calendar.timegm(clock.timetuple())
        zone = _fixed_zone(match.group(7))
        if zone is not None:
            moment = plain - _offset_s(clock, zone, 0)
            return _in_range(moment, moment, local=False)
        first, second = (plain - _offset_s(clock, self._zone, fold) for fold in (0, 1))
        return _in_range(min(first, second), max(first, second), local=True, gap=second < first)


def is_no_time(text: str) -> bool:
    """Whether a cell holds one of the words for "no time"."""
    return text.strip().lower() in _NOTHING


def _fixed_zone(text: str | None) -> tzinfo | None:
    if not text:
        return None
    if text[0] not in "+-":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _offset_s(clock: datetime, zone: tzinfo, fold: int) -> int:
    offset = clock.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()
    return offset // timedelta(seconds=1)


def _in_range(earliest: int, latest: int, *, local: bool, gap: bool = False) -> Moment:
    if latest < FIRST_MOMENT:
        return Moment(local=local, ancient=True)
    if latest >= LAST_MOMENT:
        return Moment(local=local)
    shift = "" if earliest == latest else "dst_gap" if gap else "dst_fold"
    return Moment(latest, earliest, local, shift)


@lru_cache(maxsize=16_384)
def parse_duration(text: str) -> int | None:
    """Whole seconds of `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS.mmm` or plain seconds, rounded up.

    None for the words that stand for no duration (`UNLIMITED`, `Partition_Limit`, `INVALID`, empty).

    Raises:
        ValueError: The text is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is not None:
        days, hours, minutes, seconds = match.groups()
        if days and minutes is None:  # `2-12` is two days and twelve hours
            return int(days) * 86400 + math.ceil(float(seconds)) * 3600
        if days and hours is None:  # `2-12:30`
            return int(days) * 86400 + int(minutes) * 3600 + math.ceil(float(seconds)) * 60
        whole = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
        return whole + (math.ceil(float(seconds)) if "." in seconds else int(seconds))
    if text.strip().lower() in _NO_DURATION:
        return None
    raise ValueError(f"{text[:40]!r} is no duration")


_NO_DURATION = _NOTHING | {"unlimited", "infinite", "partition_limit", "partitionlimit", "not_set"}

#: 4294967294 and 4294967295, Slurm's "not set" and "infinite", and their 16 and 64 bit forms.
_SENTINELS = frozenset({2**16 - 2, 2**16 - 1, 2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1})


def parse_limit(text: str, *, minutes: bool) -> int | None:
    """A time limit in seconds; None where there is none, or where the text names no number.

    Args:
        text: `Timelimit`, or `TimelimitRaw` in minutes.
        minutes: Plain digits are minutes.
    """
    text = text.strip()
    if minutes and text.isdecimal():
        number = int(text[:19])
        return None if number in _SENTINELS or number >= 2**40 else number * 60
    try:
        return parse_duration(text)
    except ValueError:
        return None


def parse_moment(text: str, zone: tzinfo = UTC) -> int:
    """Epoch seconds of a moment that a user typed: a date, a date and time (local times in `zone`), or epoch seconds.

    Raises:
        UsageProblem: The text names no moment.
    """
    typed = text.strip()
    if re.fullmatch(r"\d{4}-\d\d-\d\d", typed, re.ASCII):
        typed += "T00:00:00"
    try:
        moment = TimeReader(zone).read(typed).latest
    except ValueError:
        moment = None
    if moment is None:
        raise UsageProblem(
            f"{text[:40]!r} is no time; write e.g. 2025-03-01, 2025-03-01T12:00:00Z or epoch seconds"
        )
    return moment


def parse_zone(name: str) -> tzinfo:
    """A zone by its name in the zone database.

    Raises:
        UsageProblem: There is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageProblem(
            f"there is no time zone {name[:40]!r}; write e.g. UTC or Europe/Helsinki"
        ) from None
