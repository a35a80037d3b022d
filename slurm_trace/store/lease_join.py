"""Which run is a lease of? By SLUID, else by job id and start, else by job id and overlap in time.

Looked for again whenever accounting or a node tells more of the job, so that the order in which things come does not
matter.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, exists, or_, select, update

from slurm_trace.store.bulk import in_chunks
from slurm_trace.store.catalog import Ids
from slurm_trace.store.models import allocation, job_run, lease

BY_SLUID, BY_START, BY_OVERLAP = "sluid", "start", "overlap"

SLACK_S = 60
"""How far the clocks of a node and of the controller may be apart for an overlap in time."""

_JOBS_AT_ONCE = 500
_JOIN = (
    update(lease)
    .where(lease.c.id == bindparam("at_id"))
    .values({name: bindparam(f"new_{name}") for name in ("run_id", "joined_by", "joined_in")})
)
_RUN = (
    "id", "job_id_raw", "run_key", "sluid", "uid", "final", "started", "start", "end", "elapsed_s", "suspended_s",
    "node_count", "node_list", "queried_at",
)  # fmt: skip


def join_leases(connection: Connection, import_id: int, ids: Ids) -> None:
    """Join the leases of which there is news: their own, or of a run of the same job.

    Args:
        connection: Inside a transaction of the one writer.
        import_id: The import under way, up to which all is taken into account.
        ids: Numbers for new rows.
    """
    newer = exists().where(
        job_run.c.cluster_id == lease.c.cluster_id,
        job_run.c.job_id_raw == lease.c.job_id_raw,
        job_run.c.import_id > lease.c.joined_in,
    )
    query = select(lease.c.cluster_id, lease.c.job_id_raw).where(or_(lease.c.joined_in.is_(None), newer))
    jobs: dict[int, list[int]] = {}
    for cluster, job in connection.execute(query.distinct()):
        jobs.setdefault(cluster, []).append(job)
    for cluster, numbers in jobs.items():
        for chunk in in_chunks(sorted(numbers), _JOBS_AT_ONCE):
            _join_jobs(connection, import_id, ids, cluster, chunk)


def _join_jobs(connection: Connection, import_id: int, ids: Ids, cluster: int, jobs: list[int]) -> None:
    # Slow to import, and of no use to a store without leases.
    from slurm_trace.store.job_summary import summarise
    from slurm_trace.store.telemetry import store_cycles

    runs: dict[int, list[Any]] = {job: [] for job in jobs}
    told = (allocation.c.alloc_tres, allocation.c.alloc_gres)
    query = select(*(job_run.c[name] for name in _RUN), *told).select_from(job_run).outerjoin(allocation)
    here = (job_run.c.cluster_id == cluster, job_run.c.job_id_raw.in_(jobs))
    for run in connection.execute(query.where(*here).order_by(job_run.c.run_key)):
        runs[run.job_id_raw].append(run)
    of_run: dict[int, list[Any]] = {run.id: [] for job in jobs for run in runs[job]}
    changes = []
    mine = select(lease).where(lease.c.cluster_id == cluster, lease.c.job_id_raw.in_(jobs))
    for one in connection.execute(mine.order_by(lease.c.digest)):
        run, how = find_run(one, runs[one.job_id_raw])
        changes.append(
            {"at_id": one.id, "new_run_id": run and run.id, "new_joined_by": how, "new_joined_in": import_id}
        )
        if run is not None:
            of_run[run.id].append(one)
    connection.execute(_JOIN, changes)
    theirs = [(run, of_run[run.id]) for job in jobs for run in runs[job]]
    summarise(connection, theirs)
    store_cycles(connection, ids, theirs)


def find_run(lease: Any, runs: list[Any]) -> tuple[Any, str | None]:
    """The run of a lease among those of its job id, and how it was told; None if it is none of them."""
    runs = [run for run in runs if run.started]
    if lease.sluid is not None:
        for run in runs:
            if run.sluid == lease.sluid:
                return run, BY_SLUID
        # A run with another one is another run.
        runs = [run for run in runs if run.sluid is None]
    if lease.start_time is not None:
        at_start = [run for run in runs if run.start == lease.start_time]
        if at_start:
            return max(at_start, key=lambda run: (_overlap(lease, run), run.run_key)), BY_START
    fitting = [run for run in runs if _overlap(lease, run) > -SLACK_S and not _starts_apart(lease, run)]
    if not fitting:
        return None, None
    return max(fitting, key=lambda run: (_overlap(lease, run), run.run_key)), BY_OVERLAP


def _starts_apart(lease: Any, run: Any) -> bool:
    return lease.start_time is not None and abs(run.start - lease.start_time) > SLACK_S


def _overlap(lease: Any, run: Any) -> float:
    """Seconds for which the two overlap; below 0 the seconds between them."""
    moments = [at for at in (lease.opened_at, lease.closed_at, lease.seen_until) if at is not None]
    if run.start is None or not moments:
        return float("-inf")
    until = float("inf") if not run.final else max(_ends(run))
    begin, end = max(min(moments), run.start), min(max(moments), until)
    return float(end - begin)


def _ends(run: Any) -> list[int]:
    ends = [run.start]
    if run.end is not None:
        ends.append(run.end)
    if run.elapsed_s is not None:
        ends.append(run.start + run.elapsed_s + (run.suspended_s or 0))
    return ends
