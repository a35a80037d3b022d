"""Figures as people read them, in every report the same: a bound is never shown below what it is."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

NAMED = 3
"""Names that are written out where there are many."""

_THREE = Context(prec=3, rounding=ROUND_CEILING)


def ratio(value: float | None) -> str:
    """bound / T with three digits, rounded up."""
    return "-" if value is None else f"{float(_THREE.create_decimal_from_float(value)):.3g}"


def listing(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
