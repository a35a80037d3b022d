"""What the groups that a run belongs to mean for it: runs are split over jobs, and a small one may be part of more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.exact import Ints
from slurm_trace.analysis.groups import Grouping
from slurm_trace.analysis.memberships import By
from slurm_trace.analysis.people import NOBODY
from slurm_trace.analysis.rules.evaluate import Column
from slurm_trace.analysis.rules.rule import VERDICTS
from slurm_trace.analysis.rules.ruleset import RuleSet

KINDS: tuple[By, ...] = ("family", "lineage", "user", "account")
"""Kinds of groups that a run is attributed to, the narrowest first."""


def observe_membership(
    grouping: Grouping, verdict: npt.NDArray[np.int8], positions: Ints | None = None
) -> dict[str, Column]:
    """Observe what runs are part of.

    Args:
        grouping: The question to groups of all the runs that it is about.
        verdict: The verdict on each run by itself, as an index into VERDICTS; shape (runs,).
        positions: Only these runs are wanted; None for all. What is said of others is then of no use.

    Returns:
        Columns of shape (runs,).
    """
    size, own = len(grouping.envelope), RuleSet.load().features["O11.verdict"].values
    named = np.array([label != NOBODY for label in grouping.labels] or [False])
    jobs = np.bincount(grouping.person, minlength=len(named))[grouping.person]
    user_jobs = np.full(size, np.nan)
    user_jobs[grouping.rows] = np.where(named[grouping.person], jobs, np.nan)
    columns: dict[str, Column] = {
        "O11.verdict": np.array([own.index(name) for name in VERDICTS], dtype=np.int8)[verdict],
        "O11.user_jobs": user_jobs,
    }
    of_people, of_accounts = (grouping, grouping) if positions is None else _near(grouping, positions)
    for by in KINDS:
        reaches = np.zeros(size, dtype=bool)
        reaches[(of_accounts if by == "account" else of_people).groups(by).reaching] = True
        columns[f"O11.{by}_reaches"] = reaches
    return columns


def _near(grouping: Grouping, positions: Ints) -> tuple[Grouping, Grouping]:
    """Every run of the people of these runs, who have their families and lineages whole; and of their accounts."""
    wanted, person = np.isin(grouping.rows, positions), grouping.person
    values = grouping.envelope.runs["account"].iloc[grouping.rows].astype("category")
    account = values.cat.codes.to_numpy()
    return (
        grouping.among(np.isin(person, person[wanted])),
        grouping.among(np.isin(account, account[wanted])),
    )
