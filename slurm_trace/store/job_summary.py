"""What a run's leases say of it, and where they and accounting disagree. Disagreement never makes anything smaller."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from slurm_trace.accounting.nodes import expand
from slurm_trace.accounting.tres import Gres, parse_gres, parse_tres
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.leases import LOST, one_a_part
from slurm_trace.store.models import disagreement, job_summary, lease_device, lease_event, spool_file
from slurm_trace.store.spool_check import ORPHAN
from slurm_trace.store.spool_figures import COUNTER, POWER, SOURCES

CLOCK_S = 2
"""Start is of the controller's clock, in whole seconds cut off; a lease that opens earlier than this before it has
another clock, or is not of this run. A node's clock that is behind by less shows nowhere, so every end of a lease is
taken to be this much later than that clock told."""

LATE_S = 90
"""KillWait and UnkillableStepTimeout by Slurm's defaults: a node that closes its lease later had trouble."""

SHARED = "gpu_shared"
"""Another lease may have held a device of this run at the same time: what was read of it is of both. No doubt about
the lease, so no `lease_` flag."""

PROVES_END = frozenset({"end", ORPHAN, "boot"})
"""Closes after which nothing of the job is left: its epilog ran, or the node started anew."""

_SUMMARY = tuple(column.name for column in job_summary.columns)
_SUMS = ("covered_ms", "gap_ms", "utilization_ms", "utilization_pct_ms")
_TOPS = (
    "utilization_max_pct", "power_max_mw", "memory_used_max_bytes", "sm_clock_top_mhz", "sm_clock_max_mhz",
)  # fmt: skip
Row = tuple[str, str, int | None, int | None]


def summarise(connection: Connection, runs: Sequence[tuple[Any, list[Any]]]) -> None:
    """Work out anew what the store says of some runs, each given with all its leases."""
    for chunk in in_chunks(run.id for run, _ in runs):
        connection.execute(delete(disagreement).where(disagreement.c.run_id.in_(chunk)))
        connection.execute(delete(job_summary).where(job_summary.c.run_id.in_(chunk)))
    lease_ids = [lease.id for _, leases in runs for lease in leases]
    devices, shared = _devices(connection, lease_ids), _shared(connection, lease_ids)
    summaries, rows = [], []
    for run, leases in runs:
        if leases:
            found = _Leases(run, leases, devices)
            told = found.disagreements()
            flags = {f"lease_{kind}" for kind, *_ in told}
            if not shared.isdisjoint(lease.id for lease in leases):
                flags.add(SHARED)
            values = found.summary(sorted(flags))
            summaries.append(tuple(values[name] for name in _SUMMARY))
            rows += [(run.id, *row) for row in told]
    insert_rows(connection, job_summary, _SUMMARY, summaries)
    insert_rows(connection, disagreement, ("run_id", "kind", "node", "recorded", "seen"), rows)


def _devices(connection: Connection, lease_ids: list[int]) -> dict[int, dict[str, list[Any]]]:
    """Per lease and device the rows of its parts, in order."""
    found: dict[int, dict[str, list[Any]]] = {number: {} for number in lease_ids}
    for chunk in in_chunks(lease_ids):
        files: dict[int, list[Any]] = {}
        columns = (spool_file.c[name] for name in ("id", "lease_id", "digest", "part"))
        for row in connection.execute(select(*columns).where(spool_file.c.lease_id.in_(chunk))):
            files.setdefault(row.lease_id, []).append(row)
        parts = {row.id: (number, row.part) for number, rows in files.items() for row in one_a_part(rows)}
        rows: list[Any] = []
        for ids in in_chunks(parts):
            rows += connection.execute(select(lease_device).where(lease_device.c.spool_id.in_(ids)))
        for row in sorted(rows, key=lambda row: parts[row.spool_id]):
            found[parts[row.spool_id][0]].setdefault(row.uuid, []).append(row)
    return found


