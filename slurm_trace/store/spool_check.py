"""Spool files come from nodes, where a job may have been root: read them without believing anything in them.

A file is copied first, so that nobody can change it between the check and the reading. What the copy says of itself is
checked before it is unpacked: hash, tables, number of rows; and each value before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_trace.errors import EnvironmentProblem, InputProblem
from slurm_trace.node.columns import BlockDamaged
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES, FIELDS, invalid
from slurm_trace.node.spool import Chunk, Spool, SpoolDamaged, read_spool
from slurm_trace.store.bulk import NO_INTEGER
from slurm_trace.store.fit import INT_MAX, text_reason
from slurm_trace.store.models import NAME_MAX

MAX_BYTES = 256 << 20
"""A day of eight GPUs read every second is below 8 MB."""

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
_BLOCK_BYTES = 1 << 20

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
_SEALED = re.compile(r".+\.([0-9a-f]{64})\.spool")
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_.,:+@/ ()\[\]#-]*", re.ASCII)
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}", re.ASCII)
_COLUMN = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_EPOCH_MAX_NS = 10**11 * 10**9 // 20  # year 2128


class Damaged(InputProblem):
    """A file that cannot be taken in, and why."""


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


def sealed_as(name: str) -> str | None:
    """The SHA-256 that a sealed file's name says it has."""
    match = _SEALED.fullmatch(name)
    return match.group(1) if match else None


