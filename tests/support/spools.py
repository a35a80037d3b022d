"""Sealed spool files of the sampler's own writer, with what a test wants in them."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES, SAMPLE_NAMES
from slurm_trace.node.spool import MS, SAMPLE, CounterMoment, Event, Gap
from slurm_trace.node.spool_writer import Batch, ChunkRows, SpoolWriter

BOOT = "11111111-2222-3333-4444-555555555555"
S = 1_000_000_000
T0 = 1_700_000_000
UP_S = 5_000
"""Seconds since boot at T0."""


def card(uuid: str = "GPU-0", **facts: Any) -> DeviceInfo:
    """A card."""
    known = DeviceInfo(uuid, "NVIDIA H100 80GB HBM3", 0, 0, "00000000:1b:00.0", max_sm_mhz=1980)
    return replace(known, capability={"energy_mj": "ok"}, **facts)


def samples(times_s: Sequence[float], skew_ms: int = 0, **fields: Any) -> list[Sequence[int | None]]:
    """Columns of one device's samples; a field is one value for all, or one a sample; others have none."""
    columns: list[Sequence[int | None]] = [[round((UP_S + at) * 1000) for at in times_s]]
    columns.append([(T0 - UP_S) * 1000 + skew_ms] * len(times_s))
    for name in SAMPLE_NAMES:
        value = fields.get(name)
        columns.append([value] * len(times_s) if value is None or isinstance(value, int) else list(value))
    return columns


def counter(
    at_s: float, uuid: str = "GPU-0", moment: str = "periodic", **values: int | None
) -> CounterMoment:
    """Counters of a device, `at_s` after T0."""
    known = {**dict.fromkeys(COUNTER_NAMES), **values}
    return CounterMoment(moment, round((UP_S + at_s) * S), 1_000_000, round((T0 + at_s) * S), uuid, known)


def gap(from_s: float, to_s: float | None, uuid: str | None = "GPU-0", reason: str = "lost") -> Gap:
    """A stretch without samples, in seconds after T0."""
    return Gap(uuid, round((UP_S + from_s) * S), None if to_s is None else round((UP_S + to_s) * S), reason)


def spool(
    folder: Path,
    job: int = 1,
    *,
    begin: float = 10,
    end: float | None = 110,
    devices: Sequence[DeviceInfo] = (card("GPU-0"), card("GPU-1")),
    columns: Mapping[str, Sequence[Sequence[int | None]]] | None = None,
    chunks: Sequence[ChunkRows] | None = None,
    counters: Sequence[CounterMoment] = (),
    gaps: Sequence[Gap] = (),
    events: Sequence[Event] = (),
    closed: str = "end",
    part: int = 0,
    opened: float | None = None,
    attribution: str = "uuid",
    node: str = "n1",
    change: Callable[[sqlite3.Connection], None] | None = None,
    meta: Mapping[str, Any] | None = None,
    **lease: str | None,
) -> Path:
    """Write and seal a file; times are seconds after T0. Without `columns` every device has a sample a second.

    Args:
        chunks: Samples cut into several chunks, in place of `columns`.
        opened: Of the lease; `begin` is of this part.
        change: Done to the closed file before it is sealed.
        meta: Rows of its meta table, beside or in place of the usual ones.
        lease: What else the hook wrote; None takes a line away.
    """
    at = begin if opened is None else opened
    said = {
        "job_id": str(job), "moment": str(round((UP_S + at) * 100)), "boot_id": BOOT, "opened_at": repr(T0 + at),
        "cluster": "c", "node": node, "uid": "1000", "user": "ada", **lease,
    }  # fmt: skip
    if closed == "orphan":
        said = {key: said[key] for key in ("job_id", "moment", "boot_id")} | lease
    begun = {f"lease.{key}": value for key, value in said.items() if value is not None}
    path = folder / f".{job}.{part}.{len(list(folder.iterdir()))}.open"
    writer = SpoolWriter.create(
        path,
        {"part": part, "from_ns": round((UP_S + begin) * S), "from_wall_ns": round((T0 + begin) * S),
         "interval_ms": 1000, "version": "0.1", "attribution": attribution, **begun},
        list(devices),
    )  # fmt: skip
    if chunks is None and columns is None and end is not None:
        usual = samples(
            range(int(begin) + 1, int(end) + 2), utilization_pct=50, power_mw=300_000, sm_clock_mhz=1900
        )
        columns = {device.uuid: usual for device in devices}
    span = (round((UP_S + begin) * S), round((UP_S + (begin if end is None else end)) * S))
    if chunks is None:
        chunks = [ChunkRows(SAMPLE, *span, columns)] if columns else []
    batch = Batch(
        chunks=list(chunks),
        counters=list(counters),
        gaps=list(gaps),
        events=list(events),
        clock=[(round((UP_S + begin) * S), round((T0 + begin) * S))],
        meta={
            "to_ns": None if end is None else round((UP_S + end) * S),
            "to_wall_ns": None if end is None else round((T0 + end) * S),
            "closed": closed,
            **(meta or {}),
        },
    )
    writer.write(batch)
    writer.finish()
    if change is not None:
        with closing(sqlite3.connect(path)) as file:
            change(file)
            file.commit()
    return seal(path, f"c_{node}_{job}_{said['moment']}")


def seal(path: Path, stem: str) -> Path:
    """Name a file by its hash, as the courier does."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(path.with_name(f"{stem}.{digest}.spool"))


__all__ = ["BOOT", "MS", "T0", "card", "counter", "gap", "samples", "seal", "spool"]
