"""Reads the accounting of a live cluster through `sacct`, window by window.

A window's output is spooled whole and its exit status looked at before a row of it is handed on: nothing half
read is ever taken for complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from tempfile import TemporaryFile
from typing import IO

from slurm_trace.accounting import windows
from slurm_trace.accounting.commands import BACKOFF_S, CALL_LIMIT_S, Runner
from slurm_trace.accounting.discovery import LiveCluster
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunBlock
from slurm_trace.accounting.sacct_command import (
    DELIMITER,
    IDS_A_CALL,
    JOB_FIELDS,
    Outcome,
    has_rows,
    id_call,
    job_call,
    keep_steps,
    known_fields,
    run_call,
    step_call,
)
from slurm_trace.accounting.text import read_text
from slurm_trace.accounting.windows import DAY_S, Window, WindowPlan
from slurm_trace.errors import EnvironmentProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuery:
    """What to read.

    Attributes:
        since: First moment asked for, UTC epoch seconds; by default the watermark, else the beginning.
        until: End (exclusive); by default now.
        watermark: Where the last complete import ended.
        first_seen: Nothing is expected before this moment (the cluster's first registration).
        refresh: Raw ids of runs that were not final and began before the watermark: asked for once more.
        steps: Ask for the steps of runs that ended other than COMPLETED.
        call_limit_s: Time limit of one call of sacct.
    """

    since: int | None = None
    until: int | None = None
    watermark: int | None = None
    first_seen: int | None = None
    refresh: Sequence[int] = ()
    steps: bool = True
    call_limit_s: float = CALL_LIMIT_S


@dataclass(slots=True)
class LiveWindow:
    """One answered window. Its blocks can be read until the next window is asked for.

    Attributes:
        covers: The stretch that is now complete; None if the window completes none (runs asked for by id).
        watermark: Where the next import may start, once the blocks are committed.
        flags: How the answer was got, for the record of the import.
    """

    asked: Window | None
    covers: Window | None
    watermark: int | None
    queried_at: int
    flags: Mapping[str, object]
    warnings: list[str]
    read: Callable[[], Iterator[RunBlock]]

    def blocks(self) -> Iterator[RunBlock]:
        """The runs, then the steps that no row of a run stands beside."""
        return self.read()


def plan_of(runner: Runner, live: LiveCluster, query: LiveQuery) -> WindowPlan:
    """The windows of a query, as of now."""
    return windows.plan(
        now=runner.now(),
        since=query.since,
        until=query.until,
        watermark=query.watermark,
        first_seen=query.first_seen,
        widest_s=live.widest_s,
    )


def read_live(runner: Runner, live: LiveCluster, query: LiveQuery) -> Iterator[LiveWindow]:
    """Read a live cluster, oldest window first.

    Raises:
        EnvironmentProblem: sacct failed for good; the windows before stay good.
    """
    reader = _Reader(runner, live, query)
    yield from reader.by_id()
    yield from reader.by_time()


@dataclass(slots=True)
class _Reader:
    runner: Runner
    live: LiveCluster
    query: LiveQuery
    fields: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        known = known_fields(self.runner)
        self.fields = tuple(name for name in JOB_FIELDS if name in known)

    def by_time(self) -> Iterator[LiveWindow]:
        plan = plan_of(self.runner, self.live, self.query)
        reached = self.query.watermark
        since = plan.since
        while not plan.finished:
            with TemporaryFile() as jobs, TemporaryFile() as odd, TemporaryFile() as steps:
                asked_at, remarks = self._insist(partial(self._calls, plan, jobs), (jobs, odd), plan.shrink)
                window = Window(since, plan.window().until)
                plan.done(jobs.seek(0, os.SEEK_END), self.runner.now() - asked_at)
                if not (plan.finished or remarks or has_rows(jobs)):
                    continue  # years before the first run become one window with it
                since = window.until
                keep_steps(odd, steps)
                settled = min(window.until, asked_at - windows.SETTLE_S)
                follows = reached is None or window.since <= reached
                if follows:
                    reached = max(reached or settled, settled)
                yield LiveWindow(
                    asked=window,
                    covers=self._covered(window, asked_at),
                    watermark=reached if follows else None,
                    queried_at=asked_at,
                    flags=self._flags(),
                    warnings=remarks,
                    read=partial(self._blocks, (jobs, steps) if has_rows(steps) else (jobs,), asked_at),
                )

    def by_id(self) -> Iterator[LiveWindow]:
        ids = self.query.refresh
        for begin in range(0, len(ids), IDS_A_CALL):
            call = id_call(self.live.name, ids[begin : begin + IDS_A_CALL], self.fields)
            with TemporaryFile() as jobs:
                asked_at, remarks = self._insist(partial(iter, [call]), (jobs,), _leave)
                yield LiveWindow(
                    asked=None,
                    covers=None,
                    watermark=None,
                    queried_at=asked_at,
                    flags=self._flags(),
                    warnings=remarks,
                    read=partial(self._blocks, (jobs,), asked_at),
                )

    def _calls(self, plan: WindowPlan, jobs: IO[bytes]) -> Iterator[list[str]]:
        """The call for the runs of a window and, once that has found some, the one for their steps."""
        yield job_call(self.live.name, plan.window(), self.fields)
        if self.query.steps and has_rows(jobs):
            yield step_call(self.live.name, plan.window())

    def _insist(
        self,
        calls: Callable[[], Iterator[list[str]]],
        spools: Sequence[IO[bytes]],
        narrow: Callable[[], None],
    ) -> tuple[int, list[str]]:
        """Repeat the calls, one for each spool, until all of one round are answered.

        Returns:
            When that round began, and what sacct remarked in it.
        """
        pauses = iter(BACKOFF_S)
        while True:
            asked_at = self.runner.now()
            outcome, remarks = self._round(calls(), spools)
            if outcome.problem is None:
                return asked_at, remarks
            pause_s = next(pauses, None)
            if pause_s is None:
                raise EnvironmentProblem(
                    f"sacct failed {len(BACKOFF_S) + 1} times: {outcome.problem}; what was read before is "
                    "kept, run the import again when it answers"
                )
            if outcome.too_much:
                narrow()
            self.runner.sleep(pause_s)

    def _round(self, calls: Iterator[list[str]], spools: Sequence[IO[bytes]]) -> tuple[Outcome, list[str]]:
        for spool in spools:
            spool.seek(0)
            spool.truncate()
        outcome, remarks = Outcome(), []
        for argv, spool in zip(calls, spools, strict=False):
            outcome = run_call(self.runner, argv, spool, self.query.call_limit_s)
            if outcome.problem is not None:
                break
            if outcome.remark:
                remarks.append(f"sacct: {outcome.remark}")
        return outcome, remarks

    def _covered(self, window: Window, asked_at: int) -> Window | None:
        # Where other users' runs are hidden, or may be, no stretch is complete.
        if self.live.private_data is not False:
            return None
        purge = self.live.purge_after_s
        return windows.covered(window, asked_at, None if purge is None else asked_at - purge)

    def _blocks(self, spools: Sequence[IO[bytes]], queried_at: int) -> Iterator[RunBlock]:
        options = ReadOptions(
            cluster=self.live.name,
            zone=UTC,
            delimiter=DELIMITER,
            queried_at=queried_at,
            source_name="sacct",
            one_answer=True,
        )
        for spool in spools:
            spool.seek(0)
            yield from read_text(spool, options)

    def _flags(self) -> dict[str, object]:
        return {
            "source": "sacct",
            "slurm": self.live.version,
            "all_users": True,
            "duplicates": True,
            "private_data": self.live.private_data,
            "purge_after_s": self.live.purge_after_s,
            "steps": "odd_ends" if self.query.steps else "none",
            "fields": list(self.fields),
            "delimiter": DELIMITER,
        }


def _leave() -> None:
    """A question that cannot be made smaller."""


def notices(live: LiveCluster) -> list[str]:
    """What the reader of a report must know about this source of records."""
    found = []
    if live.private_data is not False:
        found.append(
            "PrivateData may hide other users' jobs from this user, so nothing counts as complete; "
            "import as root, as SlurmUser or as a Slurm operator"
        )
    if live.purge_after_s is not None:
        found.append(
            f"slurmdbd deletes runs {live.purge_after_s // DAY_S} days after submission (PurgeJobAfter): "
            "what is older must come from an archive"
        )
    return found
