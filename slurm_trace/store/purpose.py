"""All that the store knows of what one run was for: its row, its kin, and what its leases measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.bulk import in_chunks
from slurm_trace.store.engine import Store
from slurm_trace.store.leases import one_a_part
from slurm_trace.store.models import (
    allocation,
    allocation_gres,
    cluster,
    counter_read,
    interned,
    job_run,
    job_summary,
    lease,
    lease_device,
    rollup_hour,
    spool_file,
)
from slurm_trace.store.purpose_samples import Floats, Ints, Piece, SampleReader, joined


@dataclass(frozen=True, slots=True)
class Kin:
    """A run of the same job id, or of the same user, name, partition and allocation. Times are epoch seconds."""

    run_id: int
    job_id_raw: int
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRecord:
    """One GPU of one lease.

    Attributes:
        begin_ms: CLOCK_BOOTTIME at which the lease opened; None: its first part is missing.
        parts: Rows of lease_device.
        facts: What they say beside their columns.
        hours: Rows of rollup_hour.
        counters: Per part the first and last row of counter_read; None where there are not two.
        times_ms: Times of its raw samples, in order; None where none is left or none was read.
        samples: Field → values, NaN where there was none.
    """

    uuid: str
    node: str
    begin_ms: int | None
    parts: tuple[Any, ...]
    facts: tuple[Mapping[str, Any], ...]
    hours: tuple[Any, ...]
    counters: tuple[tuple[Any, Any] | None, ...]
    times_ms: Ints | None
    samples: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class PurposeRecords:
    """What there is of one run.

    Attributes:
        run: Its row of job_run, with `cluster`, `alloc_tres` and `alloc_gres`.
        gpus_recorded: Some run of its cluster has a GPU in its allocation.
        kin: Itself included.
        summary: Its row of job_summary; None without leases.
        devices_known: Of all its leases it is known which devices they held.
        chunks: Raw chunks that are left of it.
        chunks_read: How many of them were read, and
        chunks_damaged: how many of those could not be unpacked.
    """

    run: Any
    gpus_recorded: bool
    kin: tuple[Kin, ...]
    summary: Any
    devices_known: bool
    devices: tuple[DeviceRecord, ...]
    chunks: int
    chunks_read: int
    chunks_damaged: int


def load_purpose(store: Store, run_id: int) -> PurposeRecords:
    """Read one run.

    Args:
        store: The store.
        run_id: As `load_runs` has it; it must be there.
    """
    with store.reading() as connection:
        query = (
            select(job_run, cluster.c.name.label("cluster"), allocation.c.alloc_tres, allocation.c.alloc_gres)
            .select_from(job_run.join(cluster).outerjoin(allocation))
            .where(job_run.c.id == run_id)
        )
        run = connection.execute(query).one()
        summary = connection.execute(select(job_summary).where(job_summary.c.run_id == run_id)).one_or_none()
        leases = connection.execute(select(lease).where(lease.c.run_id == run_id).order_by(lease.c.id)).all()
        reader = _Leases(connection, leases)
        devices = tuple(reader.devices())
        return PurposeRecords(
            run=run,
            gpus_recorded=_gpus_recorded(connection, run.cluster_id),
            kin=tuple(_kin(connection, run)),
            summary=summary,
            devices_known=all(one.device_count is not None for one in leases),
            devices=devices,
            chunks=reader.samples.chunks,
            chunks_read=reader.samples.chunks_read,
            chunks_damaged=reader.samples.chunks_damaged,
        )


def _gpus_recorded(connection: Connection, cluster_id: int) -> bool:
    query = (
        select(job_run.c.id)
        .join(allocation_gres, allocation_gres.c.allocation_id == job_run.c.allocation_id)
        .where(job_run.c.cluster_id == cluster_id, allocation_gres.c.name == "gpu")
        .limit(1)
    )
    return connection.execute(query).first() is not None


def _kin(connection: Connection, run: Any) -> Iterable[Kin]:
    same = job_run.c.job_id_raw == run.job_id_raw
    if run.user is not None and run.name is not None and run.allocation_id is not None:
        names = ("user", "name", "partition", "allocation_id", "node_count")
        alike = and_(*(_equal(job_run.c[name], getattr(run, name)) for name in names))
        same = or_(same, alike)
    columns = (job_run.c[name] for name in ("id", "job_id_raw", "start", "end"))
    query = select(*columns).where(job_run.c.cluster_id == run.cluster_id, job_run.c.started, same)
    return (Kin(*row) for row in connection.execute(query))


def _equal(column: Any, value: Any) -> Any:
    return column.is_(None) if value is None else column == value


class _Leases:
    """The leases of one run, read table by table."""

    def __init__(self, connection: Connection, leases: Sequence[Any]) -> None:
        self._connection = connection
        held = {one.id: one for one in leases if one.device_count}
        self._files: dict[int, list[Any]] = {}
        for row in self._all(select(spool_file), spool_file.c.lease_id, held):
            self._files.setdefault(row.lease_id, []).append(row)
        self._files = {number: one_a_part(rows) for number, rows in self._files.items()}
        self._nodes = {number: held[number].node for number in self._files}
        self._spools = [row.id for rows in self._files.values() for row in rows]
        self.samples = SampleReader(connection, self._nodes.values())

    def devices(self) -> Iterable[DeviceRecord]:
        """Every device that the leases held."""
        facts = self._interned(row.facts_id for row in self._of_spools(lease_device))
        rows: dict[tuple[int, str], list[Any]] = {}
        of_spool = {row.id: row for files in self._files.values() for row in files}
        for row in self._of_spools(lease_device):
            rows.setdefault((of_spool[row.spool_id].lease_id, row.uuid), []).append(row)
        hours = _by_device(self._of_spools(rollup_hour))
        counters = self._counters()
        series = self._series()
        for (number, uuid), parts in rows.items():
            parts.sort(key=lambda row: of_spool[row.spool_id].part)
            first = of_spool[parts[0].spool_id]
            places = [(row.spool_id, row.number) for row in parts]
            times, samples = joined([piece for place in places for piece in series.get(place, ())])
            yield DeviceRecord(
                uuid=uuid,
                node=self._nodes[number],
                begin_ms=first.from_ns // 10**6 if first.part == 0 else None,
                parts=tuple(parts),
                facts=tuple(json.loads(facts[row.facts_id]) for row in parts),
                hours=tuple(hour for place in places for hour in hours.get(place, ())),
                counters=tuple(counters.get(place) for place in places),
                times_ms=times,
                samples=samples,
            )

    def _all(self, query: Select[Any], column: Any, ids: Iterable[int]) -> Iterable[Any]:
        for chunk in in_chunks(sorted(set(ids))):
            yield from self._connection.execute(query.where(column.in_(chunk)))

    def _of_spools(self, table: Any) -> Iterable[Any]:
        return self._all(select(table), table.c.spool_id, self._spools)

    def _interned(self, ids: Iterable[int]) -> dict[int, str]:
        return {row.id: row.text for row in self._all(select(interned), interned.c.id, ids)}

    def _counters(self) -> dict[tuple[int, int], tuple[Any, Any]]:
        """Per part and device its first and last reading."""
        reads = counter_read.c
        edges = (
            select(
                reads.spool_id,
                reads.number,
                func.min(reads.mono_ns).label("low"),
                func.max(reads.mono_ns).label("high"),
            )
            .group_by(reads.spool_id, reads.number)
            .having(func.min(reads.mono_ns) < func.max(reads.mono_ns))
        )
        found: dict[tuple[int, int], list[Any]] = {}
        for chunk in in_chunks(self._spools):
            of = edges.where(reads.spool_id.in_(chunk)).subquery()
            at_edge = or_(reads.mono_ns == of.c.low, reads.mono_ns == of.c.high)
            join = and_(reads.spool_id == of.c.spool_id, reads.number == of.c.number, at_edge)
            names = ("spool_id", "number", "mono_ns", *COUNTER_NAMES)
            query = select(*(reads[name] for name in names)).join(of, join).order_by(reads.mono_ns)
            for row in self._connection.execute(query):
                found.setdefault((row.spool_id, row.number), []).append(row)
        return {place: (rows[0], rows[-1]) for place, rows in found.items()}

    def _series(self) -> dict[tuple[int, int], list[Piece]]:
        """Per part and device the samples that are read."""
        columns = self._interned(row.columns_id for files in self._files.values() for row in files)
        found: dict[tuple[int, int], list[Piece]] = {}
        for number, files in self._files.items():
            of_parts = {row.id: columns[row.columns_id] for row in files}
            found |= self.samples.read(self._nodes[number], of_parts)
        return found


def _by_device(rows: Iterable[Any]) -> dict[tuple[int, int], list[Any]]:
    found: dict[tuple[int, int], list[Any]] = {}
    for row in rows:
        found.setdefault((row.spool_id, row.number), []).append(row)
    return found
