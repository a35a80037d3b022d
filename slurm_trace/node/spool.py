"""The spool file: what a sampler learned while one lease was open. This is the format, and the reader of sealed files.

A spool file is an SQLite file with `meta` (the lease, the boot, the interval, the reach of the file), `clock`
(monotonic and wall time of one moment), `device`, `counter_read`, `chunk` (columns of samples, `columns.encode`),
`gap`, `event` and `tally` (how often a field had no value, and why).

Times named `_ns` are CLOCK_BOOTTIME, the clock of /proc/uptime, unless they say `wall`. A device's time from
`from_ns` to `to_ns` is tiled by its gaps and by the intervals between its samples, and nothing is left over: see
`Spool.coverage`. A lease has one file per *part*: the sampler was told to stop, or the file became a day old.

A sealed file's name ends with the SHA-256 of its bytes: `<cluster>_<node>_<job>_<moment>.<sha256>.spool`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Union

from slurm_trace.errors import InputProblem
from slurm_trace.node.columns import BlockDamaged, Values, decode
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.digest import file_digest
from slurm_trace.node.fields import COUNTER_NAMES, SAMPLE_NAMES

FORMAT = 1
MS = 1_000_000

MetaValue = Union[str, int, None]

DEVICE_COLUMNS = tuple(f.name for f in fields(DeviceInfo) if f.name != "capability")

# How finely a sample is kept, in the field's unit. Energy and bytes are exact in the counter reads.
_GRAINS = {
    "power_mw": 100,
    "power_instant_mw": 100,
    "module_power_mw": 100,
    "energy_mj": 1000,
    "pcie_tx_kb_s": 1000,
    "pcie_rx_kb_s": 1000,
    "memory_used_bytes": 1 << 16,
}
SAMPLE = "sample"
RING = "ring:"
SAMPLE_COLUMNS: tuple[tuple[str, int], ...] = (
    ("mono_ms", 1),
    ("wall_offset_ms", 1),
    *((name, _GRAINS.get(name, 1)) for name in SAMPLE_NAMES),
)
# A window of a ring buffer: `entries` values that tile (from_ms, to_ms] without a hole; the next window begins
# where this one ends, or there is a hole. `value_ms` is the sum of value x milliseconds, rounded up.
RING_COLUMNS: tuple[tuple[str, int], ...] = (
    ("from_ms", 1),
    ("to_ms", 1),
    ("entries", 1),
    ("value_ms", 100),
    ("lowest", 1),
    ("highest", 1),
)

_COUNTERS = ", ".join(f"{name} INTEGER" for name in COUNTER_NAMES)
_DEVICE = ", ".join(f'"{name}"' for name in DEVICE_COLUMNS if name != "uuid")
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE clock (mono_ns INTEGER, wall_ns INTEGER);
CREATE TABLE device (number INTEGER PRIMARY KEY, uuid TEXT UNIQUE, {_DEVICE}, capability TEXT, covered_ns INTEGER);
CREATE TABLE counter_read (moment TEXT, mono_ns INTEGER, took_ns INTEGER, wall_ns INTEGER, device INTEGER, {_COUNTERS});
CREATE TABLE chunk (number INTEGER PRIMARY KEY, kind TEXT, first_ns INTEGER, last_ns INTEGER, n INTEGER, data BLOB);
CREATE TABLE gap (uuid TEXT, from_ns INTEGER, to_ns INTEGER, reason TEXT);
CREATE TABLE event (mono_ns INTEGER, wall_ns INTEGER, uuid TEXT, kind TEXT, detail TEXT);
CREATE TABLE tally (uuid TEXT, field TEXT, reason TEXT, n INTEGER, PRIMARY KEY (uuid, field, reason)) WITHOUT ROWID;
"""
_TABLES = frozenset(re.findall(r"CREATE TABLE (\w+)", SCHEMA))
_NAME = re.compile(r".+\.([0-9a-f]{64})\.spool")


class SpoolDamaged(InputProblem):
    """A file is no spool, or no longer the one that was sealed."""


@dataclass(frozen=True)
class Gap:
    """A stretch of which nothing is known: of one device, or of all (`uuid` None). `to_ns` None: until the end."""

    uuid: str | None
    from_ns: int
    to_ns: int | None
    reason: str


@dataclass(frozen=True)
class Event:
    """Something that happened at a moment."""

    mono_ns: int
    wall_ns: int
    uuid: str | None
    kind: str
    detail: str


@dataclass(frozen=True)
class CounterMoment:
    """Counters of one device, taken between `mono_ns` and `mono_ns + took_ns`.

    `moment` is start, periodic, resume, stop or end.
    """

    moment: str
    mono_ns: int
    took_ns: int
    wall_ns: int
    uuid: str
    values: Mapping[str, int | None]


