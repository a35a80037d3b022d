"""The rules of one generation, checked as a whole when they are loaded."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from typing import Any

from slurm_trace.analysis import registry
from slurm_trace.analysis.rules.documents import Document, Place, packaged, read
from slurm_trace.analysis.rules.observables import Feature, Observables
from slurm_trace.analysis.rules.overlap import can_both_fire
from slurm_trace.analysis.rules.rule import RULED_OUT, Comparison, Condition, Rule, Subject, When, comparisons
from slurm_trace.errors import UsageProblem, unreadable

MOST_ALTERNATIVES = 256
"""Of one condition; more than a reader can follow, and the check for overlaps takes them in pairs."""

_ORDERED = frozenset({"lt", "le", "gt", "ge"})


@dataclass(frozen=True, slots=True)
class Precedence:
    """Where several rules fire that exclude each other, `first` decides over the others."""

    id: str
    first: str
    over: tuple[str, ...]
    reason: str
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Generation:
    """What one generation of rules changed."""

    generation: int
    evaluator: str
    revision: str
    changes: str


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """Rules of one generation.

    Attributes:
        rules: All of them; those that give verdicts or name a group first, a later one deciding over an earlier one.
        default: Verdict where no rule gives one.
        digest: SHA-256 over the canonical JSON of every file, the observables and the sources included.
    """

    generation: Generation
    rules: tuple[Rule, ...]
    precedence: tuple[Precedence, ...]
    default: str
    default_reason: str
    digest: str
    features: Mapping[str, Feature]

    @classmethod
    def load(cls, generation: int | None = None, folder: Path | None = None) -> RuleSet:
        """The built-in rules, with a site's own beside them.

        Args:
            generation: Which one; None for the current one.
            folder: Files of the same names as the built-in ones, each with further rules.

        Raises:
            InputProblem: A file is wrong; the message names it and the line.
            UsageProblem: There is no such generation.
        """
        return _load(generation, folder) if folder else _builtin(generation)

    def of(self, subject: Subject) -> tuple[Rule, ...]:
        """The rules that speak of a run, or of a group."""
        return tuple(rule for rule in self.rules if subject in rule.subjects)


def generations() -> list[Generation]:
    """All generations, oldest first."""
    return [Generation(**one) for one in _index().value["generations"]]


def _index() -> Document:
    return read(packaged("rules").joinpath("index.json"), "slurm-trace/rules-index/1", "files")


@cache
def _builtin(generation: int | None) -> RuleSet:
    return _load(generation, None)


@dataclass(slots=True)
class _Read:
    """Everything that was read, each entry with the place where it stands."""

    rules: list[tuple[Rule, Place]] = field(default_factory=list)
    precedence: list[tuple[Precedence, Place]] = field(default_factory=list)
    default: Mapping[str, str] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)

    def add(self, file: Traversable, kind: str, name: str | None) -> None:
        """Read one file; `name` is how messages name it."""
        if kind != "precedence":
            document = read(file, "slurm-trace/rules/1", "rules", name)
            self.rules += _rules(document, kind)
        else:
            document = read(file, "slurm-trace/precedence/1", "precedence", name)
            self.precedence += [
                (Precedence(**{**one, "over": tuple(one["over"])}), place)
                for one, place in zip(document.value["precedence"], document.places, strict=True)
            ]
            self.default = (
                self.default or document.value["when_none_fires"]
            )  # of the built-in file, read first
        self.values.append(document.value)


def _load(generation: int | None, folder: Path | None) -> RuleSet:
    index = _index().value
    known = {one.generation: one for one in generations()}
    wanted = index["current"] if generation is None else generation
    if wanted not in known:
        raise UsageProblem(f"no generation {wanted} of the rules: there are {', '.join(map(str, known))}")
    names = [entry["file"] for entry in index["files"]]
    if folder is not None:
        _check_folder(folder, names)
    found, observables = _Read(values=[index]), Observables.load()
    for entry in index["files"]:
        found.add(packaged("rules").joinpath(entry["file"]), entry["kind"], None)
        if folder is not None and (own := folder / entry["file"]).exists():
            found.add(own, entry["kind"], str(own))
    _check_ids(found.rules, found.precedence)
    for rule, place in found.rules:
        _check_rule(rule, place, observables)
    ordered = {number: _in_order(number, found, observables.features) for number in known}
    return RuleSet(
        generation=known[wanted],
        rules=tuple(ordered[wanted]),
        precedence=tuple(one for one, _ in found.precedence),
        default=found.default["route"],
        default_reason=found.default["reason"],
        digest=_digest([*found.values, observables.observables, observables.sources]),
        features=observables.features,
    )


def _check_folder(folder: Path, names: Sequence[str]) -> None:
    remedy = "name a folder of rule files with --rules"
    try:
        there = {path.name for path in folder.iterdir()}
    except (OSError, ValueError) as error:
        raise unreadable(folder, error, remedy) from error
    if there.isdisjoint(names):
        raise UsageProblem(f"{folder}: none of {', '.join(names)} is there; {remedy}")


def _rules(document: Document, kind: str) -> list[tuple[Rule, Place]]:
    told = document.value["kind"]
    if told != kind:
        raise document.whole.problem(f"kind {told!r} in a file of kind {kind!r}", near="kind")
    return [
        (Rule.of(one, kind), place)
        for one, place in zip(document.value["rules"], document.places, strict=True)
    ]


def _digest(values: Sequence[Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=registry.number_text)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_ids(placed: Sequence[tuple[Rule, Place]], ordered: Sequence[tuple[Precedence, Place]]) -> None:
    seen: dict[str, Place] = {}
    for name, place in [*((r.id, p) for r, p in placed), *((o.id, p) for o, p in ordered)]:
        if name in seen:
            raise place.problem(f"id {name!r} stands in {seen[name].name} too", "give it another one", name)
        seen[name] = place
    rules = {rule.id: rule for rule, _ in placed}
    for entry, place in ordered:
        for name in (entry.first, *entry.over):
            if name not in rules or rules[name].slot is None:
                raise place.problem(
                    f"precedence {entry.id!r}: {name!r} is no rule that gives a verdict or names a group",
                    near=name,
                )


def _check_rule(rule: Rule, place: Place, observables: Observables) -> None:
    if rule.until is not None and rule.until < rule.since:
        raise place.problem(f"rule {rule.id!r}: it ends before it begins", near="generations")
    if (rule.group is not None) != (rule.route == "ATTRIBUTE"):
        raise place.problem(f"rule {rule.id!r}: ATTRIBUTE, and no other route, names a group", near="route")
    if _alternatives(rule.when) > MOST_ALTERNATIVES:
        raise place.problem(
            f"rule {rule.id!r}: more than {MOST_ALTERNATIVES} alternatives", "split it", "when"
        )
    for source in rule.rests_on:
        if source not in observables.sources:
            raise place.problem(
                f"rule {rule.id!r}: no source {source!r} in the registry",
                "`slurm-trace rules sources` lists them",
                source,
            )
    for comparison in comparisons(rule.when):
        feature = observables.features.get(comparison.feature)
        if feature is None:
            raise place.problem(
                f"rule {rule.id!r}: no feature {comparison.feature!r} in the registry of observables",
                "`slurm-trace rules observables` lists them",
                comparison.feature,
            )
        fault = _fault(rule, comparison, feature)
        if fault:
            raise place.problem(f"rule {rule.id!r}: {comparison.feature}: {fault}", near=comparison.feature)
    if rule.route == RULED_OUT and not _is_proven(rule.when, observables.features):
        raise place.problem(
            f"rule {rule.id!r}: RULED_OUT without a bound that is below the limit",
            "make one of the features that prove it (O02.below_limit) a condition at the top of an `all`",
            "route",
        )


def _fault(rule: Rule, comparison: Comparison, feature: Feature) -> str | None:
    """What is wrong with one comparison; None if nothing is."""
    values = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
    if (comparison.op == "in") != isinstance(comparison.value, tuple):
        return "`in`, and no other operator, takes a list"
    if feature.kind == "number":
        if not all(_is_finite(v) for v in values):
            return "it is a number, and compared with something else, or with one that no float holds"
        if comparison.unit is None:
            return f"a threshold with no unit; its unit is {feature.unit!r}"
        if comparison.unit != feature.unit:
            return f"a threshold in {comparison.unit!r}; its unit is {feature.unit!r}"
    else:
        if comparison.op in _ORDERED:
            return f"{comparison.op!r} orders numbers, and it is none"
        allowed = (True, False) if feature.kind == "bool" else feature.values
        wrong = [v for v in values if v not in allowed or isinstance(v, bool) != (feature.kind == "bool")]
        if wrong:
            return f"it is never {wrong[0]!r}, but one of {', '.join(map(str, allowed))}"
        if comparison.unit is not None:
            return f"unit {comparison.unit!r} of something that has none"
    if not rule.subjects <= feature.subjects:
        return f"{' and '.join(sorted(rule.subjects - feature.subjects))} does not have it"
    if feature.after_verdict and rule.decides:
        return "it is worked out from verdicts, so that none may rest on it"
    if not set(feature.sources) & set(rule.rests_on):
        return f"it comes from {', '.join(feature.sources)}, and `rests_on` names none of them"
    return None


def _is_finite(value: object) -> bool:
    """A number that a float holds."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def _alternatives(when: When) -> int:
    if isinstance(when, Comparison):
        return 1
    counts = [_alternatives(part) for part in when.parts]
    return sum(counts) if when.how == "any" else math.prod(counts)


