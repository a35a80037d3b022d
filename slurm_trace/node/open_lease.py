"""One open lease: what is credited to it, its spool file, and how the file is begun, resumed, and closed."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Optional

from slurm_trace.node.coverage import Coverage
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.lease import Lease, LeaseEnd
from slurm_trace.node.rings import Window
from slurm_trace.node.spool import MS, RING, SAMPLE, CounterMoment, Event, Gap, MetaValue
from slurm_trace.node.spool_writer import Batch, ChunkRows, SpoolDamaged, SpoolFailed, SpoolWriter

OPEN, SEALED, DAMAGED = ".open", ".sealed", ".damaged"

# A full disk must not fill the memory instead: what is kept for the next try is bounded.
_KEPT_NOTES = 10_000

Row = tuple[Optional[int], ...]


def open_path(folder: Path, stem: str, part: int) -> Path:
    """Where the open spool file of a lease's part lies."""
    return folder / f"{stem}.{part}{OPEN}"


def first_free_part(folder: Path, stem: str) -> int:
    """The number of a new file's part: 0, unless a file that could not be resumed is in the way."""
    part = 0
    while open_path(folder, stem, part).exists():
        part += 1
    return part


def sealed_name(meta: Mapping[str, MetaValue]) -> str:
    """The name of a closed file until its hash is known, from which the courier makes the final one."""
    parts = (
        meta.get("lease.cluster"),
        meta.get("lease.node") or meta.get("end.node"),
        meta.get("lease.job_id"),
    )
    words = [re.sub(r"[^A-Za-z0-9.-]", "-", str(part or "unknown")).lstrip(".") for part in parts]
    return f"{'_'.join(words)}_{meta.get('lease.moment')}.{meta.get('part')}{SEALED}"


def facts(prefix: str, record: Lease | LeaseEnd) -> dict[str, MetaValue]:
    """A lease or its close as rows of `meta`; what is not there has no row, an empty list has an empty one."""
    found: dict[str, MetaValue] = {}
    for key, value in asdict(record).items():
        if value is not None:
            found[f"{prefix}.{key}"] = ",".join(value) if isinstance(value, tuple) else str(value)
    return found