@dataclass(frozen=True)
class Tally:
    """How often `field` of `uuid` had no value for `reason`; an empty uuid: of the lease as a whole."""

    uuid: str
    field: str
    reason: str
    n: int


@dataclass(frozen=True)
class Chunk:
    """Columns of samples as they lie in the file."""

    kind: str
    first_ns: int
    last_ns: int
    n: int
    data: bytes


@dataclass(frozen=True)
class Series:
    """One device's rows of one chunk: name → one value per row; None is no value, never 0."""

    uuid: str
    kind: str
    columns: Mapping[str, Values]


@dataclass(frozen=True)
class Coverage:
    """One device's time in a part: milliseconds between samples, and gaps, clipped to it. They add up to its length."""

    intervals: tuple[tuple[int, int], ...]
    gaps: tuple[Gap, ...]

    @property
    def covered_ns(self) -> int:
        """Length of the intervals together."""
        return sum(end - start for start, end in self.intervals)

    @property
    def gap_ns(self) -> int:
        """Length of the gaps together."""
        return sum(gap.to_ns - gap.from_ns for gap in self.gaps if gap.to_ns is not None)


@dataclass(frozen=True)
class Spool:
    """A sealed file, its hash and integrity checked. Chunks are read from the file on demand.

    Attributes:
        lease: Keys and values of the lease file, as text.
        end: Those of the end file; empty where there was none.
        from_ns: Begin of this part: the lease's begin, or the end of the part before.
        to_ns: End of this part; None where it is not known (the node went down).
        closed: Why the part ends: end, stop, part, lost, boot, or orphan.
        attribution: How the devices were found: uuid, gres, whole_node, ambiguous, none, or unknown.
    """

    path: Path
    digest: str
    meta: Mapping[str, MetaValue]
    lease: Mapping[str, str]
    end: Mapping[str, str]
    devices: tuple[DeviceInfo, ...]
    clock: tuple[tuple[int, int], ...]
    counters: tuple[CounterMoment, ...]
    gaps: tuple[Gap, ...]
    events: tuple[Event, ...]
    tallies: tuple[Tally, ...]
    part: int
    from_ns: int
    to_ns: int | None
    closed: str
    attribution: str
    _names: Mapping[str, tuple[tuple[str, int], ...]] = field(repr=False)
    _numbers: Mapping[int, str] = field(repr=False)

    def chunks(self, kind: str | None = None) -> Iterator[Chunk]:
        """The chunks in order of time, or those of one kind: `sample`, `ring:<field>`."""
        with _opened(self.path) as file:
            query = "SELECT kind, first_ns, last_ns, n, data FROM chunk"
            where = " WHERE kind = ?" if kind is not None else ""
            for row in file.execute(f"{query}{where} ORDER BY number", () if kind is None else (kind,)):
                yield Chunk(*row)

    def series(self, chunk: Chunk) -> list[Series]:
        """A chunk, unpacked.

        Raises:
            SpoolDamaged: Its bytes are no columns, or of a device that the file does not know.
        """
        names = self._names[RING if chunk.kind.startswith(RING) else SAMPLE]
        try:
            parts = decode(chunk.data, [grain for _, grain in names])
            return [
                Series(self._numbers[part.device], chunk.kind, dict(zip((n for n, _ in names), part.columns)))
                for part in parts
            ]
        except (BlockDamaged, KeyError) as error:
            raise SpoolDamaged(f"{self.path}: a chunk of {chunk.kind} cannot be unpacked ({error})") from None

    def samples(self) -> Iterator[Series]:
        """All samples, chunk by chunk."""
        for chunk in self.chunks(SAMPLE):
            yield from self.series(chunk)

    def coverage(self, uuid: str) -> Coverage:
        """How `uuid`'s time is tiled by intervals between samples and by gaps, clipped to this part.

        The last sample may lie after `to_ns`: the sampler read once more when it saw that the lease had ended.
        """
        times = sorted(
            int(ms) * MS
            for series in self.samples()
            if series.uuid == uuid
            for ms in series.columns["mono_ms"]
            if ms is not None
        )
        return tile(times, [g for g in self.gaps if g.uuid in (uuid, None)], self.from_ns, self.to_ns)


def tile(times: Sequence[int], gaps: Sequence[Gap], start_ns: int, end_ns: int | None) -> Coverage:
    """Intervals between `times` that no gap covers, and the gaps, all clipped to [start_ns, end_ns)."""
    last = end_ns if end_ns is not None else max([start_ns, *times])
    clipped = []
    for gap in sorted(gaps, key=lambda gap: gap.from_ns):
        until = last if gap.to_ns is None else min(gap.to_ns, last)
        begin = max(gap.from_ns, start_ns)
        if until > begin:
            clipped.append(Gap(gap.uuid, begin, until, gap.reason))
    intervals = []
    before = start_ns
    holes = iter([*clipped, Gap(None, last, last, "")])
    for gap in holes:
        points = [before, *(at for at in times if before < at < gap.from_ns), gap.from_ns]
        intervals += [(a, b) for a, b in zip(points, points[1:]) if b > a]
        before = max(before, gap.to_ns or 0)
    return Coverage(tuple(intervals), tuple(clipped))


