"""The design of the corpus: which families there are, how many instances of each, and that all of it is sound."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slurm_trace.analysis.corpus.anchors import Anchors
from slurm_trace.analysis.corpus.draw import Draw
from slurm_trace.analysis.corpus.families import FAMILIES
from slurm_trace.analysis.corpus.site import Family, Site

DEFAULT_SEED = 20261130

LEAST_FAMILIES, LEAST_INSTANCES = 24, 20_000
"""A corpus with fewer is not the one that was designed."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One site of the corpus."""

    family: str
    number: int
    site: Site

    @property
    def id(self) -> str:
        """Its name in every file."""
        return f"{self.family}/{self.number:04}"

    def line(self) -> str:
        """Its inputs as one line of JSON."""
        return compact({"id": self.id, **self.site.plain()})


def compact(document: Any) -> str:
    """JSON in one spelling."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def size(family: Family, most: int | None) -> int:
    """Instances of a family, at most so many."""
    return family.count if most is None else min(family.count, most)


def instances(seed: int, anchors: Anchors, most: int | None = None) -> Iterator[Instance]:
    """The corpus of a seed; with `most`, only the first so many instances of each family."""
    for family in FAMILIES:
        for number in range(size(family, most)):
            yield Instance(family.name, number, family.make(Draw(seed, family.name, number), number, anchors))


def digests(lines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """SHA-256 of all lines of each family, from pairs of family and line."""
    found: dict[str, Any] = {}
    for family, line in lines:
        found.setdefault(family, hashlib.sha256()).update(line.encode() + b"\n")
    return {family: digest.hexdigest() for family, digest in found.items()}


def self_check(seed: int, anchors: Anchors, most: int | None = None) -> list[str]:
    """What is wrong with the design; an empty list if nothing is."""
    problems = []
    total = sum(family.count for family in FAMILIES)
    if len(FAMILIES) < LEAST_FAMILIES:
        problems.append(f"{len(FAMILIES)} families, {LEAST_FAMILIES} are the least")
    if total < LEAST_INSTANCES:
        problems.append(f"{total} instances, {LEAST_INSTANCES} are the least")
    names = Counter(family.name for family in FAMILIES)
    problems += [f"family {name} is there {n} times" for name, n in names.items() if n > 1]
    once, again = (list(instances(seed, anchors, most)) for _ in range(2))
    ids = Counter(one.id for one in once)
    problems += [f"instance {name} is there {n} times" for name, n in ids.items() if n > 1]
    first, second = (digests((one.family, one.line()) for one in made) for made in (once, again))
    problems += [f"family {name}: made twice, it differs" for name in first if first[name] != second[name]]
    empty = [one.id for one in once if not one.site.runs]
    problems += [f"instance {name} has no run" for name in empty]
    return problems
