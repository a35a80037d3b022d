"""What may be said of a bound: ruled out, not ruled out, or not enough to tell. Never that a threshold was exceeded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.envelope import Bools, Envelope
from slurm_trace.analysis.tracking import Status
from slurm_trace.errors import UsageProblem

RULED_OUT, NOT_RULED_OUT, INSUFFICIENT = "RULED_OUT", "NOT_RULED_OUT", "INSUFFICIENT"
VERDICTS = (NOT_RULED_OUT, INSUFFICIENT, RULED_OUT)
"""In the order in which reports list them."""

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

    def verdict(self, bound_flop: int | None) -> str:
        """The verdict on one bound."""
        if bound_flop is None:
            return INSUFFICIENT
        if bound_flop >= self.limit_flop:
            return NOT_RULED_OUT
        return INSUFFICIENT if self.basis in ESTIMATES else RULED_OUT

    def ratio(self, bound_flop: int | None) -> float | None:
        """bound / T without the margin, rounded up."""
        return None if bound_flop is None else ceil_ratio(bound_flop, self.threshold_flop)


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


def verdicts(envelope: Envelope, question: Question, *, strict: bool = False) -> npt.NDArray[np.int8]:
    """The verdict of every run, as an index into VERDICTS."""
    below = envelope.below(question.limit_flop, strict=strict)
    bounded: Bools = envelope.bounded
    if strict:
        has = np.array([c.strict is not None for c in envelope.claims] or [False])
        bounded = envelope.release.proven & has[envelope.code]
    ruled_out = VERDICTS.index(INSUFFICIENT if question.basis in ESTIMATES else RULED_OUT)
    return np.where(
        bounded, np.where(below, ruled_out, VERDICTS.index(NOT_RULED_OUT)), VERDICTS.index(INSUFFICIENT)
    ).astype(np.int8)


def assumptions(envelope: Envelope, i: int, records_complete: Status) -> list[dict[str, str]]:
    """Everything the verdict on run i rests on, with what stands behind it."""
    statuses: dict[str, Status] = {
        "records_complete": records_complete,
        "records_unaltered": "assumed",
        **envelope.claim(i).statuses,
        "released_at_end": "proven" if envelope.release.proven[i] else "assumed",
        "units_left_out": "assumed",
    }
    return [{"id": name, "status": status} for name, status in statuses.items()]