def read_spool(path: Path) -> Spool:
    """Read a sealed spool file.

    Raises:
        SpoolDamaged: The name has no hash, the bytes have another, or the content is no spool of a known format.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise SpoolDamaged(f"{path}: no sealed spool file: its name has no SHA-256; take files of an outbox")
    try:
        digest = file_digest(path)
    except OSError as error:
        raise SpoolDamaged(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if digest != match.group(1):
        raise SpoolDamaged(
            f"{path}: its SHA-256 is {digest}: changed or cut short after it was sealed; copy it again"
        )
    try:
        with _opened(path) as file:
            return _read(path, digest, file)
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        raise SpoolDamaged(f"{path}: no spool file that this version can read ({error})") from None


class _opened:  # noqa: N801
    """A sealed file, read only: nothing in it is run, nothing beside it is made."""

    def __init__(self, path: Path) -> None:
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"

    def __enter__(self) -> sqlite3.Connection:
        self._file = sqlite3.connect(self._uri, uri=True)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "cache_size = -512"):
            self._file.execute(f"PRAGMA {pragma}")
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _read(path: Path, digest: str, file: sqlite3.Connection) -> Spool:
    objects = file.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    if set(objects) != {("table", name) for name in _TABLES}:
        raise ValueError("other tables than a spool has")
    meta: dict[str, Any] = dict(file.execute("SELECT key, value FROM meta"))
    if meta["format"] != FORMAT:
        raise ValueError(f"format {meta['format']}, this version reads {FORMAT}")
    if meta.get("closed") is None:
        raise ValueError("it was never closed")
    numbers: dict[int, str] = dict(file.execute("SELECT number, uuid FROM device").fetchall())
    return Spool(
        path=path,
        digest=digest,
        meta=meta,
        lease={k[6:]: str(v) for k, v in meta.items() if k.startswith("lease.")},
        end={k[4:]: str(v) for k, v in meta.items() if k.startswith("end.")},
        devices=tuple(read_devices(file)),
        clock=tuple(
            (int(mono), int(wall)) for mono, wall in file.execute("SELECT mono_ns, wall_ns FROM clock")
        ),
        counters=tuple(
            _counter(row, numbers) for row in _rows(file, "SELECT * FROM counter_read ORDER BY mono_ns")
        ),
        gaps=tuple(
            Gap(*row)
            for row in file.execute("SELECT uuid, from_ns, to_ns, reason FROM gap ORDER BY uuid, from_ns")
        ),
        events=tuple(
            Event(*row)
            for row in file.execute("SELECT mono_ns, wall_ns, uuid, kind, detail FROM event ORDER BY mono_ns")
        ),
        tallies=tuple(Tally(*row) for row in file.execute("SELECT uuid, field, reason, n FROM tally")),
        part=int(meta["part"]),
        from_ns=int(meta["from_ns"]),
        to_ns=None if meta.get("to_ns") is None else int(meta["to_ns"]),
        closed=str(meta["closed"]),
        attribution=str(meta["attribution"]),
        _names={
            SAMPLE: tuple((str(n), int(g)) for n, g in json.loads(meta["sample_columns"])),
            RING: tuple((str(n), int(g)) for n, g in json.loads(meta["ring_columns"])),
        },
        _numbers=numbers,
    )


def _rows(file: sqlite3.Connection, query: str) -> list[sqlite3.Row]:
    cursor = file.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(query).fetchall()


def read_devices(file: sqlite3.Connection) -> list[DeviceInfo]:
    """The device table; what an older version did not write keeps its default, what a newer one added is left out."""
    known = {f.name for f in fields(DeviceInfo)}
    found = []
    for row in _rows(file, "SELECT * FROM device ORDER BY number"):
        facts = {key: value for key, value in zip(row.keys(), row) if key in known}
        facts["capability"] = json.loads(facts["capability"])
        for flag in ("mig_enabled", "virtual", "persistence"):
            facts[flag] = None if facts[flag] is None else bool(facts[flag])
        found.append(DeviceInfo(**facts))
    return found


def _counter(row: sqlite3.Row, numbers: Mapping[int, str]) -> CounterMoment:
    named = dict(zip(row.keys(), row))
    moment, mono, took, wall, device = (
        named.pop(key) for key in ("moment", "mono_ns", "took_ns", "wall_ns", "device")
    )
    return CounterMoment(str(moment), int(mono), int(took), int(wall), numbers[device], named)
