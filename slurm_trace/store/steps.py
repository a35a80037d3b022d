"""Step rows that stood apart from their run: kept, and counted for the run under way when they began."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, exists, or_, select, update

from slurm_trace.accounting.records import StepRecord
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.merge import STEP_SOURCE
from slurm_trace.store.models import job_run, step_row
from slurm_trace.store.rejects import row_digest
from slurm_trace.store.upsert import delete_runs

_KEPT = ("cluster_id", "job_id_raw", "digest", "job_id", "start", "end", "finished", "line", "raw")
_TELL_STEP = (
    update(step_row).where(step_row.c.id == bindparam("at_id")).values(run_id=bindparam("new_run_id"))
)
_TIMES: dict[str, Any] = {name: bindparam(f"new_{name}") for name in ("import_id", "step_end", "step_count")}
_TELL_RUN = update(job_run).where(job_run.c.id == bindparam("at_id")).values(_TIMES)
_STANDS_FOR = (
    "id", "import_id", "cluster_id", "job_id_raw", "run_key", "job_id", "state", "final", "started", "start",
    "step_end", "step_count", "source", "flags", "line",
)  # fmt: skip


@dataclass(slots=True)
class _Run:
    """A stored run, and the steps that are counted for it."""

    id: int
    key: int
    source: str
    start: int | None
    step_end: int | None
    step_count: int | None
    steps: list[Any] = field(default_factory=list)


def keep_steps(
    connection: Connection, import_id: int, ids: Ids, steps: Sequence[tuple[int, StepRecord]]
) -> None:
    """Store step rows, each given with the id of its cluster, unless they are there already."""
    wanted = {(cluster, step.job_id_raw, _digest(step)): step for cluster, step in steps}
    clusters = {key[0] for key in wanted}
    for chunk in in_chunks({key[1] for key in wanted}):
        query = select(step_row.c.cluster_id, step_row.c.job_id_raw, step_row.c.digest).where(
            step_row.c.cluster_id.in_(clusters), step_row.c.job_id_raw.in_(chunk)
        )
        for cluster, job, digest in connection.execute(query):
            wanted.pop((cluster, job, bytes(digest)), None)
    numbers = ids.take(connection, step_row, len(wanted))
    rows = [
        (number, import_id, *key, step.job_id, step.start, step.end, step.finished, step.line, step.raw)
        for number, (key, step) in zip(numbers, wanted.items(), strict=True)
    ]
    insert_rows(connection, step_row, ("id", "import_id", *_KEPT), rows)


def _digest(step: StepRecord) -> bytes:
    return row_digest(repr((step.job_id, step.start, step.end, step.finished)).encode())


def attach_steps(connection: Connection, import_id: int, ids: Ids) -> list[str]:
    """Count the kept steps for the runs they belong to; what has no run stands in for one.

    Looks at the jobs of this import, and at those that had no run so far.

    Returns:
        Warnings.
    """
    moved = exists().where(
        job_run.c.cluster_id == step_row.c.cluster_id,
        job_run.c.job_id_raw == step_row.c.job_id_raw,
        or_(job_run.c.import_id == import_id, job_run.c.source == STEP_SOURCE),
    )
    query = (
        select(step_row.c.cluster_id, step_row.c.job_id_raw)
        .where(or_(step_row.c.run_id.is_(None), moved))
        .distinct()
    )
    by_cluster: dict[int, list[int]] = {}
    for cluster, job in connection.execute(query):
        by_cluster.setdefault(cluster, []).append(job)
    alone = 0
    for cluster, jobs in by_cluster.items():
        for chunk in in_chunks(jobs):
            alone += _attach(connection, import_id, ids, cluster, chunk)
    return [f"{alone} job(s) are known by their steps alone; import their job rows too"] if alone else []


def _attach(connection: Connection, import_id: int, ids: Ids, cluster: int, jobs: list[int]) -> int:
    runs: dict[int, list[_Run]] = {job: [] for job in jobs}
    columns = (job_run.c[name] for name in ("id", "run_key", "source", "start", "step_end", "step_count"))
    here = select(job_run.c.job_id_raw, *columns).where(
        job_run.c.cluster_id == cluster, job_run.c.job_id_raw.in_(jobs)
    )
    for job, *values in connection.execute(here):
        runs[job].append(_Run(*values))
    left: dict[int, list[Any]] = {}
    for step in connection.execute(
        select(step_row)
        .where(step_row.c.cluster_id == cluster, step_row.c.job_id_raw.in_(jobs))
        .order_by(step_row.c.id)
    ):
        run = _under_way(runs[step.job_id_raw], step.start)
        (run.steps if run else left.setdefault(step.job_id_raw, [])).append(step)
    stand_ins = {job: run for job in jobs for run in runs[job] if run.source == STEP_SOURCE}
    delete_runs(connection, [run.id for job, run in stand_ins.items() if job not in left])
    for job, steps in left.items():
        if job not in stand_ins:
            taken = {run.key for run in runs[job]}
            _stand_in(connection, import_id, ids, cluster, job, steps, taken)
        else:
            stand_ins[job].steps = steps
    _tell(connection, import_id, [run for job in jobs for run in runs[job]])
    return len(left)


def _under_way(runs: list[_Run], start: int | None) -> _Run | None:
    """The run that began last before a step did."""
    fitting = [
        run
        for run in runs
        if run.source != STEP_SOURCE and run.start is not None and (start is None or run.start <= start)
    ]
    return max(fitting, key=lambda run: (run.start, run.key), default=None)


def _tell(connection: Connection, import_id: int, runs: list[_Run]) -> None:
    steps, changed = [], []
    for run in runs:
        steps += [{"at_id": s.id, "new_run_id": run.id} for s in run.steps if s.run_id != run.id]
        end, count = _times(run.steps)
        if run.steps and (_larger(end, run.step_end) or _larger(count, run.step_count)):
            changed.append(
                {
                    "at_id": run.id,
                    "new_import_id": import_id,
                    "new_step_end": end if _larger(end, run.step_end) else run.step_end,
                    "new_step_count": count if _larger(count, run.step_count) else run.step_count,
                }
            )
    if steps:
        connection.execute(_TELL_STEP, steps)
    if changed:
        connection.execute(_TELL_RUN, changed)


def _stand_in(
    connection: Connection,
    import_id: int,
    ids: Ids,
    cluster: int,
    job: int,
    steps: list[Any],
    taken: Collection[int],
) -> None:
    """A run of which nothing but steps is known: what it held is not. `taken` are the keys of the job's other runs."""
    (number,) = ids.take(connection, job_run)
    first = min(steps, key=lambda step: (step.start is None, step.start, step.id))
    end, count = _times(steps)
    shown = first.job_id.partition(".")[0]
    key = first.start or 0
    if key in taken:  # a run that was submitted when this step began, and started later
        key = -1 - (int.from_bytes(bytes(first.digest)[:8]) >> 1)
    row = (
        number, import_id, cluster, job, key, shown, "UNKNOWN", False, True, first.start, end, count,
        STEP_SOURCE, "identity_incomplete state_unknown", first.line,
    )  # fmt: skip
    insert_rows(connection, job_run, _STANDS_FOR, [row])
    connection.execute(_TELL_STEP, [{"at_id": step.id, "new_run_id": number} for step in steps])


def _times(steps: list[Any]) -> tuple[int | None, int]:
    """The latest End of the finished steps, and how many those are."""
    finished = [step for step in steps if step.finished]
    return max((step.end for step in finished if step.end is not None), default=None), len(finished)


def _larger(value: int | None, than: int | None) -> bool:
    return value is not None and (than is None or value > than)