def _is_proven(when: When, features: Mapping[str, Feature]) -> bool:
    parts = when.parts if isinstance(when, Condition) and when.how == "all" else (when,)
    return any(
        isinstance(p, Comparison) and features[p.feature].proof and p.op == "is" and p.value is True
        for p in parts
    )


def _in_order(generation: int, found: _Read, features: Mapping[str, Feature]) -> list[Rule]:
    """Rules of one generation, of those that exclude each other the one that decides last; refused where none does."""
    placed = [(rule, place) for rule, place in found.rules if rule.in_generation(generation)]
    rules = {rule.id: rule for rule, _ in placed if rule.slot}
    before: dict[str, set[str]] = {name: set() for name in rules}
    for entry, place in found.precedence:
        if entry.first in rules:
            before[entry.first].update(name for name in entry.over if name in rules)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            circle = " before ".join(reversed(error.args[1]))
            raise place.problem(
                f"precedence {entry.id!r} closes a circle: {circle}", "take one of them out"
            ) from error
    for (one, _), (other, place) in combinations([(r, p) for r, p in placed if r.slot], 2):
        if (
            one.slot == other.slot
            and one.route_text != other.route_text
            and one.subjects & other.subjects
            and other.id not in before[one.id]
            and one.id not in before[other.id]
            and can_both_fire(one.when, other.when, features)
        ):
            raise place.problem(
                f"rule {other.id!r} ({other.route_text}) and rule {one.id!r} ({one.route_text}) can both be true",
                "let one of them decide in precedence.json, or make them exclude each other",
                other.id,
            )
    order = TopologicalSorter(before).static_order()
    return [*(rules[name] for name in order), *(rule for rule, _ in placed if not rule.slot)]
