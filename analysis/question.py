"""The question that is put to every bound: can it have reached the threshold?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from slurm_trace.errors import UsageProblem

LARGEST_MARGIN = 1000
"""Beyond it nothing is ruled out anyway."""

DEFAULT_MARGIN = Fraction(5, 100)
"""Room for what the ceilings leave out (units_left_out); a test of the registry shows that the rest fits in."""

ESTIMATES = frozenset({"bf16_dense"})
"""Bases that are no upper bound: nothing is ruled out by them."""


@dataclass(frozen=True, slots=True)
class Question:
    """Can it have reached `threshold_flop`?

    Attributes:
        threshold_flop: T, in operations.
        margin: Fraction of the bound that is added before it is compared.
        basis: What counts as an operation.
    """

    threshold_flop: int
    basis: str
    margin: Fraction = DEFAULT_MARGIN

    @property
    def limit_flop(self) -> int:
        """A bound below this is below T with its margin: floor(T / (1 + margin))."""
        return math.floor(Fraction(self.threshold_flop) / (1 + self.margin))

    @property
    def estimate(self) -> bool:
        """The basis is no upper bound."""
        return self.basis in ESTIMATES

    def ratio(self, bound_flop: int | None) -> float | None:
        """bound / T without the margin, rounded up; None also where it is beyond any float."""
        if bound_flop is None:
            return None
        try:
            return ceil_ratio(bound_flop, self.threshold_flop)
        except OverflowError:
            return None


def margin_of(text: str) -> Fraction:
    """A margin as given on the command line.

    Raises:
        UsageProblem: It is no fraction from 0 to LARGEST_MARGIN.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or not 0 <= value <= LARGEST_MARGIN or value.adjusted() < -LARGEST_MARGIN:
        raise UsageProblem(f"margin {text[:60]!r}: give a fraction from 0 to {LARGEST_MARGIN}, such as 0.05")
    return Fraction(value)


def ceil_ratio(numerator: int, denominator: int) -> float:
    """The smallest float that is not below the exact quotient (denominator > 0)."""
    exact = Fraction(numerator, denominator)
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)
