"""What is observed of runs and of groups, as columns for the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from slurm_trace.analysis.claims import Claim
from slurm_trace.analysis.envelope import Bools, Envelope
from slurm_trace.analysis.question import Question
from slurm_trace.analysis.rules.evaluate import Column
from slurm_trace.analysis.tracking import Status

STATUSES: tuple[Status, ...] = ("proven", "declared", "assumed")
"""In the order of the registry's values."""

_CONTRADICTIONS = ("elapsed_disagrees", "nodes_disagree", "alloc_changed", "shortened")
_TIMES = ("tz_assumed", "dst_fold", "dst_gap", "start_from_submit")
_LEASE_KINDS = {
    "more_than_recorded": ("lease_gpus_more", "lease_node_not_recorded"),
    "other_user": ("lease_uid",),
    "ends_apart": ("lease_opened_early", "lease_closed_early", "lease_closed_late", "lease_lost"),
    "incomplete": ("lease_nodes_missing", "lease_parts", "lease_gpus_fewer", "lease_gpus_unknown"),
}
"""Kinds of disagreement between leases and accounting, by the feature that they are summed up in."""


def observe_bounds(envelope: Envelope, question: Question, *, strict: bool = False) -> dict[str, Column]:
    """The bounds of runs: all that a verdict on a run rests on.

    Args:
        envelope: The bounds.
        question: The threshold, the basis and the margin.
        strict: Grant nothing that is not proven.

    Returns:
        Columns of shape (runs,).
    """
    bounded: Bools = envelope.bounded
    if strict:
        has = np.array([c.strict is not None for c in envelope.claims] or [False])
        bounded = envelope.release.proven & has[envelope.code]
    return _bound_columns(
        bounded,
        envelope.below(question.limit_flop, strict=strict),
        question,
        "strict" if strict else "default",
    )


def observe_runs(
    envelope: Envelope, question: Question, complete: Mapping[str, Status] | None = None
) -> dict[str, Column]:
    """All that accounting and leases tell of runs, the bound included.

    Args:
        envelope: The bounds.
        question: The threshold, the basis and the margin.
        complete: What stands behind records_complete, by cluster.

    Returns:
        Columns of shape (runs,); what is not known is NULL.
    """
    runs, release = envelope.runs, envelope.release
    ratio = envelope.magnitude() / float(question.threshold_flop)
    flagged = _Flags(runs["flags"])
    leased = runs["lease_end"].notna().to_numpy(dtype=bool) | runs["lease_gpus"].notna().to_numpy(dtype=bool)
    leased = leased | flagged.starts_with("lease_")
    columns = observe_bounds(envelope, question) | {
        "O01.count": _per_claim(envelope, lambda c: c.gpu_count),
        "O01.count_known": _per_claim(envelope, lambda c: c.gpu_count is not None).astype(bool),
        "O01.nodes": _nullable(runs["node_count"]),
        "O02.ratio": np.where(np.isfinite(ratio), ratio, np.nan),
        "O03.held_s": _known(release.held_s),
        "O03.held_known": release.known,
        "O03.recorded_s": _known(release.recorded_s),
        "O03.run_s": _known(release.run_s),
        "O04.proven": release.proven,
        "O04.runaway": release.runaway,
        **{
            f"{name}.status": _per_claim(envelope, lambda c, a=assumption: _status(c, a)).astype(np.int8)
            for name, assumption in (("O06", "gres_recorded"), ("O07", "labels_true"), ("O08", "confined"))
        },
        "O09.contradicts_itself": flagged.any_of(*_CONTRADICTIONS),
        "O09.identity_incomplete": flagged.any_of("identity_incomplete"),
        "O09.time_doubtful": flagged.any_of(*_TIMES),
        **{
            f"O12.{name}": np.where(leased, flagged.any_of(*kinds), -1).astype(np.int8)
            for name, kinds in _LEASE_KINDS.items()
        },
    }
    if complete is not None:
        clusters = runs["cluster"].astype("category")
        table = [STATUSES.index(complete[str(name)]) for name in clusters.cat.categories]
        columns["O05.complete"] = np.array([*table, -1], dtype=np.int8)[clusters.cat.codes]
    return columns


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


def _status(claim: Claim, assumption: str) -> int:
    status = claim.statuses.get(assumption)
    return -1 if status is None else STATUSES.index(status)


def _per_claim(envelope: Envelope, value: Any) -> Column:
    """A number for each claim, spread over its runs; None is NaN."""
    found = [value(claim) for claim in envelope.claims] or [None]
    table: Column = np.array([np.nan if v is None else float(v) for v in found])
    return table[envelope.code]


def _known(values: Column) -> Column:
    """Seconds with -1 for what is not known, as floats with NaN."""
    return np.where(values < 0, np.nan, values)


def _nullable(series: pd.Series[Any]) -> Column:
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


class _Flags:
    """The flags of runs: a few distinct texts."""

    def __init__(self, flags: pd.Series[Any]) -> None:
        texts = flags.astype("category")
        self._codes = texts.cat.codes.to_numpy()
        self._words = [str(text).split() for text in texts.cat.categories]

    def any_of(self, *flags: str) -> Bools:
        return self._spread([not set(flags).isdisjoint(words) for words in self._words])

    def starts_with(self, prefix: str) -> Bools:
        return self._spread([any(word.startswith(prefix) for word in words) for words in self._words])

    def _spread(self, hits: list[bool]) -> Bools:
        table: Bools = np.array([*hits, False], dtype=bool)  # the last place stands for -1, no text
        return table[self._codes]
