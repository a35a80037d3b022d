"""Numbers that no record has, between the lowest and the highest job id that was submitted in a covered time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

FEDERATION_SHIFT = 26
"""In a federation the bits from here on are the number of the cluster that gave out the id (Slurm's MAX_JOB_ID is
2^26 - 1), so ids are dense only below them."""

WHY_ABSENT = (
    "refused submissions, jobs that were purged or hidden, and a controller that crashed use up ids too"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobIds:
    """Raw ids of one cluster.

    Attributes:
        lowest: Of the jobs that were submitted in a covered time.
        highest: Likewise.
        known: Different ids in the records, from `lowest` to `highest`.
        absent: Ids between the two that no record has. A sign, no proof: see WHY_ABSENT.
    """

    lowest: int
    highest: int
    known: int
    absent: int


def job_ids(runs: pd.DataFrame, cluster: str, spans: Sequence[tuple[int, int]]) -> JobIds | None:
    """Count the ids of one cluster; None if nothing of it was submitted in a covered time.

    Args:
        runs: Columns cluster, job_id_raw, submit.
        cluster: Its name.
        spans: Half-open times that the imports cover completely.
    """
    mine = runs[runs["cluster"] == cluster]
    submit = mine["submit"].fillna(-1).to_numpy(dtype=np.int64)
    covered = np.zeros(len(mine), dtype=bool)
    for since, until in spans:
        covered |= (submit >= since) & (submit < until)
    raw = np.unique(mine["job_id_raw"].to_numpy(dtype=np.int64))
    inside = np.unique(mine["job_id_raw"].to_numpy(dtype=np.int64)[covered])
    if not len(inside):
        return None
    known = absent = 0
    for origin in np.unique(inside >> FEDERATION_SHIFT):
        dense = inside[inside >> FEDERATION_SHIFT == origin]
        have = np.searchsorted(raw, dense[-1], "right") - np.searchsorted(raw, dense[0])
        known += int(have)
        absent += int(dense[-1] - dense[0] + 1 - have)
    return JobIds(int(inside[0]), int(inside[-1]), known, absent)
