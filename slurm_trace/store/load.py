"""What the analysis reads beside the frame of runs: the small tables as records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select

from slurm_trace.accounting.events import Event
from slurm_trace.store.engine import Store
from slurm_trace.store.frame import RUN_COLUMNS, load_columns, load_runs
from slurm_trace.store.models import (
    allocation,
    cluster,
    event,
    import_log,
    job_run,
    raw_block,
    rejected_row,
    step_row,
    watermark,
)
from slurm_trace.store.raws import read_raw

__all__ = [
    "RUN_COLUMNS",
    "ImportRecord",
    "RawRow",
    "count_rejected",
    "count_runs",
    "load_allocations",
    "load_columns",
    "load_events",
    "load_imports",
    "load_raw",
    "load_runs",
    "load_unsettled",
    "load_watermark",
]


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """One import, finished or not.

    Attributes:
        clusters: Clusters whose rows it brought.
        covers_from: With `covers_to` the half-open interval of which it holds every run; None: nothing is claimed.
        flags: What was asked of the source.
    """

    id: int
    kind: str
    name: str
    digest: str | None
    clusters: tuple[str, ...]
    covers_from: int | None
    covers_to: int | None
    complete: bool
    completed_by: int | None
    problem: str | None
    started_at: int
    finished_at: int | None
    read: int
    jobs: int
    inserted: int
    updated: int
    unchanged: int
    steps_skipped: int
    rejected: int
    warnings: tuple[str, ...]
    flags: dict[str, Any]

    @property
    def cluster(self) -> str | None:
        """The cluster, if it brought rows of one alone."""
        return self.clusters[0] if len(self.clusters) == 1 else None


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as received, and what is needed to read it again."""

    raw: bytes
    line: int
    import_id: int
    source: str
    header: bytes | None
    fields: tuple[str, ...] | None
    delimiter: str | None
    zone: str | None


def load_allocations(store: Store) -> dict[int, tuple[str | None, str | None]]:
    """AllocTRES and AllocGRES by the number in `load_runs`' column `allocation`."""
    query = select(allocation.c.id, allocation.c.alloc_tres, allocation.c.alloc_gres)
    with store.reading() as connection:
        return {row.id: (row.alloc_tres, row.alloc_gres) for row in connection.execute(query)}


def load_events(store: Store, clusters: Sequence[str] | None = None) -> list[Event]:
    """Node and cluster events, ordered by cluster, node and start."""
    names = ("node", "start", "end", "state", "reason", "tres", "user")
    query = (
        select(cluster.c.name, *(event.c[name] for name in names))
        .join_from(event, cluster)
        .order_by(cluster.c.name, event.c.node, event.c.start)
    )
    if clusters is not None:
        query = query.where(cluster.c.name.in_(clusters))
    with store.reading() as connection:
        return [Event(*row) for row in connection.execute(query)]


def load_imports(store: Store) -> list[ImportRecord]:
    """Every import, oldest first."""
    with store.reading() as connection:
        rows = connection.execute(select(import_log).order_by(import_log.c.id)).mappings().all()
    return [
        ImportRecord(
            **{
                **{name: row[name] for name in ImportRecord.__slots__},
                "clusters": tuple(json.loads(row["clusters"])),
                "warnings": tuple(json.loads(row["warnings"])),
                "flags": json.loads(row["flags"]),
            }
        )
        for row in rows
    ]


def count_rejected(store: Store) -> dict[str | None, int]:
    """Rows that could not be read, by cluster; None: it is not known which."""
    query = (
        select(cluster.c.name, func.count())
        .select_from(rejected_row)
        .join(cluster, isouter=True)
        .where(rejected_row.c.resolved_by.is_(None))
        .group_by(cluster.c.name)
    )
    with store.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def count_runs(store: Store) -> dict[str, int]:
    """Runs by cluster."""
    query = select(cluster.c.name, func.count(job_run.c.id)).select_from(cluster).join(job_run, isouter=True)
    with store.reading() as connection:
        rows = connection.execute(query.group_by(cluster.c.name).order_by(cluster.c.name))
        return {row[0]: row[1] for row in rows}


def load_raw(store: Store, run_id: int) -> RawRow | None:
    """The row that a run was read from; None if there is no such run."""
    query = (
        select(job_run)
        .add_columns(import_log.c.header, import_log.c.fields, import_log.c.delimiter, import_log.c.zone)
        .outerjoin_from(job_run, raw_block)
        .join(import_log, import_log.c.id == func.coalesce(raw_block.c.import_id, job_run.c.import_id))
        .where(job_run.c.id == run_id)
    )
    with store.reading() as connection:
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if row.raw_block_id is None:
            steps = select(step_row.c.raw).where(step_row.c.run_id == run_id).order_by(step_row.c.id)
            raw = b"\n".join(map(bytes, connection.execute(steps).scalars()))
        else:
            raw = read_raw(connection, row.raw_block_id, row.raw_at, row.raw_size)
    fields = None if row.fields is None else tuple(row.fields.split(","))
    return RawRow(raw, row.line, row.import_id, row.source, row.header, fields, row.delimiter, row.zone)


def load_watermark(store: Store, cluster_name: str, source: str) -> int | None:
    """Up to which moment a source has been imported; None: never."""
    query = (
        select(watermark.c.until)
        .join_from(watermark, cluster)
        .where(cluster.c.name == cluster_name, watermark.c.source == source)
    )
    with store.reading() as connection:
        return connection.execute(query).scalar()


def load_unsettled(store: Store, cluster_name: str, before: int | None = None) -> list[int]:
    """Raw ids of the runs that are not final.

    Args:
        store: The store.
        cluster_name: Of this cluster.
        before: Only runs that were submitted, or else started, before this moment.
    """
    query: Select[Any] = (
        select(job_run.c.job_id_raw)
        .join_from(job_run, cluster)
        .where(cluster.c.name == cluster_name, job_run.c.final.is_(False))
        .distinct()
        .order_by(job_run.c.job_id_raw)
    )
    if before is not None:
        query = query.where(func.coalesce(job_run.c.submit, job_run.c.start, before - 1) < before)
    with store.reading() as connection:
        return list(connection.execute(query).scalars())
