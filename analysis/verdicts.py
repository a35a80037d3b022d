"""What may be said of a bound: ruled out, not ruled out, or not enough to tell. Never that a threshold was exceeded.

The rules say it (`slurm_trace.analysis.rules`, schema/rules); here they are asked.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.question import ESTIMATES, Question, ceil_ratio, margin_of
from slurm_trace.analysis.rules.bounds import observe_bounds, observe_group_bounds
from slurm_trace.analysis.rules.evaluate import evaluate
from slurm_trace.analysis.rules.rule import INSUFFICIENT, NOT_RULED_OUT, RULED_OUT, VERDICTS
from slurm_trace.analysis.rules.ruleset import RuleSet
from slurm_trace.analysis.tracking import Status

__all__ = [
    "ESTIMATES",
    "INSUFFICIENT",
    "NOT_RULED_OUT",
    "RULED_OUT",
    "VERDICTS",
    "Question",
    "assumptions",
    "ceil_ratio",
    "group_verdict",
    "margin_of",
    "verdicts",
]


def verdicts(
    envelope: Envelope, question: Question, *, strict: bool = False, rules: RuleSet | None = None
) -> npt.NDArray[np.int8]:
    """The verdict of every run, as an index into VERDICTS.

    Args:
        envelope: The bounds.
        question: The threshold, the basis and the margin.
        strict: Grant nothing that is not proven.
        rules: The rules to follow; None for the current ones.
    """
    columns = observe_bounds(envelope, question, strict=strict)
    return evaluate(rules or RuleSet.load(), columns, verdicts_only=True).verdict


def group_verdict(
    bound: int | None,
    question: Question,
    *,
    open_reasons: int = 0,
    complete: Status = "assumed",
    strict: bool = False,
    rules: RuleSet | None = None,
) -> str:
    """The verdict on a group.

    Args:
        bound: The most that it can have done (strict: granting nothing); None if there is no bound.
        question: The threshold, the basis and the margin.
        open_reasons: Number of reasons why a run may be missing from it, or one in it has no bound.
        complete: What stands behind records_complete.
        strict: The bound is of the strict reading.
        rules: The rules to follow; None for the current ones.
    """
    # The rules see no more of a bound than whether it is below the limit, so that a few cases stand for every group.
    case = None if bound is None else (0 if bound < question.limit_flop else question.limit_flop)
    return _group_verdict(rules or RuleSet.load(), case, question, open_reasons, complete, strict)


@lru_cache(maxsize=1024)
def _group_verdict(
    rules: RuleSet, bound: int | None, question: Question, open_reasons: int, complete: Status, strict: bool
) -> str:
    columns = observe_group_bounds([bound], [open_reasons], [complete], question, strict=strict)
    return evaluate(rules, columns, "group", verdicts_only=True).verdict_of(0)


def assumptions(envelope: Envelope, i: int, records_complete: Status) -> list[dict[str, str]]:
    """Everything the verdict on run i rests on, with what stands behind it."""
    statuses: dict[str, Status] = {
        "records_complete": records_complete,
        "records_unaltered": "assumed",
        **envelope.claim(i).statuses,
        "released_at_end": "proven" if envelope.release.proven[i] else "assumed",
        "units_left_out": "assumed",
    }
    return [{"id": name, "status": status} for name, status in statuses.items()]
