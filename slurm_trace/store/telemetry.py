"""What the nodes' counters prove of each run: worked out when its leases or its record change, read by reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd
from sqlalchemy import Connection, Table, delete, select

from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.engine import Store
from slurm_trace.store.interned import intern
from slurm_trace.store.leases import one_a_part
from slurm_trace.store.models import (
    counter_read,
    interned,
    job_run,
    lease,
    lease_device,
    ring_busy,
    run_cycles,
    sample_interval,
    spool_file,
)
from slurm_trace.store.numbers import load_numbers
from slurm_trace.store.stretches import Kind, Read, S, Stretch, Trail, Witness, stretches

CLOCK_S = 2
"""How far the node's clock may be behind the controller's unnoticed: so much before the release is not proven."""

SUMS = (
    "seconds", "elapsed_kcycles", "active_kcycles", "tensor_kcycles", "dmma_kcycles", "vector_kcycles",
    "vector_fp_kcycles", "busy_ms",
)  # fmt: skip
_WITNESS = tuple(f.name for f in fields(Witness))


@dataclass(frozen=True, slots=True)
class StoredCycles:
    """What is proven of all runs, summed by run and kind.

    Attributes:
        table: Columns run_id, kind (a code), and SUMS.
        kinds: The kinds by code.
    """

    table: pd.DataFrame
    kinds: tuple[Kind, ...]


def store_cycles(connection: Connection, ids: Ids, runs: Sequence[tuple[Any, list[Any]]]) -> None:
    """Work out anew what is proven of some runs, each given with all its leases."""
    for chunk in in_chunks(run.id for run, _ in runs):
        connection.execute(delete(run_cycles).where(run_cycles.c.run_id.in_(chunk)))
    trails = _trails(connection, [one for _, leases in runs for one in leases])
    rows: list[tuple[int, ...]] = []
    kind_ids: dict[Kind, int] = {}
    for run, leases in runs:
        sums: dict[Kind, list[int]] = {}
        for stretch in _of_run(run, leases, trails):
            total = sums.setdefault(stretch.kind, [0] * len(SUMS))
            for place, amount in enumerate(_amounts(stretch)):
                total[place] += amount
        for kind, total in sums.items():
            if kind not in kind_ids:
                kind_ids[kind] = intern(connection, ids, json.dumps(asdict(kind), sort_keys=True))
            rows.append((run.id, kind_ids[kind], *total))
    insert_rows(connection, run_cycles, ("run_id", "kind_id", *SUMS), rows)


def _amounts(stretch: Stretch) -> tuple[int, ...]:
    c = stretch.cycles
    return (
        stretch.seconds, c.elapsed, c.active, c.tensor, c.dmma, c.vector, c.vector_fp, stretch.busy_ms,
    )  # fmt: skip


def load_cycles(store: Store) -> StoredCycles:
    """What is proven of all runs."""
    columns = ("run_id", "kind_id", *SUMS)
    with store.reading() as connection:
        values = load_numbers(connection, [run_cycles.c[name] for name in columns])
        table = pd.DataFrame(values, columns=["run_id", "kind", *SUMS])
        codes, ids = pd.factorize(table["kind"])
        table["kind"] = codes
        texts: dict[int, str] = {}
        for chunk in in_chunks(ids.tolist()):
            told = select(interned.c.id, interned.c.text).where(interned.c.id.in_(chunk))
            texts.update((row.id, row.text) for row in connection.execute(told))
    return StoredCycles(table, tuple(Kind(**json.loads(texts[number])) for number in ids.tolist()))


def load_stretches(store: Store, run_id: int) -> list[Stretch]:
    """What is proven of one run, stretch by stretch and device by device."""
    with store.reading() as connection:
        run = connection.execute(select(job_run).where(job_run.c.id == run_id)).one()
        leases = list(
            connection.execute(select(lease).where(lease.c.run_id == run_id).order_by(lease.c.digest))
        )
        return _of_run(run, leases, _trails(connection, leases))


def _of_run(run: Any, leases: Sequence[Any], trails: Mapping[int, list[_Part]]) -> list[Stretch]:
    since, until = _reach(run, leases)
    if since is None or until is None:
        return []
    by_device: dict[tuple[str, str, str], list[_Part]] = {}
    for one in leases:
        for part in trails.get(one.id, ()):
            by_device.setdefault((one.node, one.boot_id, part.uuid), []).append(part)
    found = []
    for (node, _, _), parts in sorted(by_device.items()):
        found += stretches(_joined(node, parts), since, until)
    return found


def _reach(run: Any, leases: Sequence[Any]) -> tuple[int | None, int | None]:
    """The time within which the run's record, or its leases, say that it held its devices."""
    if not run.final:
        return run.start, None if run.queried_at is None else run.queried_at - CLOCK_S
    ends = [end for end in (run.end, *(one.closed_at for one in leases)) if end is not None]
    return run.start, max(ends) - CLOCK_S if ends else None


