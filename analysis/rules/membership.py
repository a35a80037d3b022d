"""What the groups that a run belongs to mean for it: runs are split over jobs, and a small one may be part of more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.exact import Bools, Ints
from slurm_trace.analysis.groups import Grouping
from slurm_trace.analysis.memberships import By
from slurm_trace.analysis.people import NOBODY, people
from slurm_trace.analysis.rules.evaluate import Column
from slurm_trace.analysis.rules.rule import VERDICTS
from slurm_trace.analysis.rules.ruleset import RuleSet

KINDS: tuple[By, ...] = ("family", "lineage", "user", "account")
"""Kinds of groups that a run is attributed to, the narrowest first."""


def observe_membership(
    envelope: Envelope,
    members: Bools,
    verdict: npt.NDArray[np.int8],
    ask: Callable[[Bools], Grouping],
    positions: Ints | None = None,
) -> dict[str, Column]:
    """Observe what runs are part of.

    Args:
        envelope: The bounds.
        members: Runs that the question is about.
        verdict: The verdict on each run by itself, as an index into VERDICTS.
        ask: Puts the question to groups of some runs.
        positions: Only these runs are wanted; None for all. What is said of others is then of no use.

    Returns:
        Columns of shape (runs,).
    """
    asked = members if positions is None else _near(envelope, members, positions)
    grouping = ask(asked)
    own = RuleSet.load().features["O11.verdict"].values
    user_jobs = np.full(len(envelope), np.nan)
    named = np.array([label != NOBODY for label in grouping.labels] or [False])
    jobs = np.bincount(grouping.person, minlength=len(named))[grouping.person]
    user_jobs[grouping.rows] = np.where(named[grouping.person], jobs, np.nan)
    columns: dict[str, Column] = {
        "O11.verdict": np.array([own.index(name) for name in VERDICTS], dtype=np.int8)[verdict],
        "O11.user_jobs": user_jobs,
    }
    for by in KINDS:
        reaches = np.zeros(len(envelope), dtype=bool)
        reaches[grouping.groups(by).reaching] = True
        columns[f"O11.{by}_reaches"] = reaches
    return columns


def _near(envelope: Envelope, members: Bools, positions: Ints) -> Bools:
    """Runs that share a person or an account with one of these, and so every group that one of them is in."""
    person, _ = people(envelope.runs[["cluster", "user", "uid"]])
    account = envelope.runs["account"].astype("category").cat.codes.to_numpy()
    same = np.isin(person, person[positions]) | np.isin(account, account[positions])
    return members & same
