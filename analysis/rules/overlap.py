"""Can two rules be true of the same subject? Features are taken as independent, so the answer errs towards yes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from slurm_trace.analysis.rules.observables import Feature
from slurm_trace.analysis.rules.rule import Comparison, When, alternatives

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "is": operator.eq,
    "is_not": operator.ne,
    "in": lambda value, constants: value in constants,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def can_both_fire(one: When, other: When, features: Mapping[str, Feature]) -> bool:
    """Some values of the features make both conditions true."""
    return any(
        _possible([*left, *right], features) for left in alternatives(one) for right in alternatives(other)
    )


def _possible(all_of: Iterable[Comparison], features: Mapping[str, Feature]) -> bool:
    by_feature: dict[str, list[Comparison]] = {}
    for comparison in all_of:
        by_feature.setdefault(comparison.feature, []).append(comparison)
    return all(_some_value(features[name], found) for name, found in by_feature.items())


def _some_value(feature: Feature, all_of: list[Comparison]) -> bool:
    if feature.kind != "number":
        values: set[object] = {True, False} if feature.kind == "bool" else set(feature.values)
        return any(all(_holds(value, c) for c in all_of) for value in values)
    # A condition on a number can change its answer only at its constants: they, and a value between any two, tell all.
    marks: list[Any] = sorted({v for c in all_of for v in _constants(c)})
    between = [(a + b) / 2 for a, b in pairwise(marks)]
    outside = [-math.inf, math.inf]
    return any(all(_holds(value, c) for c in all_of) for value in (*marks, *between, *outside))


def _constants(comparison: Comparison) -> tuple[Any, ...]:
    return comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)


def _holds(value: object, comparison: Comparison) -> bool:
    return bool(_OPERATORS[comparison.op](value, comparison.value))
