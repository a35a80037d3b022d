"""A rule: when its condition is true of a run or a group, it routes it, for a reason in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

RULED_OUT, NOT_RULED_OUT, INSUFFICIENT = "RULED_OUT", "NOT_RULED_OUT", "INSUFFICIENT"
VERDICTS = (NOT_RULED_OUT, INSUFFICIENT, RULED_OUT)
"""Routes of which a subject takes exactly one, in the order in which reports list them."""

WARN, ATTRIBUTE = "WARN", "ATTRIBUTE"
ROUTES = (*VERDICTS, WARN, ATTRIBUTE)

Subject = Literal["run", "group"]
Value = bool | str | int | float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One feature against a constant. With NULL it is never true, whatever the operator."""

    feature: str
    op: str
    value: Value | tuple[Value, ...]
    unit: str | None = None

    def __str__(self) -> str:
        word = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "is_not": "is not"}.get(self.op, self.op)
        value = ", ".join(map(str, self.value)) if isinstance(self.value, tuple) else str(self.value)
        unit = f" {self.unit}" if self.unit not in (None, "1") else ""
        return f"{self.feature} {word} {value}{unit}"


@dataclass(frozen=True, slots=True)
class Condition:
    """All, or any, of its parts."""

    how: Literal["all", "any"]
    parts: tuple[Condition | Comparison, ...]

    def __str__(self) -> str:
        word = " and " if self.how == "all" else " or "
        return word.join(f"({p})" if isinstance(p, Condition) else str(p) for p in self.parts)


When = Condition | Comparison


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one file.

    Attributes:
        kind: The file that it is of: rule-out, warning, ...
        since: First generation that has it.
        until: Last generation that has it; None for the newest.
        route: One of ROUTES; None annotates only.
        group: With ATTRIBUTE, the kind of group.
        rests_on: Sources.
    """

    id: str
    kind: str
    subjects: frozenset[str]
    since: int
    until: int | None
    when: When
    route: str | None
    group: str | None
    reason: str
    rests_on: tuple[str, ...]
    provenance: Mapping[str, Any]

    @property
    def decides(self) -> bool:
        """It gives a verdict; others add to it."""
        return self.route in VERDICTS

    @property
    def slot(self) -> Literal["verdict", "group"] | None:
        """What a subject has one of at most: a verdict, a group to look at it with. None: the rule adds to these."""
        return "verdict" if self.decides else "group" if self.route == ATTRIBUTE else None

    @property
    def route_text(self) -> str:
        """The route as reports print it: ATTRIBUTE(user)."""
        return "note" if self.route is None else f"{self.route}({self.group})" if self.group else self.route

    def in_generation(self, generation: int) -> bool:
        """Whether that generation has it."""
        return self.since <= generation and (self.until is None or generation <= self.until)

    @classmethod
    def of(cls, entry: Mapping[str, Any], kind: str) -> Rule:
        """From its entry in a rule file."""
        return cls(
            id=entry["id"],
            kind=kind,
            subjects=frozenset(entry["subjects"]),
            since=entry["generations"]["since"],
            until=entry["generations"]["until"],
            when=_when(entry["when"]),
            route=entry["route"],
            group=entry.get("group"),
            reason=entry["reason"],
            rests_on=tuple(entry["rests_on"]),
            provenance=entry["provenance"],
        )


def _when(entry: Mapping[str, Any]) -> When:
    if "all" in entry:
        return Condition("all", tuple(map(_when, entry["all"])))
    if "any" in entry:
        return Condition("any", tuple(map(_when, entry["any"])))
    value = entry["value"]
    return Comparison(
        entry["feature"], entry["op"], tuple(value) if isinstance(value, list) else value, entry.get("unit")
    )


def comparisons(when: When) -> Iterable[Comparison]:
    """Every comparison of a condition."""
    if isinstance(when, Comparison):
        return (when,)
    return itertools.chain.from_iterable(map(comparisons, when.parts))


def alternatives(when: When) -> list[tuple[Comparison, ...]]:
    """The condition as alternatives, each a list of comparisons that must all be true (disjunctive normal form)."""
    if isinstance(when, Comparison):
        return [(when,)]
    parts = [alternatives(part) for part in when.parts]
    if when.how == "any":
        return [one for part in parts for one in part]
    return [tuple(itertools.chain.from_iterable(chosen)) for chosen in itertools.product(*parts)]
