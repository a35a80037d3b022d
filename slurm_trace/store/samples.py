"""Raw samples: how many there are, and the removal of old ones. Summaries, roll-ups and counters stay."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, func, select

from slurm_trace.store.engine import Store, failures_of
from slurm_trace.store.lock import writer_lock
from slurm_trace.store.models import cluster, lease, sample_chunk, spool_file, spool_reject

WAIT_S = 300.0
"""How long to wait for an import to end."""

BATCH = 1000
"""Chunks that are removed in one transaction: short enough that no import waits long for it."""

_DELETE = delete(sample_chunk).where(
    sample_chunk.c.spool_id == bindparam("at_spool"), sample_chunk.c.position == bindparam("at_position")
)


@dataclass(frozen=True, slots=True)
class LeaseCount:
    """Leases of one cluster: all, those whose run is known, and those that have not been closed."""

    cluster: str
    leases: int
    joined: int
    open: int


@dataclass(frozen=True, slots=True)
class SampleCount:
    """What there is of samples.

    Attributes:
        files: Spool files that were taken in.
        chunks: Raw chunks that are still here.
        bytes: Their size.
        rejected_files: Damaged files of which no whole one has come since.
    """

    files: int
    chunks: int
    bytes: int
    rejected_files: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """Raw chunks that were removed, and what is left."""

    chunks: int
    bytes: int
    left: SampleCount


def count_leases(store: Store) -> list[LeaseCount]:
    """Leases by cluster."""
    query = (
        select(
            cluster.c.name,
            func.count(),
            func.count(lease.c.run_id),
            func.count() - func.count(lease.c.closed),
        )
        .join_from(lease, cluster)
        .group_by(cluster.c.name)
        .order_by(cluster.c.name)
    )
    with store.reading() as connection:
        return [LeaseCount(*row) for row in connection.execute(query)]


def count_samples(store: Store) -> SampleCount:
    """Files and raw chunks."""
    chunks = select(func.count(), func.coalesce(func.sum(func.length(sample_chunk.c.data)), 0)).select_from(
        sample_chunk
    )
    waiting = select(func.count()).select_from(spool_reject).where(spool_reject.c.resolved_by.is_(None))
    with store.reading() as connection:
        files = connection.execute(select(func.count()).select_from(spool_file)).scalar_one()
        count, size = connection.execute(chunks).one()
        return SampleCount(files, count, int(size), connection.execute(waiting).scalar_one())


def prune_chunks(store: Store, before: int) -> Pruned:
    """Remove the raw chunks whose last sample is older than a moment, some at a time until none is left.

    Args:
        store: The store.
        before: Epoch seconds.

    Raises:
        EnvironmentProblem: The store failed; what was removed before that is gone.
    """
    old = (
        select(sample_chunk.c.spool_id, sample_chunk.c.position, func.length(sample_chunk.c.data))
        .where(sample_chunk.c.last_at < before)
        .order_by(sample_chunk.c.last_at)
        .limit(BATCH)
    )
    chunks = size = 0
    while True:
        with (
            failures_of(store.url),
            store.connect_writer() as connection,
            writer_lock(connection, store.path, WAIT_S),
            connection.begin(),
        ):
            rows = connection.execute(old).all()
            if rows:
                connection.execute(_DELETE, [{"at_spool": r[0], "at_position": r[1]} for r in rows])
        if not rows:
            return Pruned(chunks, size, count_samples(store))
        chunks += len(rows)
        size += sum(row[2] for row in rows)
