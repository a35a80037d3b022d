"""The threshold registry: how much training compute carries a duty, where, and on whose authority."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from slurm_trace.analysis import registry
from slurm_trace.errors import UsageProblem

DEFAULT = "eu-gpai"
"""The threshold that a report asks about unless told otherwise."""

_LARGEST_EXPONENT = 60
_EXACT = re.compile(r"(?P<n>[0-9]+(?:e[0-9]{1,2})?)(?:/(?P<d>[0-9]+))?")


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold.

    Attributes:
        flop: The threshold in operations; a ratio such as 1e23/3 is rounded down, since the smaller one is cautious.
        exact: The same, not rounded.
        unit: Which operations the text counts.
        comparison: ">" or ">=".
        counts: Which compute counts.
        basis: What the entry rests on.
        entry: The entry as it stands in the registry; empty for a bare number.
        of_base: Share of the base model's compute that takes the place of `exact` where that compute is known.
    """

    id: str
    flop: int
    exact: Fraction
    title: str
    jurisdiction: str
    unit: str
    comparison: str
    counts: str
    status: str
    citation: str
    basis: str
    verified: bool
    entry: registry.Entry
    of_base: Fraction | None = None

    def on_base(self, base_flop: int) -> Threshold:
        """The threshold of a modification, given the compute of the model that was modified.

        Raises:
            UsageProblem: The model's compute is too little to have a threshold.
        """
        exact = self.exact if self.of_base is None else self.of_base * base_flop
        if exact < 1:
            raise UsageProblem(
                f"{self.id}: {base_flop} FLOP of a base model leave no threshold; give its whole compute"
            )
        return replace(self, exact=exact, flop=exact.numerator // exact.denominator)


class Thresholds:
    """The merged registry.

    Attributes:
        digest: SHA-256 over the canonical JSON of all entries, the overlay's included.
    """

    def __init__(self, sections: registry.Sections, overlay: Path | None = None) -> None:
        self.digest = registry.digest(sections)
        self._by_id: dict[str, Threshold] = {}
        for threshold_id, entry in sections["thresholds"].items():
            exact = _exact(entry["flop"])
            if exact is None:
                raise registry.entry_problem(
                    overlay,
                    "thresholds",
                    threshold_id,
                    f"flop {entry['flop']!r}",
                    "write 1e23, 1e23/3 or an integer",
                )
            self._by_id[threshold_id] = Threshold(
                id=threshold_id,
                flop=exact.numerator // exact.denominator,
                exact=exact,
                entry=entry,
                of_base=Fraction(entry["of_base"]) if "of_base" in entry else None,
                **{
                    name: entry[name]
                    for name in (
                        "title",
                        "jurisdiction",
                        "unit",
                        "comparison",
                        "counts",
                        "status",
                        "citation",
                        "basis",
                        "verified",
                    )
                },
            )

    @classmethod
    def load(cls, overlay: Path | None = None) -> Thresholds:
        """The built-in registry with a site's own entries on top.

        Raises:
            InputProblem: The overlay can't be read or has the wrong form.
        """
        sections = registry.load(registry.THRESHOLD_FILES, registry.THRESHOLD_SECTIONS, overlay)
        return cls(sections, overlay)

    def __iter__(self) -> Iterator[Threshold]:
        return iter(self._by_id.values())

    def get(self, id_or_number: str | int) -> Threshold:
        """A threshold by id, or one made from a bare number of operations (`1e24`, `3.3e22`, `1e23/3`).

        Raises:
            UsageProblem: It is neither.
        """
        text = str(id_or_number).strip()
        found = self._by_id.get(text.lower())
        if found is not None:
            return found
        value = number(text)
        if value is None or value < 1:
            raise UsageProblem(
                f"no threshold {text[:60]!r}: give a number of operations such as 1e24, "
                f"or one of {', '.join(self._by_id)}"
            )
        return Threshold(
            id=text,
            flop=value.numerator // value.denominator,
            exact=value,
            title="a number of operations",
            jurisdiction="",
            unit="integer or floating-point operations",
            comparison=">",
            counts="any operation",
            status="given by the user",
            citation="",
            basis="given by the user",
            verified=True,
            entry={},
        )


def _exact(text: str) -> Fraction | None:
    """An integer, a power form or a ratio of the two, exactly."""
    found = _EXACT.fullmatch(text)
    if found is None or int(found["d"] or 1) == 0:
        return None
    digits, _, exponent = found["n"].partition("e")
    if len(digits) > _LARGEST_EXPONENT or int(exponent or 0) > _LARGEST_EXPONENT:
        return None
    return Fraction(int(digits) * 10 ** int(exponent or 0), int(found["d"] or 1))


def number(text: str) -> Fraction | None:
    """A number of operations as people write it: 1e24, 3.3e22, 1e23/3; None if it is none."""
    plain = text.lower().replace("e+", "e").replace("_", "")
    exact = _exact(plain)
    if exact is not None:
        return exact
    try:
        value = Decimal(plain)
    except InvalidOperation:
        return None
    if not value.is_finite() or not -_LARGEST_EXPONENT <= value.adjusted() <= _LARGEST_EXPONENT:
        return None
    return Fraction(value)
