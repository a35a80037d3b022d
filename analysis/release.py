"""When did a run let go of its hardware? The latest moment that the records leave open.

A job's End is when the controller wrote it off, not when its last process stopped: a process that ignores TERM, a job
killed while suspended and a node cut off from the controller all compute on. Every case here was seen on a real Slurm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.accounting.events import Event
from slurm_trace.accounting.nodes import expand
from slurm_trace.site.profile import ClusterProfile, SiteProfile

DEFAULT_GRACE_S = 90
"""KillWait (30 s) + UnkillableStepTimeout (60 s), Slurm's defaults (slurm.conf manual, 22.05 to 26.05)."""

DEFAULT_KILL_WAIT_S = 30
"""KillWait, Slurm's default."""

UNKNOWN_ZONE_SLACK_S = 3600
"""Without a zone and without Elapsed, a change to summer time can hide one hour of a run."""

LONGEST_S = 10**11
"""No run lasts 3,000 years, and no time lies in year 5000: a record that says so is no record of a time."""

RUNAWAY_LIMITS = 2
"""A run that claims to go on for more than this many of its own time limits is a record that was never closed."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TIMES = (
    "start", "end", "elapsed_s", "suspended_s", "limit_s", "step_end", "queried_at", "lease_end",
)  # fmt: skip

SETTLED, KILLED, NODE_LOST, LIMIT, QUERY, OPEN, NOTHING = range(7)
"""Why the release is what it is: codes in `Releases.why`."""

WHY = (
    "recorded end",
    "recorded end and the time Slurm may need to kill what is left",
    "until the failed node was back and its processes were gone",
    "the end is unknown: until the time limit",
    "up to the query",
    "the end is unknown",
    "never started",
)


@dataclass(frozen=True, slots=True)
class Releases:
    """One entry a run. `held_s` counts only where `known`; `recorded_s` is the part of it that has a record.

    Attributes:
        run_s: Elapsed, or what can be computed in its place; -1 where not given.
        held_s: Seconds from start to release, rounded up to whole seconds; -1 where not known.
        recorded_s: Seconds of `held_s` before the grace, the limit or the node event stretched it.
        known: The release is known.
        proven: No assumption was needed for it (released_at_end).
        runaway: A record that was never closed.
        why: Code into WHY.
        unclear: The record says that the run was over at once, and nothing bears it out.
        ordinary_s: `held_s` if it was an ordinary short run.
    """

    run_s: Ints
    held_s: Ints
    recorded_s: Ints
    known: Bools
    proven: Bools
    runaway: Bools
    why: npt.NDArray[np.int8]
    unclear: Bools
    ordinary_s: Ints

    def without_gpus(self, none: Bools) -> Releases:
        """The same where runs that had no GPU and were over at once are taken at their word."""
        plain = none & self.unclear & (self.ordinary_s >= 0)
        return replace(
            self,
            held_s=np.where(plain, self.ordinary_s, self.held_s),
            recorded_s=np.where(plain, np.minimum(self.ordinary_s, 1), self.recorded_s),
            known=self.known | plain,
            why=np.where(plain, np.where(self.ordinary_s > 1, KILLED, SETTLED), self.why).astype(np.int8),
        )


def _column(runs: pd.DataFrame, name: str) -> tuple[Ints, Bools]:
    """Values (0 where missing) and where they are given. NULL stays apart from 0."""
    series = runs[name]
    given = series.notna().to_numpy(dtype=bool)
    return series.fillna(0).to_numpy(dtype=np.int64), given


def _per_cluster(runs: pd.DataFrame, site: SiteProfile, value: Any) -> Ints:
    clusters = runs["cluster"].astype("category")
    table = np.array(
        [value(site.cluster(str(name))) for name in clusters.cat.categories] or [0], dtype=np.int64
    )
    return table[clusters.cat.codes.to_numpy()]


def kill_grace_s(profile: ClusterProfile) -> int:
    """Seconds in which Slurm may still be killing a run's processes; the larger of profile and defaults where open."""
    if profile.kill_wait_s is None or profile.unkillable_step_timeout_s is None:
        return max(DEFAULT_GRACE_S, (profile.kill_wait_s or 0) + (profile.unkillable_step_timeout_s or 0))
    return profile.kill_wait_s + profile.unkillable_step_timeout_s


