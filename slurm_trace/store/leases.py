"""What is told of a lease: worked out of all its spool files, whichever came first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from slurm_trace.store.bulk import in_chunks
from slurm_trace.store.models import lease, lease_device, spool_file
from slurm_trace.store.spool_check import PART_GOES_ON, PROVEN_ATTRIBUTIONS

LOST = "lost"
"""How a lease is closed whose epilog the sampler gave up waiting for: that is no end."""

S = 10**9

_TOLD = (
    "seen_until", "closed", "closed_at", "attribution", "device_count", "part_count", "whole", "covered_ms", "gap_ms",
    "joined_in",
)  # fmt: skip
_UPDATE = (
    update(lease)
    .where(lease.c.id == bindparam("at_id"))
    .values({name: bindparam(f"new_{name}") for name in _TOLD})
)


def refresh_leases(connection: Connection, lease_ids: Iterable[int]) -> None:
    """Tell of these leases what their files say now; which run they are of is to be looked for anew."""
    for chunk in in_chunks(lease_ids):
        files: dict[int, list[Any]] = {number: [] for number in chunk}
        query = select(spool_file).where(spool_file.c.lease_id.in_(chunk))
        for row in connection.execute(query):
            files[row.lease_id].append(row)
        chosen = {number: one_a_part(rows) for number, rows in files.items()}
        sums = _sums(connection, [row.id for rows in chosen.values() for row in rows])
        changes = []
        for number, rows in chosen.items():
            told = _told(rows, len(files[number]), [sums[row.id] for row in rows if row.id in sums])
            changes.append({"at_id": number, **{f"new_{name}": told[name] for name in _TOLD}})
        connection.execute(_UPDATE, changes)


def one_a_part(files: Iterable[Any]) -> list[Any]:
    """The parts of a lease in order. Where two files claim to be the same part, one counts, always the same."""
    parts: dict[int, Any] = {}
    for row in sorted(files, key=lambda row: row.digest):
        parts.setdefault(row.part, row)
    return [parts[part] for part in sorted(parts)]


def _sums(connection: Connection, spool_ids: Sequence[int]) -> dict[int, tuple[int, int, set[str]]]:
    found: dict[int, tuple[int, int, set[str]]] = {}
    columns = (lease_device.c[name] for name in ("spool_id", "uuid", "covered_ms", "gap_ms"))
    query = select(*columns)
    for chunk in in_chunks(spool_ids):
        for spool, uuid, covered, gap in connection.execute(query.where(lease_device.c.spool_id.in_(chunk))):
            before = found.get(spool, (0, 0, set()))
            found[spool] = (before[0] + covered, before[1] + gap, before[2] | {uuid})
    return found


def _told(parts: list[Any], files: int, sums: list[tuple[int, int, set[str]]]) -> dict[str, Any]:
    last = max((row for row in parts if row.closed not in PART_GOES_ON), key=_end, default=None)
    numbers = [row.part for row in parts]
    attributions = {row.attribution for row in parts}
    doubtful = sorted(attributions - set(PROVEN_ATTRIBUTIONS))
    return {
        "seen_until": max((row.to_at for row in parts if row.to_at is not None), default=None),
        "closed": None if last is None else last.closed,
        "closed_at": None if last is None or last.closed == LOST else _closed_at(parts, last),
        "attribution": doubtful[0] if doubtful else parts[-1].attribution,
        "device_count": None if doubtful else len(set().union(*(uuids for _, _, uuids in sums))),
        "part_count": files,
        "whole": last is parts[-1] and numbers == list(range(len(parts))) and files == len(parts),
        "covered_ms": sum(covered for covered, _, _ in sums),
        "gap_ms": sum(gap for _, gap, _ in sums),
        "joined_in": None,
    }


def _closed_at(parts: list[Any], last: Any) -> int | None:
    """When the lease was closed. A wall clock that was set back meanwhile makes that no earlier: uptime went on."""
    told: int | None = last.to_at
    if told is None or last.to_ns is None:
        return told
    # Begins were cut off to whole seconds, ends rounded up.
    begun = [(row.from_at + 1, row.from_ns) for row in parts if row.from_at is not None]
    latest: int = max((at + -(-(last.to_ns - ns) // S) for at, ns in begun), default=told)
    return latest if latest > told + 1 else told


def _end(row: Any) -> tuple[bool, int, str]:
    return (row.to_at is not None, row.to_at or 0, row.digest)
