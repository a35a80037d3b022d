"""Writing an open spool file: crash-safe, one transaction per flush, closed into a single file.

While it is open the file is in WAL mode with `synchronous=FULL`: a flush costs one fsync, a killed process loses
what it had not flushed, and so does a power cut; with NORMAL a power cut could take flushes back. The WAL index
is kept in memory (exclusive locking), so that nothing is shared and nobody else opens the file. An open spool is
node-local, always: SQLite over a network file system gets damaged.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_trace.node.columns import Part, encode
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.node.spool import (
    DEVICE_COLUMNS,
    FORMAT,
    RING_COLUMNS,
    SAMPLE_COLUMNS,
    SCHEMA,
    CounterMoment,
    Event,
    Gap,
    MetaValue,
    read_devices,
)

_COLUMNS = {"sample_columns": json.dumps(SAMPLE_COLUMNS), "ring_columns": json.dumps(RING_COLUMNS)}
_RECOGNISED: dict[str, MetaValue] = {"format": FORMAT, **_COLUMNS, "counters": ",".join(COUNTER_NAMES)}
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -128",
    "temp_store = MEMORY",
)
_WHOLE_NUMBERS = ("part", "from_ns", "dropped_samples", "lease.job_id", "lease.moment", "lease.opened_cs")
_NEEDED = frozenset(
    {"format", "part", "from_ns", "attribution", "lease.job_id", "lease.moment", "lease.boot_id"}
)
# What SQLite says of a disk, rather than of a file; only Python 3.11 has its numbers.
_MAY_PASS = ("disk I/O", "is full", "unable to open", "readonly", "locked", "out of memory", "interrupted")
# The schema of a damaged file may stand in SQLite's message, as bytes that are no text.
_FAILURES = (sqlite3.Error, UnicodeError)
# A lease that holds devices grows; one that holds none should stay as small as SQLite allows.
_PAGE_BYTES, _SMALL_PAGE_BYTES = 4096, 1024


class SpoolFailed(Exception):
    """Nothing of this flush was written: no space, no permission, a broken disk."""


class SpoolDamaged(Exception):
    """The file is none that this program wrote, or no longer."""


@dataclass(frozen=True)
class ChunkRows:
    """Samples of one kind to be written as one chunk: device → columns, all devices with the same columns."""

    kind: str
    first_ns: int
    last_ns: int
    columns: Mapping[str, Sequence[Sequence[int | None]]]


@dataclass
class Batch:
    """What one flush writes, together or not at all."""

    chunks: list[ChunkRows] = field(default_factory=list)
    counters: list[CounterMoment] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)
    tallies: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    covered: Mapping[str, int] = field(default_factory=dict)
    meta: Mapping[str, MetaValue] = field(default_factory=dict)


class SpoolWriter:
    """An open spool file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._file = connection
        rows = connection.execute("SELECT uuid, number FROM device")
        self._numbers: dict[str, int] = dict(rows.fetchall())

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, MetaValue], devices: Sequence[DeviceInfo]) -> SpoolWriter:
        """Begin a file.

        Raises:
            SpoolFailed: It cannot be written.
        """
        try:
            # The log of a file that is no more would be taken for this one's.
            path.with_name(path.name + "-wal").unlink(missing_ok=True)
            connection = _connect(path, _PAGE_BYTES if devices else _SMALL_PAGE_BYTES)
        except (*_FAILURES, OSError) as error:
            raise SpoolFailed(f"{path}: {error}") from None
        try:
            connection.execute("BEGIN")
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            _put_meta(connection, {**_RECOGNISED, **meta})
            _put_devices(connection, devices)
            connection.execute("COMMIT")
            return cls(path, connection)
        except _FAILURES as error:
            connection.close()
            raise SpoolFailed(f"{path}: {error}") from None

    @classmethod
    def resume(cls, path: Path) -> SpoolWriter | None:
        """Open a file that a killed sampler left; None where nothing had been written to it yet.

        Raises:
            SpoolDamaged: It cannot be resumed, ever.
            SpoolFailed: It cannot be read now.
        """
        try:
            connection = _connect(path, _PAGE_BYTES)
        except _FAILURES as error:
            raise _kind(error)(str(error)) from None
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.close()
                return None
            writer = cls(path, connection)
            writer._check()
        except (SpoolDamaged, SpoolFailed):
            connection.close()
            raise
        except _FAILURES as error:
            connection.close()
            raise _kind(error)(str(error)) from None
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            connection.close()
            raise SpoolDamaged(f"{type(error).__name__}: {error}") from None
        return writer

    def _check(self) -> None:
        """A page may be damaged so that SQLite still reads it: all that is gone by later is looked at once."""
        meta = self.meta
        missing = _NEEDED - set(meta)
        if missing:
            raise SpoolDamaged(f"no {min(missing)} in it")
        if not all(
            isinstance(key, str) and isinstance(value, (str, int, type(None))) for key, value in meta.items()
        ):
            raise SpoolDamaged("its meta table holds something else than text and numbers")
        for key in _WHOLE_NUMBERS:
            if int(meta.get(key) or 0) < 0:
                raise SpoolDamaged(f"{key} is below 0")
        if not self.path.name.startswith(f"{meta['lease.job_id']}.{meta['lease.moment']}."):
            raise SpoolDamaged("its name is of another lease")
        for device in self.devices():
            if not isinstance(device.uuid, str) or not isinstance(device.capability, dict):
                raise SpoolDamaged("it lists something else than devices")
        self.covered()

    @property
    def meta(self) -> dict[str, MetaValue]:
        """What is in the file's meta table now.

        Raises:
            SpoolDamaged, SpoolFailed: It cannot be read.
        """
        try:
            return dict(self._file.execute("SELECT key, value FROM meta").fetchall())
        except _FAILURES as error:
            raise _kind(error)(f"{self.path}: {error}") from None

    @property
    def continues(self) -> bool:
        """Whether the file has the columns that this version writes."""
        meta = self.meta
        return all(meta.get(key) == value for key, value in _RECOGNISED.items())

    def covered(self) -> dict[str, int]:
        """Device → time of its last written sample."""
        rows = self._file.execute("SELECT uuid, covered_ns FROM device")
        return {uuid: int(at) for uuid, at in rows if at is not None}

    def devices(self) -> list[DeviceInfo]:
        """The devices that are in the file."""
        return read_devices(self._file)

    def add_devices(self, devices: Sequence[DeviceInfo]) -> None:
        """Devices that became known only after the file was begun.

        Raises:
            SpoolFailed: They could not be written.
            SpoolDamaged: They never can be.
        """
        if all(device.uuid in self._numbers for device in devices):
            return
        with self._transaction():
            _put_devices(self._file, [device for device in devices if device.uuid not in self._numbers])
        self._numbers = dict(self._file.execute("SELECT uuid, number FROM device").fetchall())

    def write(self, batch: Batch) -> None:
        """Write a batch in one transaction.

        Raises:
            SpoolFailed: Nothing of it was written.
            SpoolDamaged: Nothing of it was, or ever can be.
        """
        with self._transaction():
            for chunk in batch.chunks:
                self._put_chunk(chunk)
            self._put_rows("clock", batch.clock)
            self._put_rows(
                "counter_read",
                [
                    (
                        c.moment,
                        c.mono_ns,
                        c.took_ns,
                        c.wall_ns,
                        self._numbers[c.uuid],
                        *(c.values[name] for name in COUNTER_NAMES),
                    )
                    for c in batch.counters
                ],
            )
            self._put_rows("gap", [(g.uuid, g.from_ns, g.to_ns, g.reason) for g in batch.gaps])
            self._put_rows("event", [(e.mono_ns, e.wall_ns, e.uuid, e.kind, e.detail) for e in batch.events])
            self._file.executemany(
                "INSERT INTO tally VALUES (?, ?, ?, ?) "
                "ON CONFLICT (uuid, field, reason) DO UPDATE SET n = n + excluded.n",
                [(*key, n) for key, n in batch.tallies.items()],
            )
            self._file.executemany(
                "UPDATE device SET covered_ns = ? WHERE uuid = ?",
                [(at, uuid) for uuid, at in batch.covered.items()],
            )
            _put_meta(self._file, batch.meta)

    def finish(self) -> None:
        """Make it one plain file and close it; what comes next is only a rename.

        Raises:
            SpoolFailed: The last writes did not reach the disk; the file can be opened again.
            SpoolDamaged: The file is none any more.
        """
        try:
            mode = self._file.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
            if mode != "delete":
                raise SpoolFailed(f"{self.path}: the log of changes could not be merged")
        except _FAILURES as error:
            raise _kind(error)(f"{self.path}: {error}") from None
        finally:
            self.close()
        if not is_whole(self.path, "quick_check"):
            raise SpoolDamaged(f"{self.path}: damaged since it was begun")

    def close(self) -> None:
        """Close it, to be resumed."""
        with contextlib.suppress(*_FAILURES):
            self._file.close()

    def _put_chunk(self, chunk: ChunkRows) -> None:
        parts = [Part(self._numbers[uuid], tuple(columns)) for uuid, columns in chunk.columns.items()]
        grains = [grain for _, grain in (SAMPLE_COLUMNS if chunk.kind == "sample" else RING_COLUMNS)]
        rows = sum(len(part.columns[0]) for part in parts)
        self._put_rows(
            "chunk", [(None, chunk.kind, chunk.first_ns, chunk.last_ns, rows, encode(parts, grains))]
        )

    def _put_rows(self, table: str, rows: Iterable[Sequence[MetaValue | bytes]]) -> None:
        for row in rows:
            self._file.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with contextlib.suppress(*_FAILURES):
                    self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")
        except _FAILURES as error:
            with contextlib.suppress(*_FAILURES):
                self._file.execute("ROLLBACK")
            raise _kind(error)(f"{self.path}: {error}") from None