class _Outages:
    """DOWN events by (cluster, node), to find out until when a failed run's nodes were lost."""

    def __init__(self, events: Sequence[Event], as_of: int) -> None:
        self._as_of = as_of
        self._by_node: dict[tuple[str, str], list[Event]] = {}
        for event in events:
            if event.node and "DOWN" in event.state.upper():
                self._by_node.setdefault((event.cluster, event.node), []).append(event)

    def lost_until(self, cluster: str, node_list: str | None, end: int, slack_s: int) -> int | None:
        """Until when the last of the nodes that failed at the run's end was down; None if no event tells.

        slurmdbd closes an event and opens another when the state or the reason of a node that is down changes. One that
        is still open lasts as far as is known.
        """
        try:
            nodes = expand(node_list) if node_list else ()
        except ValueError:
            return None
        found: list[int] = []
        for node in nodes:
            reached = end
            for event in sorted(self._by_node.get((cluster, node), ()), key=lambda e: e.start):
                until = max(event.start, self._as_of) if event.end is None else event.end
                if event.start <= reached + slack_s and until >= reached:
                    reached = until
                    found.append(until)
        return max(found, default=None)


def releases(runs: pd.DataFrame, site: SiteProfile, events: Sequence[Event], as_of: int) -> Releases:
    """The release of every run.

    Args:
        runs: Columns cluster, start, end, elapsed_s, suspended_s, limit_s, step_end, step_count, queried_at, state,
            node_list, source, flags, final, started, lease_end, release_proven (times in epoch seconds, nullable).
        site: KillWait and UnkillableStepTimeout by cluster.
        events: Node events; without any of a run's nodes a NODE_FAIL rests on an assumption.
        as_of: Epoch up to which the records speak; an event that is still open lasts until then.
    """
    absurd = np.zeros(len(runs), dtype=bool)
    for name in _TIMES:
        absurd |= (runs[name] > LONGEST_S).fillna(False).to_numpy(dtype=bool)
    start, has_start = _column(runs, "start")
    end, has_end = _column(runs, "end")
    elapsed, has_elapsed = _column(runs, "elapsed_s")
    suspended, has_suspended = _column(runs, "suspended_s")
    limit, has_limit = _column(runs, "limit_s")
    step_end, has_step = _column(runs, "step_end")
    lease_end, has_lease = _column(runs, "lease_end")
    steps, _ = _column(runs, "step_count")
    queried, has_query = _column(runs, "queried_at")
    started = runs["started"].to_numpy(dtype=bool)
    final = runs["final"].to_numpy(dtype=bool)
    state = runs["state"].astype("category")
    is_state = _matcher(state)
    finished_steps = has_step & (steps > 0)
    settled = final | _flagged(runs, "settling")

    # Everything below is relative to Start, so that a run without one still has its Elapsed.
    spans = [np.where(has_elapsed, elapsed + suspended, -1)]
    spans += [
        np.where(has_start & has_end, end - start, -1),
        np.where(has_start & has_step, step_end - start, -1),
    ]
    told: Ints = np.maximum.reduce(spans[1:])
    spans.append(np.where(has_start & has_lease, lease_end - start, -1))
    spans_running = [*spans, np.where(has_start & has_query, queried - start, -1)]
    span: Ints = np.maximum.reduce(spans)
    span_running: Ints = np.maximum.reduce(spans_running)
    run_s = np.where(has_elapsed, elapsed, np.where(has_start & has_end, np.maximum(end - start, 0), -1))

    recorded = np.where(settled, span, span_running)
    # A run that goes on does so until the query. Of a file that is Start + Elapsed + Suspended, so it takes all three.
    asked = has_start & has_query & (has_suspended | (queried - start > elapsed))
    known = (recorded >= 0) & np.where(
        settled, (has_start & has_end) | has_suspended, asked | (has_elapsed & has_suspended)
    )
    recorded = np.where(known, recorded + 1, -1)  # times are whole seconds, cut off
    slack = np.where(_flagged(runs, "tz_assumed") & ~has_elapsed & known, UNKNOWN_ZONE_SLACK_S, 0)
    recorded = recorded + slack
    held = recorded.copy()
    why = np.where(settled, SETTLED, QUERY).astype(np.int8)
    completed = is_state("COMPLETED")
    # Every node was done with the run when its lease closed; if the record has come to end later, that was not it.
    leased = (
        runs["release_proven"].to_numpy(dtype=bool) & has_start & has_lease & (~has_end | (lease_end >= end))
    )
    # Without the time in suspension the End of a run that was killed in it may be too early.
    proven = ~settled | leased | np.where(completed, finished_steps, has_suspended)

    failed = is_state("NODE_FAIL") & settled & known & ~leased
    # Without a state that is known, an End says that it ended, but not how.
    doubtful = ~settled & has_end & _flagged(runs, "state_unknown") & ~leased
    proven &= ~doubtful
    killed = (settled & ~completed | doubtful) & (~finished_steps | failed) & known & ~leased
    held = np.where(killed, held + _per_cluster(runs, site, kill_grace_s), held)
    why[killed] = KILLED

    proven &= ~failed
    if events:
        outages = _Outages(events, as_of)
        for i in np.flatnonzero(failed & has_start & has_end).tolist():
            cluster = str(runs["cluster"].iat[i])
            profile = site.cluster(cluster)
            until = outages.lost_until(
                cluster, _text(runs["node_list"].iat[i]), int(end[i]), kill_grace_s(profile)
            )
            if until is not None:
                kill_wait_s = DEFAULT_KILL_WAIT_S if profile.kill_wait_s is None else profile.kill_wait_s
                held[i] = max(int(held[i]), until + kill_wait_s - int(start[i]) + 1)
                why[i], proven[i] = NODE_LOST, True

    # A record closed by hand (sacctmgr show runaway) or by a clock that stepped back says nothing about the end.
    unclear = settled & (told <= 0) & (elapsed <= 0) & ~finished_steps & started & ~leased
    ordinary = np.where(unclear & known & ~absurd, held, -1)
    by_limit = unclear & (limit > 0)
    held = np.where(by_limit, np.maximum(held, limit + _per_cluster(runs, site, kill_grace_s) + 1), held)
    why[by_limit] = LIMIT
    proven = proven & ~unclear
    known = known & ~(unclear & ~by_limit)
    known = known & ~(is_state("PENDING") & started)  # half written: the start may still move
    known = known & (runs["source"].to_numpy() != "step") & ~absurd & (held <= LONGEST_S)
    why[~known] = OPEN

    open_ended = is_state("RUNNING", "SUSPENDED") & ~has_end & has_limit & (limit > 0)
    runaway = open_ended & (held > RUNAWAY_LIMITS * limit) & started

    why[~started] = NOTHING
    held = np.where(started, np.where(known, held, -1), 0)
    return Releases(
        run_s=np.where(started, run_s, 0),
        held_s=held,
        recorded_s=np.where(started, np.where(known, np.minimum(recorded, held), -1), 0),
        known=known | ~started,
        proven=(proven & known) | ~started,
        runaway=runaway,
        why=why,
        unclear=unclear,
        ordinary_s=ordinary,
    )


def _matcher(state: pd.Series) -> Any:
    codes, names = state.cat.codes.to_numpy(), [str(c) for c in state.cat.categories]

    def is_state(*words: str) -> Bools:
        return np.isin(codes, [i for i, name in enumerate(names) if name in words])

    return is_state


def _flagged(runs: pd.DataFrame, flag: str) -> Bools:
    flags = runs["flags"].astype("category")
    hit = np.array([flag in str(text).split() for text in flags.cat.categories] or [False])
    return hit[flags.cat.codes.to_numpy()]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
