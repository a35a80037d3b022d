"""The registries of observables and of sources: what may be asked of a run or a group, its unit, what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from slurm_trace.analysis import registry

Kind = Literal["bool", "enum", "number"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A value of an observable.

    Attributes:
        id: `O02.ratio`: observable and name.
        unit: Of a number; None otherwise.
        values: Of an enum, in the order of their codes.
        subjects: What has it: "run", "group".
        sources: The sources that it comes from.
        proof: True says that a one-sided bound is below the limit; nothing is ruled out without one.
        after_verdict: It is worked out from verdicts, so that no verdict may rest on it.
    """

    id: str
    kind: Kind
    what: str
    unit: str | None
    values: tuple[str, ...]
    subjects: frozenset[str]
    sources: tuple[str, ...]
    proof: bool
    after_verdict: bool


class Observables:
    """Both registries.

    Attributes:
        observables: Entries by id.
        sources: Entries by id.
        features: By id.
    """

    def __init__(self, sections: registry.Sections) -> None:
        self.observables: Mapping[str, registry.Entry] = sections["observables"]
        self.sources: Mapping[str, registry.Entry] = sections["sources"]
        self.features = {f.id: f for entry in self.observables.values() for f in _features(entry)}
        unknown = {s for f in self.features.values() for s in f.sources} - self.sources.keys()
        if unknown:
            raise ValueError(f"observables name sources that are not registered: {sorted(unknown)}")

    @classmethod
    @cache
    def load(cls) -> Observables:
        """The built-in registries."""
        return cls(registry.load(registry.OBSERVABLE_FILES, registry.OBSERVABLE_SECTIONS, None))


def _features(entry: registry.Entry) -> list[Feature]:
    return [
        Feature(
            id=f"{entry['id']}.{one['name']}",
            kind=one["kind"],
            what=one["what"],
            unit=one.get("unit"),
            values=tuple(one.get("values", ())),
            subjects=frozenset(one["subjects"]),
            sources=tuple(one.get("sources", entry["sources"])),
            proof=one.get("proof", False),
            after_verdict=one.get("after_verdict", False),
        )
        for one in entry["features"]
    ]
