"""Bounds of runs and of groups as columns: all that their verdicts rest on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_trace.analysis.envelope import Bools, Envelope
from slurm_trace.analysis.question import Question
from slurm_trace.analysis.rules.evaluate import Column
from slurm_trace.analysis.tracking import Status

STATUSES: tuple[Status, ...] = ("proven", "declared", "assumed")
"""In the order of the registry's values."""


def observe_bounds(envelope: Envelope, question: Question, *, strict: bool = False) -> dict[str, Column]:
    """The bounds of runs: all that a verdict on a run rests on.

    Args:
        envelope: The bounds.
        question: The threshold, the basis and the margin.
        strict: Grant nothing that is not proven.

    Returns:
        Columns of shape (runs,).
    """
    bounded = envelope.strictly_bounded if strict else envelope.bounded
    return _bound_columns(
        bounded,
        envelope.below(question.limit_flop, strict=strict),
        question,
        "strict" if strict else "default",
    )


def observe_group_bounds(
    bounds: Sequence[int | None],
    open_reasons: Sequence[int],
    complete: Sequence[Status],
    question: Question,
    *,
    strict: bool = False,
) -> dict[str, Column]:
    """The bounds of groups: all that a verdict on a group rests on.

    Args:
        bounds: The most that a group can have done (strict: granting nothing); None where there is no bound.
        open_reasons: Number of reasons why a run may be missing from it, or one in it has no bound.
        complete: What stands behind records_complete.
        question: The threshold, the basis and the margin.
        strict: The bounds are of the strict reading.

    Returns:
        Columns of shape (groups,).
    """
    limit = question.limit_flop
    bounded = np.array([bound is not None for bound in bounds], dtype=bool)
    below = np.array([bound is not None and bound < limit for bound in bounds], dtype=bool)
    return _bound_columns(bounded, below, question, "strict" if strict else "default") | {
        "O05.open_reasons": np.array(open_reasons, dtype=np.int64),
        "O05.complete": np.array([STATUSES.index(status) for status in complete], dtype=np.int8),
    }


def _bound_columns(bounded: Bools, below: Bools, question: Question, reading: str) -> dict[str, Column]:
    size = len(bounded)
    return {
        "O02.bounded": bounded,
        "O02.below_limit": below & bounded,
        "O02.estimate": np.broadcast_to(np.array(question.estimate), (size,)),
        "O02.reading": np.broadcast_to(
            np.array(("default", "strict").index(reading), dtype=np.int8), (size,)
        ),
    }