def is_whole(path: Path, check: str = "integrity_check") -> bool:
    """Whether a closed file is a sound database."""
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as file:
            return bool(file.execute(f"PRAGMA {check}").fetchall() == [("ok",)])
    except _FAILURES:
        return False


def _kind(error: Exception) -> type[SpoolDamaged | SpoolFailed]:
    """No space or a broken disk may pass; what is no database stays none."""
    return SpoolFailed if any(words in str(error) for words in _MAY_PASS) else SpoolDamaged


def _connect(path: Path, page_bytes: int) -> sqlite3.Connection:
    # Used by one thread at a time; by another one where that was given up in a call into the driver.
    connection = sqlite3.connect(str(path), isolation_level=None, timeout=0.2, check_same_thread=False)
    try:
        for pragma in (f"page_size = {page_bytes}", *_PRAGMAS):
            connection.execute(f"PRAGMA {pragma}")
    except _FAILURES:
        connection.close()
        raise
    return connection


def _put_meta(connection: sqlite3.Connection, meta: Mapping[str, MetaValue]) -> None:
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        list(meta.items()),
    )


def _put_devices(connection: sqlite3.Connection, devices: Sequence[DeviceInfo]) -> None:
    names = ", ".join(f'"{name}"' for name in (*DEVICE_COLUMNS, "capability"))
    marks = ", ".join("?" * (len(DEVICE_COLUMNS) + 1))
    for device in devices:
        facts = [getattr(device, name) for name in DEVICE_COLUMNS]
        capability = json.dumps(dict(device.capability), sort_keys=True)
        connection.execute(f"INSERT INTO device ({names}) VALUES ({marks})", [*facts, capability])  # noqa: S608