@dataclass(frozen=True, slots=True)
class _Part:
    """One device of one spool file."""

    uuid: str
    device: Any
    power_limit_mw: int | None
    wall_ns: int
    reads: list[Read]
    witnesses: list[Witness]
    busy: list[tuple[int, int, int]]


def _joined(node: str, parts: Sequence[_Part]) -> Trail:
    """The parts of a device as one: its counters go on from file to file."""
    first = min(parts, key=lambda part: (part.reads[0].mono_ns if part.reads else 1 << 63, part.wall_ns))
    reads = {read.mono_ns: read for part in parts for read in part.reads}
    limits = [part.power_limit_mw for part in parts]
    clocks = [
        value
        for part in parts
        for value in (part.device.sm_clock_max_mhz, part.device.sm_clock_top_mhz)
        if value is not None
    ]
    one = first.device
    alike = all((part.device.name, part.device.mig_profile) == (one.name, one.mig_profile) for part in parts)
    counts = [part.device.sm_count for part in parts if part.device.sm_count is not None]
    return Trail(
        node=node,
        uuid=first.uuid,
        name=one.name if alike else None,
        mig_profile=one.mig_profile,
        sm_count=max(counts, default=None),
        clock_max_mhz=max(clocks, default=None)
        if any(part.device.sm_clock_max_mhz for part in parts)
        else None,
        # The lowest: a card at work then shows soonest.
        power_limit_mw=min((limit for limit in limits if limit is not None), default=None),
        wall_ns=first.wall_ns,
        reads=tuple(reads[at] for at in sorted(reads)),
        witnesses=tuple(dict.fromkeys(w for part in parts for w in part.witnesses)),
        busy=_disjoint(window for part in parts for window in part.busy),
    )


def _disjoint(windows: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Two leases may tell of the same time: what overlaps counts once."""
    found: list[tuple[int, int, int]] = []
    for window in sorted(set(windows)):
        if not found or window[0] >= found[-1][1]:
            found.append(window)
    return tuple(found)


def _trails(connection: Connection, leases: Sequence[Any]) -> dict[int, list[_Part]]:
    """The parts of each lease whose devices are known."""
    wanted = [one.id for one in leases if one.device_count]
    files: dict[int, list[Any]] = {}
    for chunk in in_chunks(wanted):
        for row in connection.execute(select(spool_file).where(spool_file.c.lease_id.in_(chunk))):
            files.setdefault(row.lease_id, []).append(row)
    chosen = {row.id: row for rows in files.values() for row in one_a_part(rows)}
    reads = _of_devices(connection, counter_read, chosen, counter_read.c.mono_ns)
    seen = _of_devices(connection, sample_interval, chosen, sample_interval.c.place)
    busy = _of_devices(connection, ring_busy, chosen, ring_busy.c.place)
    found: dict[int, list[_Part]] = {}
    devices = select(lease_device, interned.c.text).join(interned, interned.c.id == lease_device.c.facts_id)
    for chunk in in_chunks(chosen):
        for device in connection.execute(devices.where(lease_device.c.spool_id.in_(chunk))):
            file, key = chosen[device.spool_id], (device.spool_id, device.number)
            mine = reads.get(key, [])
            found.setdefault(file.lease_id, []).append(
                _Part(
                    device.uuid,
                    device,
                    json.loads(device.text).get("power_limit_mw"),
                    mine[0].wall_ns - mine[0].mono_ns if mine else (file.from_at or 0) * S - file.from_ns,
                    [
                        Read(r.mono_ns, r.took_ns, file.driver_version, tuple(r[-len(COUNTER_NAMES) :]))
                        for r in mine
                    ],
                    [Witness(*(getattr(w, name) for name in _WITNESS)) for w in seen.get(key, ())],
                    [(w.from_ms, w.to_ms, w.busy_ms) for w in busy.get(key, ())],
                )
            )
    return found


def _of_devices(
    connection: Connection, table: Table, spool_ids: Iterable[int], order: Any
) -> dict[tuple[int, int], list[Any]]:
    found: dict[tuple[int, int], list[Any]] = {}
    for chunk in in_chunks(spool_ids):
        for row in connection.execute(select(table).where(table.c.spool_id.in_(chunk)).order_by(order)):
            found.setdefault((row.spool_id, row.number), []).append(row)
    return found