class OpenLease:
    """What a lease has got and not yet written, and its open file.

    Args:
        folder: Where open spool files lie.
        stem: Of the lease's files.
        meta: What the file begins with.
        from_ns: Begin of the part.
        late_ns: See `Coverage`.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        meta: Mapping[str, MetaValue],
        from_ns: int,
        late_ns: int,
        part: int = 0,
    ) -> None:
        self.stem = stem
        self.part = part
        self.from_ns = from_ns
        self.attribution = "unknown"
        self.devices: dict[str, DeviceInfo] = {}
        self.dropped_samples = 0
        self._folder = folder
        self._path = open_path(folder, stem, part)
        self._begin = {"part": part, "from_ns": from_ns, **meta}
        self._late_ns = late_ns
        self._writer: SpoolWriter | None = None
        self._marked = False
        self._coverage: dict[str, Coverage] = {}
        self._written: dict[str, int] = {}
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._windows: dict[str, dict[str, list[Window]]] = {}
        self._notes = Batch()
        self._tallies: Counter[tuple[str, str, str]] = Counter()

    @classmethod
    def resume(cls, writer: SpoolWriter, late_ns: int, reason: str) -> OpenLease:
        """Go on with a file that an earlier sampler left; since its last sample there is a gap."""
        meta = writer.meta
        stem = f"{meta['lease.job_id']}.{meta['lease.moment']}"
        found = cls(writer.path.parent, stem, {}, int(meta["from_ns"] or 0), late_ns, int(meta["part"] or 0))
        found._writer = writer
        found._begin = meta
        found.dropped_samples = int(meta.get("dropped_samples") or 0)
        found.attribution = str(meta["attribution"])
        known = writer.devices()
        found.devices = {device.uuid: device for device in known}
        covered = writer.covered()
        for device in known:
            last = covered.get(device.uuid, found.from_ns)
            why = reason if device.uuid in covered else str(meta.get("first_gap") or reason)
            found._written[device.uuid] = last
            found._coverage[device.uuid] = Coverage(device.uuid, last, why, late_ns)
        return found

    @property
    def meta(self) -> Mapping[str, MetaValue]:
        """What the file began with: the lease, the boot, the part."""
        return self._begin

    def attribute(self, devices: Sequence[DeviceInfo], how: str, reason: str) -> None:
        """Say which devices the lease holds; since the begin of the part they have a gap, for `reason`."""
        self.attribution = how
        self._begin = {**self._begin, "attribution": how, "first_gap": reason}
        for device in devices:
            self.devices[device.uuid] = device
            self._coverage[device.uuid] = Coverage(device.uuid, self.from_ns, reason, self._late_ns)
            self._written[device.uuid] = self.from_ns

    def sample(self, uuid: str, row: Row) -> None:
        """A reading of one of its devices: a row of `SAMPLE_COLUMNS`. One not later than the last is left out."""
        coverage = self._coverage[uuid]
        at_ns = (row[0] or 0) * MS
        if at_ns <= coverage.last_ns:
            return
        gap = coverage.good(at_ns)
        if gap is not None:
            self._notes.gaps.append(gap)
        self._rows[uuid].append(row)

    def missed(self, uuid: str, reason: str) -> None:
        """No reading of one of its devices."""
        self._coverage[uuid].bad(reason)

    def windows(self, uuid: str, name: str, windows: Sequence[Window]) -> None:
        """Windows of a ring buffer, without those that ended before the lease began."""
        fresh = [window for window in windows if window.to_ms * MS > self.from_ns]
        if fresh:
            self._windows.setdefault(RING + name, {}).setdefault(uuid, []).extend(fresh)

    def counter(self, read: CounterMoment) -> None:
        """Counters of one of its devices."""
        self._notes.counters.append(read)

    def event(self, event: Event) -> None:
        """Something that happened."""
        self._notes.events.append(event)

    def clock(self, mono_ns: int, wall_ns: int) -> None:
        """A moment on both clocks."""
        self._notes.clock.append((mono_ns, wall_ns))

    def tally(self, uuid: str, field: str, reason: str, n: int) -> None:
        """Values that were not there."""
        self._tallies[uuid, field, reason] += n

    def flush(self, meta: Mapping[str, MetaValue]) -> None:
        """Write what there is.

        Raises:
            SpoolFailed: It could not be written. Samples are dropped and counted, their time is a gap; the rest is
                kept for the next flush. Where the file is damaged or gone, that one begins another.
        """
        batch = self._notes
        batch.chunks = self._chunks()
        batch.tallies = self._tallies
        reached = {uuid: (rows[-1][0] or 0) * MS for uuid, rows in self._rows.items() if rows}
        batch.covered = reached
        batch.meta = {**meta, "dropped_samples": self.dropped_samples, "attribution": self.attribution}
        try:
            self._ready().write(batch)
        except SpoolDamaged as error:
            self._drop()
            raise self._begin_anew(error) from None
        except SpoolFailed:
            self._drop()
            raise
        self._written.update(reached)
        self._forget()
        self._notes = Batch()
        self._tallies = Counter()

    def close(
        self,
        closed: str,
        to_ns: int | None,
        to_wall_ns: int | None,
        meta: Mapping[str, MetaValue],
        because: str = "unknown",
    ) -> Path:
        """End the part at `to_ns` (None: not known) and leave a closed file behind; the courier does the rest.

        Args:
            closed: Why it ends.
            to_ns: When.
            to_wall_ns: The same by the wall clock.
            meta: More to be kept.
            because: Why the devices are not known, where they are not.

        Raises:
            SpoolFailed: The file could not be closed. Call again later.
        """
        try:
            return self._close(closed, to_ns, to_wall_ns, meta, because)
        except SpoolDamaged as error:
            raise self._begin_anew(error) from None

    def _close(
        self,
        closed: str,
        to_ns: int | None,
        to_wall_ns: int | None,
        meta: Mapping[str, MetaValue],
        because: str,
    ) -> Path:
        if not self._marked:
            self._cut(to_ns)
            self.flush(meta)
            end: dict[str, MetaValue] = {"to_ns": to_ns, "to_wall_ns": to_wall_ns, "closed": closed}
            self._ready().write(Batch(gaps=self._last_gaps(closed, to_ns, because), meta=end))
            # From here on the file is whole, whatever happens: what is left to do is a rename.
            self._marked = True
        writer = self._writer or SpoolWriter.resume(self._path)
        self._writer = None
        if writer is None:
            raise SpoolDamaged(f"{self._path}: it was there and is no more")
        return seal(writer)

    def _begin_anew(self, error: SpoolDamaged) -> SpoolFailed:
        """The file is kept aside; what was in it is a gap, since the begin of the part, in the one that comes next."""
        self.suspend()
        self._writer, self._marked = None, False
        with contextlib.suppress(OSError):
            self._path.replace(self._path.with_name(self._path.name + DAMAGED))
        self._notes.gaps = []
        for uuid, coverage in self._coverage.items():
            self._written[uuid] = self.from_ns
            coverage.rewind(self.from_ns, "spool_lost")
        return SpoolFailed(f"{error}; begun anew")

    def _last_gaps(self, closed: str, to_ns: int | None, because: str) -> list[Gap]:
        if self.attribution == "unknown":
            known = to_ns is not None and to_ns <= self.from_ns
            return [] if known else [Gap(None, self.from_ns, to_ns, because)]
        if to_ns is None:
            return [Gap(c.uuid, c.last_ns, None, closed) for c in self._coverage.values()]
        gaps = [coverage.end(to_ns) for coverage in self._coverage.values()]
        return [gap for gap in gaps if gap is not None]

    def suspend(self) -> None:
        """Close the file so that the next sampler can resume it."""
        if self._writer is not None:
            self._writer.close()

    def _ready(self) -> SpoolWriter:
        if self._writer is None:
            meta = {**self._begin, "attribution": self.attribution}
            self._writer = SpoolWriter.create(self._path, meta, list(self.devices.values()))
            return self._writer
        self._find_file()
        if self.devices:
            self._writer.add_devices(list(self.devices.values()))
        return self._writer

    def _find_file(self) -> None:
        """SQLite goes on writing to a file that somebody has removed."""
        try:
            self._path.stat()
        except FileNotFoundError:
            raise SpoolDamaged(f"{self._path}: somebody removed it") from None
        except OSError as error:
            raise SpoolFailed(f"{self._path}: {error.strerror}") from None

    def _cut(self, to_ns: int | None) -> None:
        """Leave out what was read after the end, but for the first reading: it ends the last interval."""
        if to_ns is None:
            return
        for rows in self._rows.values():
            after = [place for place, row in enumerate(rows) if (row[0] or 0) * MS > to_ns]
            del rows[after[0] + 1 if after else len(rows) :]

    def _chunks(self) -> list[ChunkRows]:
        chunks = []
        columns = {uuid: list(zip(*rows)) for uuid, rows in self._rows.items() if rows}
        if columns:
            first = min(int(c[0][0] or 0) for c in columns.values())
            last = max(int(c[0][-1] or 0) for c in columns.values())
            chunks.append(ChunkRows(SAMPLE, first * MS, last * MS, columns))
        for kind, of_device in self._windows.items():
            shaped = {
                uuid: list(
                    zip(*((w.from_ms, w.to_ms, w.entries, w.value_ms, w.lowest, w.highest) for w in found))
                )
                for uuid, found in of_device.items()
            }
            first = min(found[0].from_ms for found in of_device.values())
            last = max(found[-1].to_ms for found in of_device.values())
            chunks.append(ChunkRows(kind, first * MS, last * MS, shaped))
        return chunks

    def _drop(self) -> None:
        lost = {uuid for uuid, rows in self._rows.items() if rows}
        self.dropped_samples += sum(len(rows) for rows in self._rows.values())
        for uuid in lost:
            self._coverage[uuid].rewind(self._written[uuid], "spool_full")
        notes = self._notes
        # The gaps of dropped samples are part of the one that is open now.
        notes.gaps = [gap for gap in notes.gaps if gap.uuid not in lost]
        for kept in (notes.counters, notes.events, notes.clock):
            if len(kept) > _KEPT_NOTES:
                self._tallies["", "notes", "spool_full"] += len(kept) - _KEPT_NOTES
                del kept[_KEPT_NOTES:]
        self._forget()

    def _forget(self) -> None:
        self._rows = defaultdict(list)
        self._windows = {}


def seal(writer: SpoolWriter) -> Path:
    """Close a file that is marked as closed, and rename it for the courier.

    Raises:
        SpoolFailed: The last writes did not reach the disk, or the file cannot be renamed.
        SpoolDamaged: The file is none any more.
    """
    target = writer.path.with_name(sealed_name(writer.meta))
    writer.finish()
    try:
        writer.path.replace(target)
    except OSError as error:
        raise SpoolFailed(f"{writer.path}: {error}") from None
    return target
