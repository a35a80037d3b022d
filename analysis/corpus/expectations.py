"""The routes that are expected of the corpus, and where a run of it differs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from slurm_trace.analysis.corpus.design import Instance, digests
from slurm_trace.analysis.corpus.judge import Judged

EXPECTED_FILE = "expected.json"
SCHEMA = "slurm-trace/corpus-expected/1"

LETTERS = {"RULED_OUT": "R", "NOT_RULED_OUT": "N", "INSUFFICIENT": "I"}
KINDS = {f"ATTRIBUTE({kind})": kind[0] for kind in ("family", "lineage", "user", "account")}


@dataclass(frozen=True, slots=True)
class Change:
    """A case whose route is not the expected one."""

    instance: Instance
    expected: str
    found: str

    def plain(self) -> dict[str, Any]:
        """The case in full."""
        return {
            "id": self.instance.id,
            "varies": dict(self.instance.site.varies),
            "expected": self.expected,
            "found": self.found,
            "site": self.instance.site.plain(),
        }


def route_text(answers: Sequence[Judged]) -> str:
    """Every route of an instance as a short text.

    A run or a group is verdict and strict verdict by their first letters, then `!` for a record that was never closed,
    `w` for a warning, `flua` for an attribution to its family, lineage, user and account, and the verdict together with
    a base model. Equal neighbours are counted: `RN*3,NNw; cluster NN; user RR,NI+N`.
    """
    kinds = dict.fromkeys(answer.kind for answer in answers)
    parts = []
    for kind in kinds:
        codes = [_code(answer) for answer in sorted_answers(answers, kind)]
        runs = [(code, len(list(same))) for code, same in groupby(codes)]
        text = ",".join(code if n == 1 else f"{code}*{n}" for code, n in runs)
        parts.append(text if kind == "run" else f"{kind} {text}")
    return "; ".join(parts)


def sorted_answers(answers: Sequence[Judged], kind: str) -> list[Judged]:
    """The answers of one kind: runs in the order of the site, groups by name."""
    mine = [answer for answer in answers if answer.kind == kind]
    return mine if kind == "run" else sorted(mine, key=lambda answer: answer.key)


def _code(answer: Judged) -> str:
    warned = "w" if "WARN" in answer.beside else ""
    attributed = "".join(KINDS[text] for text in answer.beside if text in KINDS)
    open_end = "!" if answer.runaway else ""
    with_base = "" if answer.with_base is None else "+" + LETTERS[answer.with_base]
    return (
        LETTERS[answer.verdict] + LETTERS[answer.verdict_strict] + open_end + warned + attributed + with_base
    )


@dataclass(frozen=True, slots=True)
class Expectations:
    """What was found when the expectations were last written.

    Attributes:
        sites: SHA-256 of the sites of each family.
        routes: By family, the route of every instance in order.
    """

    seed: int
    sites: Mapping[str, str]
    routes: Mapping[str, Sequence[str]]

    def changes(self, found: Iterable[tuple[Instance, str]]) -> Iterator[Change]:
        """Every case that differs, one that is not expected at all included."""
        for instance, route in found:
            known = self.routes.get(instance.family, ())
            expected = known[instance.number] if instance.number < len(known) else "(not in the expectations)"
            if expected != route:
                yield Change(instance, expected, route)


@cache
def load_expectations() -> Expectations:
    """The committed expectations."""
    text = files("slurm_trace.schema.corpus").joinpath(EXPECTED_FILE).read_text(encoding="utf-8")
    return read(json.loads(text))


def read(document: Mapping[str, Any]) -> Expectations:
    """Expectations from the form in which they are kept (see `document`)."""
    families = document["families"]
    routes: dict[str, list[str]] = {}
    for name, entry in families.items():
        mine = routes[name] = [""] * entry["count"]
        for route, ranges in entry["routes"].items():
            for span in ranges.split():
                first, _, last = span.partition("-")
                for number in range(int(first), int(last or first) + 1):
                    mine[number] = route
    return Expectations(document["seed"], {name: entry["sites"] for name, entry in families.items()}, routes)


def document(seed: int, found: Sequence[tuple[Instance, str]]) -> dict[str, Any]:
    """Expectations in the form in which they are kept: by family and route, the numbers of the instances."""
    sites = digests((instance.family, instance.line()) for instance, _ in found)
    families: dict[str, Any] = {
        name: {"count": 0, "sites": digest, "routes": {}} for name, digest in sites.items()
    }
    for instance, route in found:
        entry = families[instance.family]
        entry["count"] += 1
        entry["routes"].setdefault(route, []).append(instance.number)
    for entry in families.values():
        entry["routes"] = {route: _spans(numbers) for route, numbers in sorted(entry["routes"].items())}
    return {"schema": SCHEMA, "seed": seed, "families": families}


def _spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as `0-4 7 9-12`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
