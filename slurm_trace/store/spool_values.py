"""Single values of a spool file: what cannot be raises `Damaged`, and says what it was."""

from __future__ import annotations

import re
from typing import Any

from slurm_trace.errors import InputProblem
from slurm_trace.store.fit import INT_MAX, text_reason

EPOCH_MAX_NS = 5_000_000_000 * 10**9
"""The year 2128: a clock that is later is wrong."""

_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_.,:+@/ ()\[\]#-]*", re.ASCII)


class Damaged(InputProblem):
    """A file that cannot be taken in, and why."""


def check_number(what: str, value: Any, low: int, high: int = INT_MAX) -> int:
    """A whole number from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Damaged(f"{what} is {str(value)[:40]!r}, which cannot be")
    return value


def optional_number(what: str, value: Any, low: int, high: int = INT_MAX) -> int | None:
    """A whole number, or None."""
    return None if value is None else check_number(what, value, low, high)


def check_text(what: str, value: Any, limit: int) -> str:
    """A text that every database can hold, of at most `limit` characters."""
    reason = text_reason(value) or ("is too long" if len(value) > limit else None)
    if reason:
        raise Damaged(f"{what} {reason}")
    text: str = value
    return text


def optional_text(what: str, value: Any, limit: int) -> str | None:
    """A text, or None."""
    return None if value is None else check_text(what, value, limit)


def check_pattern(what: str, value: Any, pattern: re.Pattern[str]) -> str:
    """A text that matches as a whole."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise Damaged(f"{what} is {str(value)[:40]!r}, which cannot be")
    return value


def check_word(what: str, value: Any, limit: int) -> str:
    """A text of the characters that hooks and drivers write."""
    return check_pattern(what, check_text(what, value, limit), _WORD)


def optional_word(value: str | None, limit: int) -> str | None:
    """A word; None where there is none, or an empty one."""
    return check_word("lease", value, limit) if value else None


def check_digits(what: str, value: str, low: int, high: int = INT_MAX) -> int:
    """The number that a text of digits is."""
    return check_number(what, int(check_pattern(what, value, _DIGITS)), low, high)


def optional_digits(what: str, value: str | None) -> int | None:
    """The number that a text of digits is; None where there is none."""
    return check_digits(what, value, 0) if value else None


def check_epoch(what: str, value: str) -> int:
    """Whole seconds of an epoch written with a fraction, rounded down."""
    seconds = float(value)
    if not 0 <= seconds <= EPOCH_MAX_NS / 10**9:
        raise Damaged(f"{what} is {value[:40]!r}, which cannot be")
    return int(seconds)
