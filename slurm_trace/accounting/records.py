"""What every source of accounting is read into: one record a run, columns for a million of them.

A *run* is one allocation of one job: (cluster, JobIDRaw, submit time). A requeue is another run. Times are UTC epoch
seconds, durations whole seconds; `None` means "not given", which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, as read from one accounting row.

    Attributes:
        cluster: Cluster named by the row; None if the row names none.
        job_id_raw: Slurm's own number of the run (JobIDRaw), never computed from an array or het id.
        run_key: Third part of the identity: `submit`; without it `start`; without both a negative digest of the row.
        job_id: The id as Slurm shows it (`30_5`, `1853+1`, `77`).
        state: Base word (`CANCELLED`, not `CANCELLED by 7`); a word that is not known stays as it came.
        final: The row will not change any more.
        started: False only where the row proves that the run never held a resource.
        alloc_tres: AllocTRES as received; None if there was no such column, "" if it was empty.
        alloc_gres: AllocGRES as received (per node, Slurm before 21.08); None if there was no such column.
        step_end: Latest End of the run's finished steps; None if no finished step was seen.
        step_count: Finished steps seen; None if the source was not asked for steps.
        queried_at: The moment at which a row that is not final was true.
        flags: Names of what was odd about the row, sorted, separated by one blank.
        line: First physical line of the row in its source (JSON: number of the record), counted from 1.
        raw: The row as received.
    """

    cluster: str | None
    job_id_raw: int
    run_key: int
    submit: int | None
    job_id: str
    array_job_id: int | None = None
    het_job_id: int | None = None
    sluid: str | None = None
    db_index: str | None = None
    name: str | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    state: str
    cancelled_by: int | None = None
    final: bool
    started: bool
    start: int | None = None
    end: int | None = None
    elapsed_s: int | None = None
    suspended_s: int | None = None
    limit_s: int | None = None
    node_count: int | None = None
    cpu_count: int | None = None
    node_list: str | None = None
    alloc_tres: str | None = None
    alloc_gres: str | None = None
    work_dir: str | None = None
    step_end: int | None = None
    step_count: int | None = None
    queried_at: int | None = None
    source: str
    flags: str = ""
    line: int
    raw: bytes


RUN_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(RunRecord))


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step row that stood apart from its run: only its times matter, its counts are never summed."""

    cluster: str | None
    job_id_raw: int
    job_id: str
    start: int | None
    end: int | None
    finished: bool
    line: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that could not be read: kept, counted, with the reason."""

    line: int
    reason: str
    raw: bytes


@dataclass(slots=True)
class RunBlock:
    """Runs of one stretch of input, column by column in the order of RUN_FIELDS.

    `read` = runs + `steps_skipped` + rejected rows. `steps` holds the steps that no run of the block could take.
    """

    columns: tuple[list[Any], ...]
    steps: list[StepRecord] = field(default_factory=list)
    steps_skipped: int = 0
    rejected: list[RejectedRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.columns[0])

    def column(self, name: str) -> list[Any]:
        """The values of one field, one per run."""
        return self.columns[RUN_FIELDS.index(name)]

    def records(self) -> Iterator[RunRecord]:
        """The runs one by one (slow; for tests and small inputs)."""
        for values in zip(*self.columns, strict=True):
            yield RunRecord(**dict(zip(RUN_FIELDS, values, strict=True)))


def block_of(
    records: Iterable[RunRecord],
    steps: Sequence[StepRecord] = (),
    steps_skipped: int = 0,
    rejected: Sequence[RejectedRow] = (),
    warnings: Sequence[str] = (),
) -> RunBlock:
    """A block made of single records."""
    rows = [tuple(getattr(r, name) for name in RUN_FIELDS) for r in records]
    columns: tuple[list[Any], ...] = (
        tuple(map(list, zip(*rows, strict=True))) if rows else tuple([] for _ in RUN_FIELDS)
    )
    return RunBlock(columns, list(steps), steps_skipped, list(rejected), list(warnings))