def _shared(connection: Connection, lease_ids: list[int]) -> set[int]:
    """Leases of which a device may have been another lease's at the same time, as the sampler noted it."""
    found: set[int] = set()
    query = select(spool_file.c.lease_id).join(lease_event, lease_event.c.spool_id == spool_file.c.id)
    for chunk in in_chunks(lease_ids):
        here = query.where(lease_event.c.kind == "shared", spool_file.c.lease_id.in_(chunk))
        found.update(connection.execute(here.distinct()).scalars())
    return found


class _Leases:
    """A run and its leases."""

    def __init__(self, run: Any, leases: list[Any], devices: dict[int, dict[str, list[Any]]]) -> None:
        self._run = run
        self._leases = leases
        self._devices = devices
        self._by_node: dict[str, list[Any]] = {}
        for lease in leases:
            self._by_node.setdefault(lease.node, []).append(lease)
        self._nodes = _nodes(run)
        self._known = all(lease.device_count is not None for lease in leases)

    @property
    def _gpus(self) -> int:
        """Devices that its leases are known to have held."""
        held = {
            node: {uuid for lease in leases if lease.device_count for uuid in self._devices[lease.id]}
            for node, leases in self._by_node.items()
        }
        return sum(map(len, held.values()))

    def summary(self, flags: list[str]) -> dict[str, Any]:
        """The row of the run."""
        devices = [
            parts
            for lease in self._leases
            if lease.device_count is not None
            for parts in self._devices[lease.id].values()
        ]
        rows = [row for parts in devices for row in parts]
        energies = [_energy(parts) for parts in devices]
        sources = [source for _, source, _ in energies]
        measured = self._known and bool(energies) and None not in sources
        ends = [
            lease.closed_at + self._lag(lease) + CLOCK_S
            for lease in self._leases
            if lease.closed_at is not None
        ]
        return {
            "run_id": self._run.id,
            "leases": len(self._leases),
            "nodes": len(self._by_node),
            "gpus": self._gpus if any(lease.device_count is not None for lease in self._leases) else None,
            "lease_end": max(ends, default=None),
            "release_proven": self._proves(),
            **{name: sum(getattr(row, name) for row in rows) for name in _SUMS},
            **{name: _top(getattr(row, name) for row in rows) for name in _TOPS},
            "energy_mj": sum(amount for amount, _, _ in energies) if measured else None,
            "energy_from": max((s for s in sources if s), key=SOURCES.index) if measured else None,
            "energy_resets": sum(resets for _, _, resets in energies),
            "process_max": _top_of_all(row.process_max for row in rows) if self._known else None,
            "flags": " ".join(flags),
        }

    def _lag(self, lease: Any) -> int:
        """By how much at least the node's clock was behind the controller's, beyond CLOCK_S."""
        if lease.opened_at is None or self._run.start is None:
            return 0
        return max(0, int(self._run.start - lease.opened_at) - CLOCK_S)

    def _proves(self) -> bool:
        """Whether every node of the run is known to have been done with it when its lease closed."""
        if not self._nodes or not self._nodes <= self._by_node.keys():
            return False
        return all(
            lease.closed in PROVES_END
            and lease.closed_at is not None
            and not self._lag(lease)
            and not self._of_somebody_else(lease)
            and (self._run.end is None or lease.closed_at >= self._run.end)
            for lease in self._leases
        )

    def _of_somebody_else(self, lease: Any) -> bool:
        return lease.uid is not None and self._run.uid is not None and lease.uid != self._run.uid

    def disagreements(self) -> list[Row]:
        """Kind, node, what accounting recorded, what was seen; of one kind and node the one that was seen most of."""
        found: dict[tuple[str, str], Row] = {}
        for row in (*self._counts(), *(row for lease in self._leases for row in self._of_lease(lease))):
            known = found.setdefault(row[:2], row)
            if (row[3] or 0) > (known[3] or 0):
                found[row[:2]] = row
        return [found[key] for key in sorted(found)]

    def _of_lease(self, lease: Any) -> Iterator[Row]:
        run = self._run
        if self._nodes is not None and lease.node not in self._nodes:
            yield "node_not_recorded", lease.node, None, None
        if self._of_somebody_else(lease):
            yield "uid", lease.node, run.uid, lease.uid
        if self._lag(lease):
            yield "opened_early", lease.node, run.start, lease.opened_at
        if lease.closed == LOST:
            yield "lost", lease.node, run.end, lease.seen_until
        if lease.closed is not None and not lease.whole:
            yield "parts", lease.node, None, lease.part_count
        if lease.closed_at is not None and run.final and run.end is not None:
            if lease.closed_at < run.end:
                yield "closed_early", lease.node, run.end, lease.closed_at
            elif lease.closed_at > run.end + LATE_S:
                yield "closed_late", lease.node, run.end, lease.closed_at

    def _counts(self) -> list[Row]:
        rows: list[Row] = []
        missing = len((self._nodes or frozenset()) - self._by_node.keys())
        if self._nodes and missing:
            rows.append(("nodes_missing", "", len(self._nodes), len(self._nodes) - missing))
        recorded, seen = _recorded_gpus(self._run), self._gpus
        if recorded is not None and seen > recorded:
            rows.append(("gpus_more", "", recorded, seen))
        elif self._run.alloc_tres is not None and not _gres(self._run) and seen:
            rows.append(("gpus_more", "", None, seen))
        elif recorded is not None and seen < recorded and self._known and self._nodes and not missing:
            rows.append(("gpus_fewer", "", recorded, seen))
        if not self._known:
            rows.append(("gpus_unknown", "", recorded, None))
        return rows


