"""What is observed of runs and of groups beside their bounds, as columns for the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from slurm_trace.analysis.claims import Claim
from slurm_trace.analysis.energy import ERROR_PCT, board_watts
from slurm_trace.analysis.envelope import Bools, Envelope
from slurm_trace.analysis.feed import AccountLine
from slurm_trace.analysis.groups import Group, Records
from slurm_trace.analysis.question import Question, ceil_ratio
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.rules.bounds import STATUSES, observe_bounds, observe_group_bounds
from slurm_trace.analysis.rules.evaluate import Column
from slurm_trace.analysis.tracking import Status

_CONTRADICTIONS = ("elapsed_disagrees", "nodes_disagree", "alloc_changed", "shortened")
_TIMES = ("tz_assumed", "dst_fold", "dst_gap", "start_from_submit")
_LEASE_KINDS = {
    "more_than_recorded": ("lease_gpus_more", "lease_node_not_recorded"),
    "other_user": ("lease_uid",),
    "ends_apart": ("lease_opened_early", "lease_closed_early", "lease_closed_late", "lease_lost"),
    "incomplete": ("lease_nodes_missing", "lease_parts", "lease_gpus_fewer", "lease_gpus_unknown"),
}
"""Kinds of disagreement between leases and accounting, by the feature that they are summed up in."""


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
    columns["O19.rung"] = _rungs(envelope)
    if complete is not None:
        clusters = runs["cluster"].astype("category")
        table = [STATUSES.index(complete[str(name)]) for name in clusters.cat.categories]
        columns["O05.complete"] = np.array([*table, -1], dtype=np.int8)[clusters.cat.codes]
    return columns


def observe_samples(envelope: Envelope, summaries: pd.DataFrame, rates: Rates) -> dict[str, Column]:
    """What samples and counters of the nodes tell of runs.

    Args:
        envelope: The bounds.
        summaries: Figures of the runs that have leases, by run id (see the store's `load_summaries`).
        rates: The registry of device rates, for the board power of cards.

    Returns:
        Columns of shape (runs,); NaN for runs without leases and for what their devices do not tell.
    """
    of_run = summaries.reindex(envelope.runs["run_id"].to_numpy(dtype=np.int64))
    seen = {name: of_run[name].to_numpy(dtype=np.float64) for name in of_run.columns}
    own = _per_claim(envelope, lambda c: c.gpu_count)
    held_s = _known(envelope.release.held_s)
    held_ms = 1000.0 * np.fmax(seen["gpus"], own) * held_s
    most_mj = _per_claim(envelope, lambda c: board_watts(c, rates)) * held_s * (1000 + 10 * ERROR_PCT)
    return {
        "O13.share": np.minimum(_over(seen["covered_ms"], held_ms), 1.0),
        "O14.mean_percent": _over(seen["utilization_pct_ms"], seen["utilization_ms"]),
        "O14.top_percent": seen["utilization_max_pct"],
        "O15.top_over_max": _over(seen["sm_clock_top_mhz"], seen["sm_clock_max_mhz"]),
        "O16.top_mw": seen["power_max_mw"],
        "O17.energy_j": seen["energy_mj"] / 1000.0,
        "O17.over_allocation": _over(seen["energy_mj"], most_mj),
        "O17.resets": seen["energy_resets"],
        "O18.top_bytes": seen["memory_used_max_bytes"],
        "O21.most": seen["process_max"],
    }


def observe_groups(groups: Sequence[Group], question: Question, records: Records) -> dict[str, Column]:
    """All that is known of groups.

    Args:
        groups: The groups.
        question: The threshold, the basis and the margin.
        records: What is known of the records as a whole.

    Returns:
        Columns of shape (groups,).
    """
    clusters = [[g.key] if g.by == "cluster" else sorted(records.complete) for g in groups]
    # A row that names no cluster may be of any.
    rejected = [sum(records.rejected.get(c, 0) for c in (*names, None)) for names in clusters]
    return observe_group_bounds(
        [g.bound_flop for g in groups],
        [len(g.reasons) for g in groups],
        [g.records_complete for g in groups],
        question,
    ) | {
        "O02.ratio": _floats([g.ratio for g in groups]),
        "O05.rejected_rows": np.array(rejected, dtype=np.int64),
        "O05.gaps": np.array(
            [sum(len(records.complete[c].gaps) for c in names) for names in clusters], dtype=np.int64
        ),
        "O10.members": np.array([g.jobs for g in groups], dtype=np.int64),
        "O10.users": np.array([g.users for g in groups], dtype=np.int64),
        "O10.fewest_jobs": _floats([g.fewest_jobs for g in groups]),
        "O10.fewest_users": _floats([g.fewest_users for g in groups]),
        **_between_leases(groups, question),
    }


def observe_accounts(
    accounts: Sequence[AccountLine], question: Question, complete: Status
) -> dict[str, Column]:
    """All that a provider's feed tells of its accounts.

    Args:
        accounts: The accounts.
        question: The threshold, the basis and the margin.
        complete: What stands behind records_complete of the feeds.

    Returns:
        Columns of shape (accounts,).
    """
    bounds = [line.bound for line in accounts]
    peculiar = [line.peculiar for line in accounts]
    return observe_group_bounds(
        [None if bound.reasons else bound.bound_flop for bound in bounds],
        [len(bound.reasons) for bound in bounds],
        [complete] * len(bounds),
        question,
    ) | {
        "O02.ratio": _floats([bound.ratio for bound in bounds]),
        "O20.hours": _floats([bound.hours for bound in bounds]),
        "O20.beyond_period": _floats([one.beyond_period for one in peculiar]),
        "O20.unmetered": _floats([one.unmetered for one in peculiar]),
        "O20.unlisted": _floats([one.unlisted for one in peculiar]),
    }


def _between_leases(groups: Sequence[Group], question: Question) -> dict[str, Column]:
    """Use of cards that no run accounts for, of the groups that hold it; of others nobody knows whose it is."""
    seen = [g.unattributed_flop if g.by in ("all", "cluster") else None for g in groups]
    return {
        "O22.of_threshold": _floats([question.ratio(flop) for flop in seen]),
        "O22.of_bound": _floats(
            [
                ceil_ratio(flop, g.bound_flop) if flop is not None and g.bound_flop else None
                for flop, g in zip(seen, groups, strict=True)
            ]
        ),
    }


def _rungs(envelope: Envelope) -> Column:
    """The lowest rung that the bound of each run makes use of, as a code."""
    found = np.zeros(len(envelope), dtype=np.int8)
    if envelope.ladder is not None:
        np.maximum.at(found, envelope.ladder.run, envelope.ladder.rung.astype(np.int8))
    return found


def _status(claim: Claim, assumption: str) -> int:
    status = claim.statuses.get(assumption)
    return -1 if status is None else STATUSES.index(status)


def _per_claim(envelope: Envelope, value: Any) -> Column:
    """A number for each claim, spread over its runs; None is NaN."""
    found = [value(claim) for claim in envelope.claims] or [None]
    table: Column = np.array([np.nan if v is None else float(v) for v in found])
    return table[envelope.code]


def _floats(values: Sequence[float | None]) -> Column:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _over(part: Column, whole: Column) -> Column:
    """The quotient, NaN where there is nothing to divide by."""
    found: Column = np.full(len(part), np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return found


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
