"""The summary of a run of the corpus."""

from __future__ import annotations

from collections import Counter
from typing import Any

from slurm_trace.analysis.corpus.design import size
from slurm_trace.analysis.corpus.families import FAMILIES
from slurm_trace.analysis.corpus.judge import site_verdict
from slurm_trace.analysis.corpus.runner import Case, Outcome

SCHEMA = "slurm-trace/corpus/1"

QUALIFIER = (
    "A match rate here is internal consistency, not detection: the sites are constructed around the same constants "
    "that the evaluator compares with, and what is expected of them is what an earlier evaluator said. How many "
    "instances a family has is a choice of the design, so no figure here has a base rate or is a denominator of "
    "performance. What the corpus shows is where the surface of decisions lies, that it has not moved, and that no "
    "bound falls below the operations that a simulated site performed."
)

CASES_SHOWN = 20


def summary(outcome: Outcome, most: int | None) -> dict[str, Any]:
    """Figures of a run by family and in all, and the first cases that differ."""
    by_family: dict[str, list[Case]] = {}
    for case in outcome.cases:
        by_family.setdefault(case.instance.family, []).append(case)
    changed = Counter(change.instance.family for change in outcome.changes or ())
    compared = outcome.changes is not None
    violations = [(case, answer) for case in outcome.cases for answer in case.violations]
    return {
        "schema": SCHEMA,
        "what_it_shows": QUALIFIER,
        "seed": outcome.seed,
        "most_of_a_family": most,
        "families": [
            {
                "name": family.name,
                "about": family.about,
                "design": family.count,
                "instances": size(family, most),
                **_figures(by_family.get(family.name, [])),
                "changed": changed[family.name] if compared else None,
            }
            for family in FAMILIES
        ],
        "total": {
            "design": sum(family.count for family in FAMILIES),
            "instances": len(outcome.cases),
            **_figures(outcome.cases),
            "changed": len(outcome.changes or ()) if compared else None,
        },
        "match_rate": _match_rate(outcome),
        "holds": outcome.holds,
        "inputs": outcome.digests,
        "changed": [change.plain() for change in (outcome.changes or ())[:CASES_SHOWN]],
        "not_one_sided": [
            {"id": case.instance.id, "kind": answer.kind, "key": answer.key, "why": answer.below}
            for case, answer in violations[:CASES_SHOWN]
        ],
        "not_as_intended": [
            {
                "id": case.instance.id,
                "varies": dict(case.instance.site.varies),
                "intended": case.instance.site.intended,
                "found": site_verdict(case.answers),
            }
            for case in outcome.cases
            if case.as_intended is False
        ][:CASES_SHOWN],
    }


def _match_rate(outcome: Outcome) -> float | None:
    """Share of the instances whose every route is the expected one."""
    if outcome.changes is None or not outcome.cases:
        return None
    return 1 - len(outcome.changes) / len(outcome.cases)


def _figures(cases: list[Case] | tuple[Case, ...]) -> dict[str, Any]:
    answers = [answer for case in cases for answer in case.answers]
    verdicts = Counter(site_verdict(case.answers) or "NO_RUN_STARTED" for case in cases)
    return {
        "runs": sum(len(case.instance.site.runs) for case in cases),
        "verdicts": dict(sorted(verdicts.items())),
        "warned": sum("WARN" in a.beside for a in answers),
        "simulated": sum(a.true_flop is not None for a in answers),
        "not_one_sided": sum(bool(a.below) for a in answers),
        "not_as_intended": sum(case.as_intended is False for case in cases),
    }
