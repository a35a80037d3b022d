"""Spool files come from nodes, where a job may have been root: read them without believing anything in them.

What a file says of itself is checked before it is unpacked: hash, tables, number of rows; and each value before it is
used.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_trace.node.columns import BlockDamaged
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES, FIELDS, invalid
from slurm_trace.node.spool import Chunk, Spool, SpoolDamaged, read_spool
from slurm_trace.store.bulk import NO_INTEGER
from slurm_trace.store.fit import INT_MAX
from slurm_trace.store.models import NAME_MAX
from slurm_trace.store.spool_copy import sealed_as
from slurm_trace.store.spool_values import (
    EPOCH_MAX_NS,
    Damaged,
    check_digits,
    check_epoch,
    check_number,
    check_pattern,
    check_text,
    check_word,
    optional_digits,
    optional_number,
    optional_text,
    optional_word,
)

MAX_PART_S = 400 * 86_400
"""Longest stretch of a lease in one file; the sampler begins a new file every day."""

LIMITS = {
    "meta": 500, "clock": 100_000, "device": 256, "counter_read": 500_000, "chunk": 200_000, "gap": 200_000,
    "event": 200_000, "tally": 20_000,
}  # fmt: skip
"""Most rows of each table."""

MAX_CHUNK_BYTES = 4 << 20
"""Largest chunk: doubled by escapes it still fits MariaDB's packet. A minute of eight GPUs is below 20 kB."""
_MAX_VALUE_BYTES = 32 << 20
_MAX_COLUMNS = 64
_CHECK_LIMIT_S = 120.0
_STEPS_BETWEEN_LOOKS = 100_000

PROVEN_ATTRIBUTIONS = ("uuid", "gres", "whole_node", "none")
"""How the devices of a lease were found, where that leaves no doubt; see slurm_trace.node.attribution."""
_ATTRIBUTIONS = (*PROVEN_ATTRIBUTIONS, "ambiguous", "unknown")

COUNTER_HEAD = 5
"""Values of a counter read before its counters: number of the device, moment, mono_ns, took_ns, wall_ns."""

PART_GOES_ON = ("part", "stop")
"""How a part is closed that another one follows."""
ORPHAN = "orphan"
"""How it is closed where no prolog had been seen."""

_UNREADABLE = (
    ArithmeticError, AttributeError, BlockDamaged, LookupError, MemoryError, RecursionError, TypeError, ValueError,
    sqlite3.Error,
)  # fmt: skip
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}", re.ASCII)
_COLUMN = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """What the hooks wrote of a lease; times in epoch seconds by the node's clock."""

    job_id: int
    moment: int
    boot_id: str
    node: str
    cluster: str | None
    sluid: str | None
    start_time: int | None
    het_job_id: int | None
    uid: int | None
    user: str | None
    account: str | None
    partition: str | None
    gpus: str | None
    opened_at: int | None
    said: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CheckedSpool:
    """A spool file whose every value but those in its chunks has been checked.

    Attributes:
        spool: To read the chunks from.
        size: Bytes of the file.
        from_at: Begin of the part by the node's clock, rounded down.
        to_at: Its end, rounded up; None where it is not known.
        columns: JSON of the names and grains of its columns.
        facts: JSON of what has no column of its own.
        numbers: The number of each device in the chunks, by UUID.
        counters: Per counter read: device number, moment, mono, took, wall, and the counters.
        invalid: Per device, counters that cannot be true.
    """

    spool: Spool
    name: str
    size: int
    lease: LeaseFacts
    part: int
    from_ns: int
    to_ns: int | None
    from_at: int | None
    to_at: int | None
    closed: str
    attribution: str
    interval_ms: int | None
    version: str | None
    driver_version: str | None
    columns: str
    facts: str
    numbers: Mapping[str, int]
    counters: Sequence[tuple[Any, ...]]
    invalid: Mapping[str, int]

    @property
    def final(self) -> bool:
        """No part follows."""
        return self.closed not in PART_GOES_ON

    @property
    def device_count(self) -> int | None:
        """Devices that the lease held; None where that is not known."""
        return len(self.numbers) if self.attribution in PROVEN_ATTRIBUTIONS else None


@contextmanager
def reading(copy: Path) -> Iterator[None]:
    """Whatever reading a forged file can raise comes out as Damaged."""
    try:
        yield
    except SpoolDamaged as problem:
        raise Damaged(str(problem).removeprefix(f"{copy}: ")) from None
    except _UNREADABLE as error:
        text = " ".join(str(error).split())[:200]
        raise Damaged(f"not what a sampler writes ({type(error).__name__}: {text})") from None


def read_checked(copy: Path, size: int, digest: str) -> CheckedSpool:
    """Check a copied spool file, which has kept its name.

    Args:
        copy: The copy.
        size: Its size.
        digest: Its SHA-256.

    Raises:
        Damaged: It is not what was sealed, or nothing that a sampler writes.
    """
    sealed = sealed_as(copy.name)
    if sealed is None:
        raise Damaged("no sealed spool file: its name has no SHA-256")
    if sealed != digest:
        raise Damaged(f"changed or cut short after it was sealed: its SHA-256 is {digest}")
    with reading(copy):
        numbers = _look_inside(copy)
        return _checked(read_spool(copy), numbers, copy.name, size)


