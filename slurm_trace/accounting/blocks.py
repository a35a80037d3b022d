"""From single read rows to the blocks that a reader hands out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RUN_FIELDS, RejectedRow, RunBlock, RunRecord, StepRecord
from slurm_trace.accounting.rows import ReadRow, number_rows
from slurm_trace.accounting.steps import attach_steps

_KEY, _RAW, _STATE, _FLAGS, _LINE = (
    RUN_FIELDS.index(name) for name in ("run_key", "raw", "state", "flags", "line")
)

Columns = tuple[list[Any], ...]


def empty_columns() -> Columns:
    """Columns of no run."""
    return tuple([] for _ in RUN_FIELDS)


def add_run(columns: Columns, run: RunRecord) -> None:
    """Append one run to columns."""
    for column, name in zip(columns, RUN_FIELDS, strict=True):
        column.append(getattr(run, name))


class BlockMaker:
    """Makes blocks; holds the last run back until the next block, because its steps may follow there."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._held: list[Any] | None = None
        self._seen: Counter[bytes] = Counter()
        self._warned: set[str] = set()

    def make(self, columns: Columns, others: Iterable[ReadRow], *, last: bool) -> RunBlock:
        """One block.

        Args:
            columns: Runs in the order of RUN_FIELDS; they become the block's.
            others: Further rows that were read one by one.
            last: Nothing follows.
        """
        steps: list[StepRecord] = []
        rejected: list[RejectedRow] = []
        skipped = added = 0
        for row in others:
            if isinstance(row, RunRecord):
                add_run(columns, row)
                added += 1
            elif isinstance(row, RejectedRow):
                rejected.append(row)
            else:
                skipped += 1
                if isinstance(row, StepRecord):
                    steps.append(row)
        if added:
            columns = _by_line(columns)
        if self._held is not None:
            for column, value in zip(columns, self._held, strict=True):
                column.insert(0, value)
        steps.sort(key=lambda step: step.line)
        orphans = attach_steps(columns, steps)
        self._held = None
        if not last and columns[_LINE]:
            self._held = [column.pop() for column in columns]
        number_rows(columns[_KEY], columns[_RAW], self._seen)
        rejected.sort(key=lambda row: row.line)
        return RunBlock(columns, orphans, skipped, rejected, self._warnings(columns))

    def _warnings(self, columns: Columns) -> list[str]:
        name = self._options.source_name
        found: list[str] = []
        for flags, state in {(f, s) for f, s in zip(columns[_FLAGS], columns[_STATE], strict=True) if f}:
            if "state_unknown" in flags:
                found.append(
                    f"{name}: no State column: no run is taken as finished; add State to the export"
                    if state == "UNKNOWN"
                    else f"{name}: state {state[:40]!r} is not known: its runs are not taken as finished"
                )
            if "tz_assumed" in flags:
                found.append(f"{name}: times read as UTC; name the zone of the cluster with --tz")
        fresh = sorted(set(found) - self._warned)
        self._warned.update(fresh)
        return fresh


def _by_line(columns: Columns) -> Columns:
    order = sorted(range(len(columns[_LINE])), key=columns[_LINE].__getitem__)
    return tuple([column[i] for i in order] for column in columns)
