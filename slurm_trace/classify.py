"""From the store to purpose evidence on one run: what was recorded and measured, as the analysis wants it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from slurm_trace.accounting.tres import Gres, parse_gres, parse_tres
from slurm_trace.analysis.evidence.chain import Member, chain_length
from slurm_trace.analysis.evidence.channels import Channels, load
from slurm_trace.analysis.evidence.features import FEATURES
from slurm_trace.analysis.evidence.finding import Finding, find
from slurm_trace.analysis.evidence.inputs import Device, Hour, Run, Series
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.engine import Store
from slurm_trace.store.job_summary import SHARED
from slurm_trace.store.purpose import DeviceRecord, PurposeRecords, load_purpose
from slurm_trace.store.spool_figures import COUNTER


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """The evidence on one run, not yet in the form of any report."""

    registry: Channels
    records: PurposeRecords
    run: Run
    finding: Finding


def classify(store: Store, run_id: int) -> Classification:
    """Weigh what the store holds of a run.

    Raises:
        CheckFailed: The second computation of the sums disagrees with the first.
    """
    registry = channels()
    records = load_purpose(store, run_id)
    run = run_of(records)
    return Classification(registry, records, run, find(registry, run))


@cache
def channels() -> Channels:
    """The built-in registry of channels."""
    return load(FEATURES)


def run_of(records: PurposeRecords) -> Run:
    """The run as the analysis wants it."""
    row, summary = records.run, records.summary
    kin = [Member(one.run_id, one.job_id_raw, one.start, one.end) for one in records.kin]
    return Run(
        gpu_count=_gpu_count(records),
        elapsed_s=row.elapsed_s if row.started else None,
        chain_length=chain_length(row.id, kin) if row.started else None,
        leases=0 if summary is None else summary.leases,
        devices_known=records.devices_known,
        devices_shared=summary is not None and SHARED in summary.flags.split(),
        devices=tuple(map(_device, records.devices)),
    )


def _gpu_count(records: PurposeRecords) -> int | None:
    """GPUs by accounting or by leases, whichever is more; no GPU recorded is no proof where GPUs are not counted."""
    recorded = _recorded_gpus(records)
    summary = records.summary
    seen: int | None = summary.gpus if summary is not None and records.devices_known else None
    if seen is None:
        return recorded
    return max(seen, recorded or 0)


def _recorded_gpus(records: PurposeRecords) -> int | None:
    row = records.run
    gres: Iterable[Gres] = ()
    if row.alloc_tres:
        tres = parse_tres(row.alloc_tres)
        if tres.unreadable:
            return None
        gres = tres.gres
    elif row.alloc_gres:
        gres = parse_gres(row.alloc_gres, row.node_count or 1)
    else:
        return None
    gpus = [one for one in gres if one.name == "gpu"]
    if not gpus:
        return 0 if records.gpus_recorded and not gres else None
    untyped = max((one.count for one in gpus if one.type is None), default=0)
    return max(untyped, sum(one.count for one in gpus if one.type is not None))


def _device(record: DeviceRecord) -> Device:
    parts = record.parts
    covered, gap = sum(part.covered_ms for part in parts), sum(part.gap_ms for part in parts)
    moved, moved_ms = _moved(record)
    energies = [part.energy_mj for part in parts]
    # The counter speaks of a part as a whole, samples of the time that they cover.
    energy_ms = sum(p.covered_ms + (p.gap_ms if p.energy_from == COUNTER else 0) for p in parts)
    series = None if record.times_ms is None else Series(record.times_ms, record.samples)
    return Device(
        uuid=record.uuid,
        node=record.node,
        begin_ms=record.begin_ms,
        memory_total_bytes=parts[0].memory_total_bytes,
        memory_used_max_bytes=_top(part.memory_used_max_bytes for part in parts),
        power_limit_mw=_top(facts.get("power_limit_mw") for facts in record.facts),
        covered_ms=covered,
        gap_ms=gap,
        energy_mj=None if None in energies else sum(energies),
        energy_ms=energy_ms,
        hours=tuple(
            Hour(h.hour, h.covered_ms, h.gap_ms, h.utilization_ms, h.utilization_pct_ms) for h in record.hours
        ),
        moved=moved,
        moved_ms=moved_ms,
        series=series,
    )


def _moved(record: DeviceRecord) -> tuple[Mapping[str, int], int]:
    """By how much each counter rose over all parts, and in which time; a part without two readings tells of none."""
    edges = [edge for edge in record.counters if edge is not None]
    if len(edges) < len(record.counters) or not edges:
        return {}, 0
    moved: dict[str, int] = {}
    for name in COUNTER_NAMES:
        rises = [_rise(getattr(first, name), getattr(last, name)) for first, last in edges]
        if None not in rises:
            moved[name] = sum(rise for rise in rises if rise is not None)
    return moved, sum(last.mono_ns - first.mono_ns for first, last in edges) // 10**6


def _rise(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None or last < first else last - first


def _top(values: Iterable[Any]) -> int | None:
    return max((value for value in values if value is not None), default=None)
