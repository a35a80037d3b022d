"""Lengths of time on the command line."""

from __future__ import annotations

import re

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"([0-9]{1,10})([smhdw])", re.IGNORECASE)

LONGEST_S = 10**10
"""No length is longer than three centuries."""


def seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Callback of an option that takes a whole number and a unit, such as 90d."""
    if value is None:
        return None
    found = _SPAN.fullmatch(value.strip())
    length_s = int(found[1]) * _UNITS[found[2].lower()] if found else 0
    if not 0 < length_s <= LONGEST_S:
        raise click.BadParameter(
            f"{value[:40]!r} is no length; write e.g. 90d, 12h or 2w", context, parameter
        )
    return length_s


def span(length_s: int) -> str:
    """A length in the largest unit that is whole."""
    unit = next(u for u in ("d", "h", "m", "s") if length_s % _UNITS[u] == 0)
    return f"{length_s // _UNITS[unit]}{unit}"