def _look_inside(copy: Path) -> dict[Any, Any]:
    """Nothing but plain tables of bounded size, in a database that is whole.

    Returns:
        The numbers that its chunks have for the devices, by UUID.
    """
    deadline = time.monotonic() + _CHECK_LIMIT_S
    with closing(sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        file.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON"):
            file.execute(f"PRAGMA {pragma}")
        tables = set()
        for kind, name, root in file.execute("SELECT type, name, rootpage FROM sqlite_master LIMIT 100"):
            if kind == "index" and str(name).startswith("sqlite_autoindex_"):
                continue
            if kind != "table" or not root or name not in LIMITS:
                raise Damaged("it holds something else than the tables of a spool")
            tables.add(name)
        for name in sorted(tables):
            if any(column[6] for column in file.execute(f"PRAGMA table_xinfo({name})")):
                raise Damaged(f"table {name} has columns that are worked out")
            (rows,) = file.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 (a name of LIMITS)
            if rows > LIMITS[name]:
                raise Damaged(f"table {name} has {rows} rows, more than {LIMITS[name]}")
        if file.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
            raise Damaged("its database is damaged")
        return dict(file.execute("SELECT uuid, number FROM device"))


def _checked(spool: Spool, named: dict[Any, Any], name: str, size: int) -> CheckedSpool:
    meta = {check_text("meta", key, 64): value for key, value in spool.meta.items()}
    numbers = _devices(spool, named)
    from_ns = check_number("from_ns", spool.from_ns, 0)
    to_ns = optional_number("to_ns", spool.to_ns, from_ns)
    if to_ns is not None and to_ns - from_ns > MAX_PART_S * 10**9:
        raise Damaged(f"it is of {(to_ns - from_ns) // 10**9} s, longer than any part of a lease")
    attribution = check_word("attribution", spool.attribution, 32)
    if attribution not in _ATTRIBUTIONS:
        raise Damaged(f"attribution {attribution!r} is none that this version knows")
    counters, untrue = _counters(spool, numbers)
    _check_rows(spool, numbers)
    to_wall = optional_number("to_wall_ns", meta.get("to_wall_ns"), 0, EPOCH_MAX_NS)
    from_wall = optional_number("from_wall_ns", meta.get("from_wall_ns"), 0, EPOCH_MAX_NS)
    return CheckedSpool(
        spool=spool,
        name=check_text("name", name, 1024),
        size=size,
        lease=_lease(spool),
        part=check_number("part", spool.part, 0, 10**6),
        from_ns=from_ns,
        to_ns=to_ns,
        from_at=None if from_wall is None else from_wall // 10**9,
        to_at=None if to_wall is None else -(-to_wall // 10**9),
        closed=check_word("closed", spool.closed, 32),
        attribution=attribution,
        interval_ms=optional_number("interval_ms", meta.get("interval_ms"), 0, 10**9),
        version=optional_text("version", meta.get("version"), 64),
        driver_version=optional_text("driver_version", meta.get("driver_version"), 256),
        columns=_columns(meta),
        facts=_facts(spool, meta),
        numbers=numbers,
        counters=counters,
        invalid=untrue,
    )


def _lease(spool: Spool) -> LeaseFacts:
    said = {
        check_text("lease", key, 64): check_text(f"lease.{key}", value, 8192)
        for key, value in spool.lease.items()
    }
    # An epilog without a prolog: all that is known is what it said itself.
    known = {**spool.end, **said} if spool.closed == ORPHAN else said
    node = known.get("node", "")
    opened = said.get("opened_at")
    return LeaseFacts(
        job_id=check_digits("job_id", said["job_id"], 1, 2**32 - 1),
        moment=check_digits("moment", said["moment"], 0),
        boot_id=check_pattern("boot_id", said["boot_id"], _BOOT_ID),
        node=check_word("node", node, NAME_MAX),
        cluster=optional_word(known.get("cluster"), NAME_MAX),
        sluid=optional_word(known.get("sluid"), 64),
        start_time=optional_digits("start_time", known.get("start_time")),
        het_job_id=optional_digits("het_job_id", said.get("het_job_id")),
        uid=optional_digits("uid", said.get("uid")),
        user=optional_word(said.get("user"), 256),
        account=optional_word(said.get("account"), 256),
        partition=optional_word(said.get("partition"), 256),
        gpus=None if "gpus" not in said else check_word("gpus", said["gpus"], 8192),
        opened_at=None if opened is None else check_epoch("opened_at", opened),
        said=tuple(sorted({**said, "node": node}.items())),
    )


def _devices(spool: Spool, named: dict[Any, Any]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for device in spool.devices:
        uuid = check_word("uuid", device.uuid, NAME_MAX)
        if not uuid or uuid in numbers:
            raise Damaged("a device without a name, or twice the same")
        for what in ("index", "minor", "gpu_instance", "compute_instance", "sm_count", "memory_total_bytes"):
            optional_number(what, getattr(device, what), 0)
        for what in ("max_sm_mhz", "max_mem_mhz", "power_limit_mw"):
            optional_number(what, getattr(device, what), 0)
        for what in ("name", "pci", "parent_uuid", "mig_profile", "power_scope"):
            optional_text(what, getattr(device, what), 256)
        for field, reason in device.capability.items():
            check_text("capability", field, 64)
            check_text("capability", reason, 64)
        if len(device.capability) > 200:
            raise Damaged("more capabilities than fields")
        numbers[uuid] = check_number("device", named[uuid], 0, 2**31 - 1)
    return numbers


def device_facts(device: DeviceInfo) -> str:
    """JSON of what of a device has no column."""
    names = ("gpu_instance", "compute_instance", "mig_enabled", "max_sm_mhz", "max_mem_mhz", "power_limit_mw")
    facts = {name: getattr(device, name) for name in (*names, "virtual", "persistence")}
    return json.dumps({**facts, "capability": dict(device.capability)}, sort_keys=True)


def _counters(spool: Spool, numbers: Mapping[str, int]) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    rows: list[tuple[Any, ...]] = []
    untrue = dict.fromkeys(numbers, 0)
    for read in spool.counters:
        if read.uuid not in numbers:
            raise Damaged("counters of a device that it does not list")
        values = []
        for name in COUNTER_NAMES:
            value = read.values.get(name)
            if value is not None:
                value = check_number(name, value, NO_INTEGER)
                if invalid(FIELDS[name], value):
                    value = None
                    untrue[read.uuid] += 1
            values.append(value)
        mono_ns = check_number("mono_ns", read.mono_ns, 0)
        # The end of the read is stored too.
        times = (mono_ns, check_number("took_ns", read.took_ns, 0, INT_MAX - mono_ns))
        wall = check_number("wall_ns", read.wall_ns, NO_INTEGER)
        rows.append((numbers[read.uuid], check_word("moment", read.moment, 32), *times, wall, *values))
    return rows, untrue


def _check_rows(spool: Spool, numbers: Mapping[str, int]) -> None:
    for gap in spool.gaps:
        if gap.uuid is not None and gap.uuid not in numbers:
            raise Damaged("a gap of a device that it does not list")
        check_number("gap", gap.from_ns, 0)
        optional_number("gap", gap.to_ns, 0)
        check_text("gap", gap.reason, 256)
    for event in spool.events:
        check_number("event", event.mono_ns, 0)
        check_number("event", event.wall_ns, NO_INTEGER)
        optional_text("event", event.uuid, NAME_MAX)
        check_text("event", event.kind, 256)
        check_text("event", event.detail, 4096)


def check_chunk(chunk: Chunk) -> Chunk:
    """A chunk whose description can be stored.

    Raises:
        Damaged: It cannot.
    """
    check_text("chunk", chunk.kind, 64)
    check_number("chunk", chunk.first_ns, NO_INTEGER)
    check_number("chunk", chunk.last_ns, NO_INTEGER)
    check_number("chunk", chunk.n, 0)
    if not isinstance(chunk.data, bytes) or len(chunk.data) > MAX_CHUNK_BYTES:
        raise Damaged("a chunk of no bytes, or of too many")
    return chunk


def _columns(meta: Mapping[str, Any]) -> str:
    found: dict[str, list[Any]] = {}
    for kind in ("sample_columns", "ring_columns"):
        found[kind] = json.loads(check_text(kind, meta[kind], 16_384))
        if not 1 <= len(found[kind]) <= _MAX_COLUMNS:
            raise Damaged(f"{kind} are {len(found[kind])}")
        for name, grain in found[kind]:
            check_pattern(kind, name, _COLUMN)
            check_number(kind, grain, 1, 2**40)
    if not {"mono_ms", "wall_offset_ms"} <= {name for name, _ in found["sample_columns"]}:
        raise Damaged("its samples have no time")
    return json.dumps(found)


_OWN_COLUMN = (
    "format", "sample_columns", "ring_columns", "counters", "part", "from_ns", "to_ns", "from_wall_ns", "to_wall_ns",
    "closed", "attribution", "interval_ms", "version", "driver_version", "wants_devices", "clock",
)  # fmt: skip


def _facts(spool: Spool, meta: Mapping[str, Any]) -> str:
    rest: dict[str, Any] = {}
    for key, value in meta.items():
        if key not in _OWN_COLUMN and not key.startswith("lease."):
            rest[key] = value if isinstance(value, int) else optional_text(key, value, 8192)
    tallies = [
        [
            *(check_text("tally", part, 256) for part in (one.uuid, one.field, one.reason)),
            check_number("tally", one.n, 0),
        ]
        for one in spool.tallies
    ]
    clock = [
        [check_number("clock", mono, 0), check_number("clock", wall, NO_INTEGER)]
        for mono, wall in spool.clock
    ]
    return json.dumps({"meta": rest, "clock": clock, "tallies": tallies}, sort_keys=True)