def copy_in(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file that others may still write to, and may have made anything but a file.

    Returns:
        Its size and its SHA-256.

    Raises:
        Damaged: It is no plain file, or too large.
        OSError: It cannot be read.
        EnvironmentProblem: The copy cannot be written.
    """
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    size, digest = 0, hashlib.sha256()
    with os.fdopen(handle, "rb") as whole:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Damaged("no plain file")
        with _writing(target) as copy:
            while block := whole.read(_BLOCK_BYTES):
                size += len(block)
                digest.update(block)
                if size > MAX_BYTES:
                    raise Damaged(f"larger than {MAX_BYTES >> 20} MiB")
                copy(block)
    return size, digest.hexdigest()


@contextmanager
def _writing(target: Path) -> Iterator[Callable[[bytes], None]]:
    def failed(error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(f"{target.parent}: {error.strerror}; make room for temporary files")

    try:
        copy = target.open("xb", buffering=0)
    except OSError as error:
        raise failed(error) from error

    def write(block: bytes) -> None:
        try:
            copy.write(block)
        except OSError as error:
            raise failed(error) from error

    with copy:
        yield write


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
    meta = {_text("meta", key, 64): value for key, value in spool.meta.items()}
    numbers = _devices(spool, named)
    from_ns = _number("from_ns", spool.from_ns, 0)
    to_ns = _number_or_none("to_ns", spool.to_ns, from_ns)
    if to_ns is not None and to_ns - from_ns > MAX_PART_S * 10**9:
        raise Damaged(f"it is of {(to_ns - from_ns) // 10**9} s, longer than any part of a lease")
    attribution = _word("attribution", spool.attribution, 32)
    if attribution not in _ATTRIBUTIONS:
        raise Damaged(f"attribution {attribution!r} is none that this version knows")
    counters, untrue = _counters(spool, numbers)
    _check_rows(spool, numbers)
    to_wall = _number_or_none("to_wall_ns", meta.get("to_wall_ns"), 0, _EPOCH_MAX_NS)
    from_wall = _number_or_none("from_wall_ns", meta.get("from_wall_ns"), 0, _EPOCH_MAX_NS)
    return CheckedSpool(
        spool=spool,
        name=_text("name", name, 1024),
        size=size,
        lease=_lease(spool),
        part=_number("part", spool.part, 0, 10**6),
        from_ns=from_ns,
        to_ns=to_ns,
        from_at=None if from_wall is None else from_wall // 10**9,
        to_at=None if to_wall is None else -(-to_wall // 10**9),
        closed=_word("closed", spool.closed, 32),
        attribution=attribution,
        interval_ms=_number_or_none("interval_ms", meta.get("interval_ms"), 0, 10**9),
        version=_text_or_none("version", meta.get("version"), 64),
        driver_version=_text_or_none("driver_version", meta.get("driver_version"), 256),
        columns=_columns(meta),
        facts=_facts(spool, meta),
        numbers=numbers,
        counters=counters,
        invalid=untrue,
    )


def _lease(spool: Spool) -> LeaseFacts:
    said = {_text("lease", key, 64): _text(f"lease.{key}", value, 8192) for key, value in spool.lease.items()}
    # An epilog without a prolog: all that is known is what it said itself.
    known = {**spool.end, **said} if spool.closed == ORPHAN else said
    node = known.get("node", "")
    opened = said.get("opened_at")
    return LeaseFacts(
        job_id=_digits("job_id", said["job_id"], 1, 2**32 - 1),
        moment=_digits("moment", said["moment"], 0),
        boot_id=_matching("boot_id", said["boot_id"], _BOOT_ID),
        node=_word("node", node, NAME_MAX),
        cluster=_optional(known.get("cluster"), NAME_MAX),
        sluid=_optional(known.get("sluid"), 64),
        start_time=_optional_digits("start_time", known.get("start_time")),
        het_job_id=_optional_digits("het_job_id", said.get("het_job_id")),
        uid=_optional_digits("uid", said.get("uid")),
        user=_optional(said.get("user"), 256),
        account=_optional(said.get("account"), 256),
        partition=_optional(said.get("partition"), 256),
        gpus=None if "gpus" not in said else _word("gpus", said["gpus"], 8192),
        opened_at=None if opened is None else _epoch("opened_at", opened),
        said=tuple(sorted({**said, "node": node}.items())),
    )


def _devices(spool: Spool, named: dict[Any, Any]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for device in spool.devices:
        uuid = _word("uuid", device.uuid, NAME_MAX)
        if not uuid or uuid in numbers:
            raise Damaged("a device without a name, or twice the same")
        for what in ("index", "minor", "gpu_instance", "compute_instance", "sm_count", "memory_total_bytes"):
            _number_or_none(what, getattr(device, what), 0)
        for what in ("max_sm_mhz", "max_mem_mhz", "power_limit_mw"):
            _number_or_none(what, getattr(device, what), 0)
        for what in ("name", "pci", "parent_uuid", "mig_profile", "power_scope"):
            _text_or_none(what, getattr(device, what), 256)
        for field, reason in device.capability.items():
            _text("capability", field, 64)
            _text("capability", reason, 64)
        if len(device.capability) > 200:
            raise Damaged("more capabilities than fields")
        numbers[uuid] = _number("device", named[uuid], 0, 2**31 - 1)
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
                value = _number(name, value, NO_INTEGER)
                if invalid(FIELDS[name], value):
                    value = None
                    untrue[read.uuid] += 1
            values.append(value)
        times = (_number("mono_ns", read.mono_ns, 0), _number("took_ns", read.took_ns, 0))
        wall = _number("wall_ns", read.wall_ns, NO_INTEGER)
        rows.append((numbers[read.uuid], _word("moment", read.moment, 32), *times, wall, *values))
    return rows, untrue


def _check_rows(spool: Spool, numbers: Mapping[str, int]) -> None:
    for gap in spool.gaps:
        if gap.uuid is not None and gap.uuid not in numbers:
            raise Damaged("a gap of a device that it does not list")
        _number("gap", gap.from_ns, 0)
        _number_or_none("gap", gap.to_ns, 0)
        _text("gap", gap.reason, 256)
    for event in spool.events:
        _number("event", event.mono_ns, 0)
        _number("event", event.wall_ns, NO_INTEGER)
        _text_or_none("event", event.uuid, NAME_MAX)
        _text("event", event.kind, 256)
        _text("event", event.detail, 4096)


def check_chunk(chunk: Chunk) -> Chunk:
    """A chunk whose description can be stored.

    Raises:
        Damaged: It cannot.
    """
    _text("chunk", chunk.kind, 64)
    _number("chunk", chunk.first_ns, NO_INTEGER)
    _number("chunk", chunk.last_ns, NO_INTEGER)
    _number("chunk", chunk.n, 0)
    if not isinstance(chunk.data, bytes) or len(chunk.data) > MAX_CHUNK_BYTES:
        raise Damaged("a chunk of no bytes, or of too many")
    return chunk


def _columns(meta: Mapping[str, Any]) -> str:
    found: dict[str, list[Any]] = {}
    for kind in ("sample_columns", "ring_columns"):
        found[kind] = json.loads(_text(kind, meta[kind], 16_384))
        if not 1 <= len(found[kind]) <= _MAX_COLUMNS:
            raise Damaged(f"{kind} are {len(found[kind])}")
        for name, grain in found[kind]:
            _matching(kind, name, _COLUMN)
            _number(kind, grain, 1, 2**40)
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
            rest[key] = value if isinstance(value, int) else _text_or_none(key, value, 8192)
    tallies = [
        [
            *(_text("tally", part, 256) for part in (one.uuid, one.field, one.reason)),
            _number("tally", one.n, 0),
        ]
        for one in spool.tallies
    ]
    clock = [[_number("clock", mono, 0), _number("clock", wall, NO_INTEGER)] for mono, wall in spool.clock]
    return json.dumps({"meta": rest, "clock": clock, "tallies": tallies}, sort_keys=True)


# Single values


def _number(what: str, value: Any, low: int, high: int = INT_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Damaged(f"{what} is {str(value)[:40]!r}, which cannot be")
    return value


def _number_or_none(what: str, value: Any, low: int, high: int = INT_MAX) -> int | None:
    return None if value is None else _number(what, value, low, high)


def _text(what: str, value: Any, limit: int) -> str:
    reason = text_reason(value) or ("is too long" if len(value) > limit else None)
    if reason:
        raise Damaged(f"{what} {reason}")
    text: str = value
    return text


def _text_or_none(what: str, value: Any, limit: int) -> str | None:
    return None if value is None else _text(what, value, limit)


def _matching(what: str, value: Any, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise Damaged(f"{what} is {str(value)[:40]!r}, which cannot be")
    return value


def _word(what: str, value: Any, limit: int) -> str:
    return _matching(what, _text(what, value, limit), _WORD)


def _optional(value: str | None, limit: int) -> str | None:
    return _word("lease", value, limit) if value else None


def _digits(what: str, value: str, low: int, high: int = INT_MAX) -> int:
    return _number(what, int(_matching(what, value, _DIGITS)), low, high)


def _optional_digits(what: str, value: str | None) -> int | None:
    return _digits(what, value, 0) if value else None


def _epoch(what: str, value: str) -> int:
    seconds = float(value)
    if not 0 <= seconds <= _EPOCH_MAX_NS / 10**9:
        raise Damaged(f"{what} is {value[:40]!r}, which cannot be")
    return int(seconds)