def _nodes(run: Any) -> frozenset[str] | None:
    """The nodes of a run; None if they are not all known."""
    try:
        nodes = frozenset(expand(run.node_list))
    except ValueError:
        return None
    if not nodes or (run.node_count is not None and run.node_count != len(nodes)):
        return None
    return nodes


def _gres(run: Any) -> list[Gres]:
    if run.alloc_tres is not None:
        return list(parse_tres(run.alloc_tres).gres)
    return list(parse_gres(run.alloc_gres, run.node_count or 1))


def _recorded_gpus(run: Any) -> int | None:
    """GPUs of the allocation; None if it does not speak of any."""
    gpus = [gres for gres in _gres(run) if gres.name == "gpu"]
    if not gpus:
        return None
    untyped = max((gres.count for gres in gpus if gres.type is None), default=0)
    return max(untyped, sum(gres.count for gres in gpus if gres.type is not None))


def _energy(parts: list[Any]) -> tuple[int, str | None, int]:
    """Energy of a device over the parts of its lease: amount, source (None: not known), resets.

    Of the counter and the sampled power the larger counts: neither is known to miss nothing.
    """
    amount, source, resets = _counted(parts)
    drawn = [row.power_mj for row in parts if row.power_mj is not None]
    if source is not None and sum(drawn) > amount:
        return sum(drawn), POWER, resets
    return amount, source, resets


def _counted(parts: list[Any]) -> tuple[int, str | None, int]:
    """The same by the counter where it was read, else by the best source there is."""
    resets = sum(row.energy_resets for row in parts)
    if all(row.energy_first_mj is not None for row in parts):
        total = sum(row.energy_mj for row in parts if row.energy_from == COUNTER)
        for before, after in itertools.pairwise(parts):
            step = after.energy_first_mj - before.energy_last_mj
            total += step if step >= 0 else after.energy_first_mj
            resets += step < 0
        if len(parts) > 1 or parts[0].energy_from == COUNTER:
            return total, COUNTER, resets
    sources = [row.energy_from for row in parts]
    if None in sources:
        return 0, None, resets
    return sum(row.energy_mj for row in parts), max(sources, key=SOURCES.index), resets


def _top_of_all(values: Iterable[int | None]) -> int | None:
    """The largest, where every value is known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known, default=None) if len(known) == len(found) else None


def _top(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)
