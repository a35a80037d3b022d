"""Rules over columns of values: a million subjects at once.

Three-valued: a comparison with a value that is missing is not known, so it is not true, and nothing in a condition
negates. What is missing therefore never makes a rule fire; where no rule gives a verdict, the default of the precedence
file does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.rules.observables import Feature
from slurm_trace.analysis.rules.rule import VERDICTS, Comparison, Rule, Subject, When
from slurm_trace.analysis.rules.ruleset import RuleSet

Column = npt.NDArray[Any]
Columns = Mapping[str, Column]
"""Values by feature, one entry a subject.

A bool is an array of bool (never missing), or of int8 with -1 for NULL; an enum an array of its texts with None for
NULL, or int8 codes (the place in the feature's `values`) with -1 for NULL; a number an array of integers, or of floats
with NaN for NULL. A feature without a column is NULL throughout.
"""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the rules say of each subject.

    Attributes:
        rules: The rules that were asked.
        fired: Which of them are true; shape (rules, subjects).
        verdict: Index into VERDICTS of each subject.
        decided_by: Index into `rules` of the rule that gave the verdict; -1: none did.
        attributed_by: The same of the rule that named the group to look at it with.
    """

    rules: tuple[Rule, ...]
    fired: Bools
    verdict: npt.NDArray[np.int8]
    decided_by: npt.NDArray[np.int16]
    attributed_by: npt.NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.verdict)

    def verdict_of(self, i: int) -> str:
        """RULED_OUT, NOT_RULED_OUT or INSUFFICIENT."""
        return VERDICTS[int(self.verdict[i])]

    def rule_ids(self, i: int) -> list[str]:
        """Every rule that fired for a subject, those that another decided over included."""
        return [self.rules[n].id for n in np.flatnonzero(self.fired[:, i]).tolist()]

    def counted(self, i: int) -> list[Rule]:
        """The rule that gave the verdict, the one that named a group, and those that add to it."""
        chosen = [self.rules[by] for by in (int(self.decided_by[i]), int(self.attributed_by[i])) if by >= 0]
        fired = (self.rules[n] for n in np.flatnonzero(self.fired[:, i]).tolist())
        return chosen + [rule for rule in fired if rule.slot is None]

    def behind(self, rule_id: str) -> Bools:
        """Subjects whose routes rest on a rule."""
        for n, rule in enumerate(self.rules):
            if rule.id == rule_id:
                by = {"verdict": self.decided_by, "group": self.attributed_by, None: None}[rule.slot]
                hit: Bools = self.fired[n] if by is None else by == n
                return hit
        return np.zeros(len(self), dtype=bool)

    def routes(self, i: int) -> list[str]:
        """The verdict first, then what is to be said beside it: WARN, ATTRIBUTE(user)."""
        beside = (r.route_text for r in self.counted(i) if not r.decides and r.route is not None)
        return list(dict.fromkeys((self.verdict_of(i), *beside)))

    def entries(self, i: int) -> list[dict[str, str | None]]:
        """The same for reports, each with the rule behind it; route None is a note."""
        verdict = None if self.decided_by[i] < 0 else self.rules[self.decided_by[i]].id
        found: list[dict[str, str | None]] = [{"route": self.verdict_of(i), "group": None, "rule": verdict}]
        return found + [
            {"route": r.route, "group": r.group, "rule": r.id} for r in self.counted(i) if not r.decides
        ]


def evaluate(
    rules: RuleSet, columns: Columns, subject: Subject = "run", *, verdicts_only: bool = False
) -> Decisions:
    """Put the rules to every subject.

    Args:
        rules: The rules.
        columns: Values by feature, each of shape (subjects,).
        subject: What the columns are of.
        verdicts_only: Only the rules that give verdicts.

    Raises:
        KeyError: A column is of no feature in the registry.
    """
    unknown = columns.keys() - rules.features.keys()
    if unknown:
        raise KeyError(f"no such features: {sorted(unknown)}")
    size = max((len(column) for column in columns.values()), default=0)
    asked = tuple(r for r in rules.of(subject) if r.decides or not verdicts_only)
    fired = np.zeros((len(asked), size), dtype=bool)
    verdict = np.full(size, VERDICTS.index(rules.default), dtype=np.int8)
    decided_by, attributed_by = (np.full(size, -1, dtype=np.int16) for _ in range(2))
    codes = {name: _codes(column, rules.features[name]) for name, column in columns.items()}
    for n, rule in enumerate(asked):
        fired[n] = _true(rule.when, codes, rules.features, size)
        # In the order of precedence, so that the one that decides comes last.
        if rule.route in VERDICTS:
            verdict[fired[n]] = VERDICTS.index(rule.route)
            decided_by[fired[n]] = n
        elif rule.slot == "group":
            attributed_by[fired[n]] = n
    return Decisions(asked, fired, verdict, decided_by, attributed_by)


def _codes(column: Column, feature: Feature) -> Column:
    """Texts of an enum as their codes."""
    if column.dtype.kind not in "OUS":
        return column
    place = {value: n for n, value in enumerate(feature.values)}
    return np.array([-1 if value is None else place[value] for value in column.tolist()], dtype=np.int8)


def _true(when: When, columns: Columns, features: Mapping[str, Feature], size: int) -> Bools:
    if isinstance(when, Comparison):
        return _compare(when, columns.get(when.feature), features[when.feature], size)
    found = _true(when.parts[0], columns, features, size)
    for part in when.parts[1:]:
        more = _true(part, columns, features, size)
        found = found & more if when.how == "all" else found | more
    return found


def _compare(comparison: Comparison, column: Column | None, feature: Feature, size: int) -> Bools:
    if column is None:
        return np.zeros(size, dtype=bool)
    constants = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
    if feature.kind == "enum":
        constants = tuple(feature.values.index(str(c)) for c in constants)
    first: Any = constants[0]
    match comparison.op:
        case "is":
            found = column == first
        case "is_not":
            found = (column != first) & ~_missing(column, feature)
        case "in":
            found = np.isin(column, constants)
        case "lt":
            found = column < first
        case "le":
            found = column <= first
        case "gt":
            found = column > first
        case _:
            found = column >= first
    return np.asarray(found, dtype=bool)


def _missing(column: Column, feature: Feature) -> Bools:
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column), dtype=bool)
    coded = feature.kind != "number" and column.dtype.kind != "b"
    return np.asarray(column < 0, dtype=bool) if coded else np.zeros(len(column), dtype=bool)
