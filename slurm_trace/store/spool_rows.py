"""One spool file into its tables. These rows are written once: the same file again finds itself there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.bulk import insert_rows
from slurm_trace.store.card_clocks import store_clocks
from slurm_trace.store.catalog import Ids
from slurm_trace.store.device_ends import store_ends
from slurm_trace.store.interned import intern
from slurm_trace.store.models import (
    counter_read,
    lease,
    lease_device,
    lease_event,
    lease_gap,
    ring_busy,
    rollup_hour,
    sample_chunk,
    sample_interval,
    spool_file,
)
from slurm_trace.store.spool_check import CheckedSpool, LeaseFacts, device_facts
from slurm_trace.store.spool_prepare import PreparedSpool

_CHUNKS_AT_ONCE = 100

_LEASE = (
    "node", "job_id_raw", "boot_id", "moment", "sluid", "start_time", "het_job_id", "uid", "user", "account",
    "partition", "gpus", "opened_at",
)  # fmt: skip
_FILE = (
    "name", "size", "part", "from_ns", "to_ns", "from_at", "to_at", "closed", "attribution", "interval_ms", "version",
    "driver_version", "facts",
)  # fmt: skip
_DEVICE = (
    "uuid", "name", "index", "minor", "pci", "parent_uuid", "mig_profile", "sm_count", "memory_total_bytes",
    "power_scope",
)  # fmt: skip
_HOUR_FIGURES = (
    "covered_ms", "gap_ms", "utilization_ms", "utilization_pct_ms", "utilization_max_pct", "energy_mj", "energy_from",
    "power_max_mw", "memory_used_max_bytes", "sm_clock_top_mhz",
)  # fmt: skip
_INTERVAL = (
    "from_ns", "to_ns", "sampled_ms", "clock_mhz_ms", "utilization_max_pct", "power_max_mw", "process_max",
)  # fmt: skip
_BUSY = ("from_ms", "to_ms", "busy_ms")
_DEVICE_FIGURES = (
    *_HOUR_FIGURES, "samples", "invalid", "power_mj", "energy_resets", "energy_first_mj", "energy_last_mj",
    "sm_clock_max_mhz", "process_max",
)  # fmt: skip


def store_spool(
    connection: Connection, import_id: int, ids: Ids, cluster_id: int, prepared: PreparedSpool
) -> int | None:
    """Store a file, inside a transaction of the one writer.

    Returns:
        The id of its lease; None if the file is there already.
    """
    here = select(spool_file.c.id).where(spool_file.c.digest == prepared.digest)
    if connection.execute(here).scalar() is not None:
        return None
    checked = prepared.checked
    lease_id = _lease(connection, import_id, ids, cluster_id, checked.lease)
    (spool_id,) = ids.take(connection, spool_file)
    columns_id = intern(connection, ids, checked.columns)
    told = [getattr(checked, name) for name in _FILE]
    insert_rows(
        connection,
        spool_file,
        ("id", "import_id", "lease_id", "digest", "columns_id", *_FILE),
        [(spool_id, import_id, lease_id, prepared.digest, columns_id, *told)],
    )
    _devices(connection, ids, spool_id, prepared)
    insert_rows(
        connection,
        counter_read,
        ("spool_id", "position", "number", "moment", "mono_ns", "took_ns", "wall_ns", *COUNTER_NAMES),
        ((spool_id, place, *row) for place, row in enumerate(checked.counters)),
    )
    store_ends(connection, ids, cluster_id, lease_id, spool_id, prepared)
    store_clocks(connection, ids, cluster_id, prepared)
    _notes(connection, spool_id, checked)
    _chunks(connection, spool_id, checked)
    return lease_id


def _lease(connection: Connection, import_id: int, ids: Ids, cluster_id: int, facts: LeaseFacts) -> int:
    digest = _digest(json.dumps([cluster_id, facts.said]))
    known = connection.execute(select(lease.c.id).where(lease.c.digest == digest)).scalar()
    if known is not None:
        return int(known)
    (number,) = ids.take(connection, lease)
    told = [getattr(facts, "job_id" if name == "job_id_raw" else name) for name in _LEASE]
    open_yet = {"attribution": "unknown", "part_count": 0, "whole": False, "covered_ms": 0, "gap_ms": 0}
    insert_rows(
        connection,
        lease,
        ("id", "import_id", "cluster_id", "digest", *_LEASE, *open_yet),
        [(number, import_id, cluster_id, digest, *told, *open_yet.values())],
    )
    return number


def _devices(connection: Connection, ids: Ids, spool_id: int, prepared: PreparedSpool) -> None:
    rows, hours, intervals, busy = [], [], [], []
    for device in prepared.checked.spool.devices:
        number = prepared.checked.numbers[device.uuid]
        found = prepared.figures[device.uuid]
        facts_id = intern(connection, ids, device_facts(device))
        told = [getattr(device, name) for name in _DEVICE]
        rows.append((spool_id, number, facts_id, *told, *(getattr(found, name) for name in _DEVICE_FIGURES)))
        hours += [
            (spool_id, number, hour, *(getattr(part, name) for name in _HOUR_FIGURES))
            for hour, part in found.hours.items()
        ]
        intervals += _placed(spool_id, number, _INTERVAL, found.intervals)
        busy += _placed(spool_id, number, _BUSY, found.busy)
    insert_rows(
        connection, lease_device, ("spool_id", "number", "facts_id", *_DEVICE, *_DEVICE_FIGURES), rows
    )
    insert_rows(connection, rollup_hour, ("spool_id", "number", "hour", *_HOUR_FIGURES), hours)
    insert_rows(connection, sample_interval, ("spool_id", "number", "place", *_INTERVAL), intervals)
    insert_rows(connection, ring_busy, ("spool_id", "number", "place", *_BUSY), busy)


def _placed(
    spool_id: int, number: int, names: tuple[str, ...], records: Sequence[Any]
) -> list[tuple[Any, ...]]:
    return [
        (spool_id, number, place, *(getattr(one, name) for name in names))
        for place, one in enumerate(records)
    ]


def _notes(connection: Connection, spool_id: int, checked: CheckedSpool) -> None:
    insert_rows(
        connection,
        lease_gap,
        ("spool_id", "position", "number", "from_ns", "to_ns", "reason"),
        (
            (spool_id, place, checked.numbers.get(gap.uuid or ""), gap.from_ns, gap.to_ns, gap.reason)
            for place, gap in enumerate(checked.spool.gaps)
        ),
    )
    insert_rows(
        connection,
        lease_event,
        ("spool_id", "position", "uuid", "mono_ns", "wall_ns", "kind", "detail"),
        (
            (spool_id, place, one.uuid, one.mono_ns, one.wall_ns, one.kind, one.detail)
            for place, one in enumerate(checked.spool.events)
        ),
    )


def _chunks(connection: Connection, spool_id: int, checked: CheckedSpool) -> None:
    offset = (checked.from_at or 0) - checked.from_ns // 10**9
    names = ("spool_id", "position", "kind", "first_ns", "last_ns", "last_at", "samples", "data")
    rows: list[tuple[Any, ...]] = []
    for place, one in enumerate(checked.spool.chunks()):
        at = one.last_ns // 10**9 + offset
        rows.append((spool_id, place, one.kind, one.first_ns, one.last_ns, at, one.n, one.data))
        if len(rows) == _CHUNKS_AT_ONCE:
            insert_rows(connection, sample_chunk, names, rows)
            rows = []
    insert_rows(connection, sample_chunk, names, rows)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
