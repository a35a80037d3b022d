"""Runs as the analysis sees them, without a store: for groups of a few runs that a test describes by what differs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from slurm_trace.analysis.capacity import Inventory
from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.envelope import Envelope, envelope
from slurm_trace.analysis.groups import NO_TERMS, Grouping, Terms
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.records import Records
from slurm_trace.analysis.verdicts import Question
from slurm_trace.site.profile import load_profile

T0 = 1_700_000_000
TEXTS = ("cluster", "user", "account", "state", "node_list", "source", "flags", "name", "work_dir")
NUMBERS = (
    "submit", "start", "end", "elapsed_s", "suspended_s", "limit_s", "step_end", "step_count", "queried_at",
    "lease_end", "lease_gpus", "lease_covered_ms", "uid", "node_count", "cpu_count", "array_job_id", "het_job_id",
    "allocation",
)  # fmt: skip


@cache
def rates() -> Rates:
    """The registry, read once."""
    return Rates.load(None)


def frame(*runs: dict[str, Any]) -> pd.DataFrame:
    """A row for each; `at` is its start from T0 and `held` its length, in seconds."""
    rows = []
    for n, given in enumerate(runs, start=1):
        changes = dict(given)
        start, run_s = T0 + changes.pop("at", 0), changes.pop("held", 3600)
        raw = changes.get("job_id_raw", n)
        rows.append(
            {
                "run_id": n, "cluster": "c", "job_id_raw": raw, "job_id": str(raw), "submit": start, "start": start,
                "end": start + run_s, "elapsed_s": run_s, "suspended_s": 0, "limit_s": 10**6, "step_end": start + run_s,
                "step_count": 1, "uid": 1000, "node_count": 1, "cpu_count": 64, "user": "ada", "account": "lab",
                "state": "COMPLETED", "node_list": "n1", "source": "text", "flags": "", "final": True, "started": True,
                "allocation": 8, "release_proven": False, "name": "train", "work_dir": "/home/ada",
            } | changes
        )  # fmt: skip
    table = pd.DataFrame(rows, columns=[*rows[0], *(n for n in NUMBERS if n not in rows[0])])
    for column in NUMBERS:
        table[column] = table[column].astype("Int64")
    for column in TEXTS:
        table[column] = table[column].astype("category")
    return table


def bounds(runs: pd.DataFrame) -> Envelope:
    """Their bounds; `allocation` is the number of H100 that a run got."""
    gpus = {int(n): n for n in runs["allocation"].dropna().unique()}
    allocations = {n: (f"billing=1,cpu=64,gres/gpu:h100={n},gres/gpu={n},node=1", None) for n in gpus}
    return envelope(
        runs, allocations, rates=rates(), site=load_profile(None), as_of=T0 + 10**8, basis="max_any_op"
    )


def grouping(
    *runs: dict[str, Any], threshold: int = 10**23, terms: Terms = NO_TERMS, **records: Any
) -> Grouping:
    """The question put to groups of these runs."""
    found = bounds(frame(*runs))
    clusters = found.runs["cluster"].dropna().unique()
    known = Records(
        **{
            "complete": {str(c): Completeness("assumed") for c in clusters},
            "rejected": {},
            "window": (None, None),
            "period": (T0, T0 + 10**8),
        }
        | records
    )
    inventory = Inventory(rates(), load_profile(None), "max_any_op", T0 + 10**8)
    question = Question(threshold, "max_any_op")
    return Grouping(found, np.ones(len(found), dtype=bool), question, known, inventory, terms)


def parts(grouping_: Grouping, by: str) -> list[set[int]]:
    """Raw ids by group, the largest group first."""
    from slurm_trace.analysis.memberships import memberships

    person = (grouping_.person, grouping_.labels)
    found = memberships(
        grouping_.envelope,
        grouping_.rows,
        by,  # type: ignore[arg-type]
        person,
        grouping_.terms.pause_s,
    )
    sets: dict[int, set[int]] = {}
    for code, raw in zip(found.codes.tolist(), grouping_.envelope.runs["job_id_raw"], strict=True):
        sets.setdefault(code, set()).add(int(raw))
    return sorted(sets.values(), key=lambda s: (-len(s), min(s)))
