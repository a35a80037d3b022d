"""The sampler: one process per node, which follows the leases and reads the devices that they hold.

A turn looks at the lease directory, reads what is due, credits it to every lease that holds the device, and
keeps the spool files. Nothing here waits for a device longer than the watchdog allows, and the driver is open only
while some lease holds a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_trace.node.attribution import attribute, wants_devices
from slurm_trace.node.clock import Clock
from slurm_trace.node.config import NodeConfig
from slurm_trace.node.courier import Courier
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.lease import SEALED_SUFFIX, Lease, LeaseEnd, LeaseReader, LeaseScan, mark_sealed
from slurm_trace.node.log import Log
from slurm_trace.node.open_lease import DAMAGED, OPEN, OpenLease, facts, first_free_part, seal
from slurm_trace.node.probe import Probe
from slurm_trace.node.spool import MS, SAMPLE_COLUMNS, Event, MetaValue
from slurm_trace.node.spool_writer import SpoolDamaged, SpoolFailed, SpoolWriter
from slurm_trace.node.usage import own_usage
from slurm_trace.version import VERSION

S = 1_000_000_000
CS = 10_000_000

LOOK_S = 0.25
_RETRY_S = 10.0
_STEP_MS = 250
_MISSING_S = 60.0
_STATUS_S = 30.0

_THROTTLE = [name for name, _ in SAMPLE_COLUMNS].index("throttle_reasons")
# Hardware slowdown, heat (software and hardware), power brake: not the everyday power cap and idleness.
_SLOWDOWN = 8 | 32 | 64 | 128

_CLOSED = {"epilog": "end", "superseded": "superseded", "reboot": "boot", "orphan": "orphan"}


@dataclass
class _Kept:
    """A lease that the sampler serves, with when its file is due."""

    log: OpenLease
    lease: Lease | None
    flush_at_ns: int
    began_ns: int
    opened_ns: int
    wants: bool
    missing_at_ns: int | None = None

    def is_missing(self, now: int) -> bool:
        """Its file is gone without an end: somebody emptied the directory, and no epilog will tell."""
        return self.missing_at_ns is not None and now - self.missing_at_ns > _MISSING_S * S


@dataclass
class _Closing:
    """A lease whose file could not be closed yet."""

    log: OpenLease
    closed: str
    to_ns: int | None
    to_wall_ns: int | None
    final: bool
    because: str = "unknown"
    meta: dict[str, MetaValue] = field(default_factory=dict)


@dataclass
class Tools:
    """What the sampler works with."""

    config: NodeConfig
    probe: Probe
    clock: Clock
    log: Log
    reader: LeaseReader
    courier: Courier
    boot_id: str
    minors: Callable[[Lease, Sequence[DeviceInfo]], dict[int, int] | None] = lambda *_: None


class Sampler:
    """Follows the leases of a node until it is stopped.

    Args:
        tools: What it works with.
    """

    def __init__(self, tools: Tools) -> None:
        self._config = tools.config
        self._probe = tools.probe
        self._clock = tools.clock
        self._log = tools.log
        self._reader = tools.reader
        self._courier = tools.courier
        self._boot_id = tools.boot_id
        self._minors = tools.minors
        self._late_ns = int(self._config.late_s * S)
        self._interval_ns = int(self._config.interval_s * S)
        self._leases: dict[str, _Kept] = {}
        self._closing: list[_Closing] = []
        self._owners: dict[str, list[OpenLease]] = {}
        self._sealed: set[str] = set()
        self._scan: LeaseScan | None = None
        self._offset_ms: int | None = None
        self._throttled: dict[str, int] = {}
        self._stopping = False
        self._starting = True
        now = self._clock.mono_ns()
        self._tick_at_ns = self._counters_at_ns = self._ring_at_ns = now
        self._retry_at_ns = self._status_at_ns = now
        self._busy_at_ns = self._keep_at_ns = now
        self._late_ticks = 0

    @property
    def leases(self) -> tuple[str, ...]:
        """Stems of the leases that are served."""
        return tuple(self._leases)

    def stop(self) -> None:
        """Ask the loop to end; may be called by a signal handler."""
        self._stopping = True

    def run(self, until_idle: bool = False, is_over: Callable[[], bool] = lambda: True) -> None:
        """Serve leases until `stop`, or until there have been none for a while.

        Args:
            until_idle: End when no lease has been open for `idle_s`.
            is_over: Asked then; false keeps it going (a prolog came in at the last moment).
        """
        self.resume()
        while not self._stopping:
            self.turn()
            if until_idle and self._idle() and is_over():
                break
            self._clock.sleep(self.pause_s())
        self.shut()

    def pause_s(self) -> float:
        """How long there is nothing to do."""
        if not self._owners:
            return LOOK_S
        until_ns = min(self._tick_at_ns, self._ring_at_ns) - self._clock.mono_ns()
        return min(LOOK_S, max(until_ns / S, 0.0))

    def turn(self) -> None:
        """Do all that is due now."""
        self._look()
        now = self._clock.mono_ns()
        if self._owners:
            if not self._probe.is_open or self._probe.revive(self._owners):
                self._find_devices()
            if now >= self._ring_at_ns:
                self._read_rings(list(self._owners))
                self._ring_at_ns = now + int(self._probe.ring_s * S)
            if now >= self._counters_at_ns:
                self._read_counters(list(self._owners), "periodic")
                self._counters_at_ns = now + int(self._config.counters_s * S)
            if now >= self._tick_at_ns:
                self._tick(now)
        elif self._waiting():
            self._find_devices()
        else:
            self._probe.let_go()
        self._keep_spools()

    # Leases

    def resume(self) -> None:
        """Take up what an earlier sampler left: open files of this boot go on, others are closed."""
        found: dict[str, list[SpoolWriter]] = {}
        for path in sorted(self._config.spool_folder.glob(f"*{OPEN}")):
            writer = self._reopen(path)
            if writer is not None:
                found.setdefault(path.name.split(".", 2)[0] + "." + path.name.split(".", 2)[1], []).append(
                    writer
                )
        for stem, writers in found.items():
            writers.sort(key=lambda writer: int(writer.meta["part"] or 0))
            for earlier, later in zip(writers, writers[1:]):
                log = OpenLease.resume(earlier, self._late_ns, "sampler_down")
                self._close(_Closing(log, "stop", int(later.meta["from_ns"] or 0), None, False))
            self._resume_one(stem, writers[-1])
        self._courier.notify()

    def _reopen(self, path: Path) -> SpoolWriter | None:
        try:
            writer = SpoolWriter.resume(path)
            if writer is None:
                path.unlink()
            elif writer.meta.get("closed") is not None:
                stem = f"{writer.meta['lease.job_id']}.{writer.meta['lease.moment']}"
                closed = writer.meta["closed"]
                seal(writer)
                if closed not in ("stop", "part"):
                    self._mark(stem)
                writer = None
        except SpoolDamaged as error:
            kept = path.with_name(path.name + DAMAGED)
            self._log.trouble("damaged", f"{path.name} cannot be resumed ({error}); kept as {kept.name}")
            with contextlib.suppress(OSError):
                path.replace(kept)
            return None
        except (SpoolFailed, OSError) as error:
            self._log.trouble(
                "resume", f"{path.name} cannot be resumed now ({error}); the next start tries again"
            )
            return None
        return writer

    def _resume_one(self, stem: str, writer: SpoolWriter) -> None:
        meta = writer.meta
        same_boot = meta["lease.boot_id"] == self._boot_id
        log = OpenLease.resume(writer, self._late_ns, "sampler_down" if same_boot else "boot")
        if not same_boot:
            self._close(_Closing(log, "boot", None, None, True))
            return
        now = self._clock.mono_ns()
        kept = _Kept(
            log,
            None,
            now,
            log.from_ns,
            int(meta.get("lease.opened_cs") or 0) * CS,
            bool(meta.get("wants_devices")),
        )
        self._leases[stem] = kept
        if not writer.continues:
            # Another version's columns: this file ends here, the next part has ours.
            self._next_part(stem, kept, "part", "sampler_down")
        self._own()

    def _look(self) -> None:
        if self._starting:
            # Before the leases are read: the hooks remove a sealed one first, and then its mark.
            self._sealed.update(self._marked())
        scan = self._reader.scan()
        if scan is self._scan:
            return
        self._scan = scan
        for refusal in scan.refused:
            self._log.trouble(f"refused {refusal.name}", f"lease {refusal.name} refused: {refusal.reason}")
        ended: list[tuple[str, Lease | None, LeaseEnd]] = [
            (end.stem, lease, end) for lease, end in scan.ended
        ]
        ended += [(end.stem, None, end) for end in scan.orphans]
        self._end([one for one in ended if one[0] not in self._sealed])
        for lease in scan.open:
            if lease.stem in self._leases:
                self._leases[lease.stem].lease = lease
        self._begin([lease for lease in scan.open if lease.stem not in self._leases])
        self._note_missing(scan)
        self._starting = False

    def _note_missing(self, scan: LeaseScan) -> None:
        """Since when a lease that is served has no file any more. A directory that cannot be read shows nothing."""
        refused = {refusal.name for refusal in scan.refused}
        if str(self._config.leases_folder) in refused:
            return
        present = {lease.stem for lease in scan.open} | {name.rpartition(".")[0] for name in refused}
        now = self._clock.mono_ns()
        for stem, kept in self._leases.items():
            if stem in present:
                kept.missing_at_ns = None
            elif kept.missing_at_ns is None:
                kept.missing_at_ns = now

    def _marked(self) -> set[str]:
        try:
            names = [path.name for path in self._config.sampler_folder.iterdir()]
        except OSError as error:
            self._log.trouble("marks", f"{self._config.sampler_folder} cannot be read: {error.strerror}")
            return set()
        return {name[: -len(SEALED_SUFFIX)] for name in names if name.endswith(SEALED_SUFFIX)}

    def _begin(self, leases: Sequence[Lease]) -> None:
        fresh = [lease for lease in leases if lease.stem not in self._sealed]
        if not fresh:
            return
        if any(wants_devices(lease) for lease in fresh):
            self._probe.open()
        now = self._clock.mono_ns()
        if not self._owners:
            self._tick_at_ns = now + self._interval_ns
            self._counters_at_ns = now + int(self._config.counters_s * S)
            self._ring_at_ns = now + int(self._probe.ring_s * S)
        for lease in fresh:
            kept = self._kept(lease, now)
            self._leases[lease.stem] = kept
            if kept.wants:
                self._attribute(kept, lease)
            else:
                kept.log.attribute([], "none", "")
        self._own()
        began = [self._leases[lease.stem].log for lease in fresh]
        uuids = sorted({uuid for log in began for uuid in log.devices})
        if uuids:
            self._read_counters(uuids, "start", began)
            self._read(uuids, began)
            self._read_rings(uuids)
        for lease in fresh:
            self._flush(self._leases[lease.stem])

    def _kept(self, lease: Lease, now: int) -> _Kept:
        from_ns = min(lease.opened_cs * CS, now)
        wants = wants_devices(lease)
        meta: dict[str, MetaValue] = {
            **facts("lease", lease),
            "wants_devices": int(wants),
            "from_wall_ns": int(lease.opened_at * S),
            "interval_ms": self._interval_ns // MS,
            "version": VERSION,
            "clock": "CLOCK_BOOTTIME",
        }
        part = first_free_part(self._config.spool_folder, lease.stem)
        log = OpenLease(self._config.spool_folder, lease.stem, meta, from_ns, self._late_ns, part)
        log.clock(now, self._clock.wall_ns())
        return _Kept(log, lease, now, now, from_ns, wants)

    def _attribute(self, kept: _Kept, lease: Lease) -> None:
        if not self._probe.is_open:
            return
        devices = list(self._probe.devices.values())
        found = attribute(lease, devices, lambda: self._minors(lease, devices))
        reason = "sampler_down" if self._starting else "before_first_read"
        kept.log.attribute(found.devices, found.how, reason)
        if found.how == "ambiguous":
            self._log.trouble(
                "ambiguous",
                f"lease {lease.stem}: which devices it holds is not known; all {len(found.devices)} are sampled",
            )

    def _find_devices(self) -> None:
        """The driver is open now: leases that wait for it get their devices."""
        if not self._probe.open():
            return
        for kept in self._waiting():
            if kept.lease is not None:
                self._attribute(kept, kept.lease)
        self._own()
        self._read_counters(list(self._owners), "resume")

    def _waiting(self) -> list[_Kept]:
        return [k for k in self._leases.values() if k.wants and k.log.attribution == "unknown"]

    def _own(self) -> None:
        """Who holds what, anew; two owners of one device are an event in both their files."""
        before = {uuid: {log.stem for log in logs} for uuid, logs in self._owners.items()}
        owners: dict[str, list[OpenLease]] = {}
        for kept in self._leases.values():
            for uuid in kept.log.devices:
                owners.setdefault(uuid, []).append(kept.log)
        self._owners = owners
        for uuid, logs in owners.items():
            stems = {log.stem for log in logs}
            shared_before = before.get(uuid, set()) if len(before.get(uuid, set())) > 1 else set()
            shared_now = stems if len(stems) > 1 else set()
            if shared_now != shared_before:
                kind = "shared" if shared_now else "shared_no_more"
                for log in logs:
                    others = " ".join(sorted(shared_now - {log.stem}))
                    self._event([log], uuid, kind, others)
        if not owners and not any(kept.wants for kept in self._leases.values()):
            self._probe.close()

    def _end(self, ended: Sequence[tuple[str, Lease | None, LeaseEnd]]) -> None:
        served = [self._leases[stem].log for stem, _, _ in ended if stem in self._leases]
        uuids = sorted({uuid for log in served for uuid in log.devices})
        if uuids:
            self._read_rings(uuids)
            self._read(uuids, served)
            self._read_counters(uuids, "end", served)
        self._account()
        known = set(self._leases)
        for stem, lease, end in ended:
            kept = self._leases.pop(stem, None)
            if kept is None:
                kept = self._never_served(lease, end)
            kept.log.clock(self._clock.mono_ns(), self._clock.wall_ns())
            to_ns = None if end.closed_cs is None else max(end.closed_cs * CS, kept.log.from_ns)
            because = self._probe.because if stem in known else "never_seen"
            one = _Closing(kept.log, _CLOSED[end.how], to_ns, int(end.closed_at * S), True, because)
            self._close(one, facts("end", end))
        if ended:
            self._own()

    def _never_served(self, lease: Lease | None, end: LeaseEnd) -> _Kept:
        """A lease that was over before it was seen, or an epilog without a lease: a record of nothing."""
        now = self._clock.mono_ns()
        if lease is not None:
            kept = self._kept(lease, now)
            if not kept.wants:
                kept.log.attribute([], "none", "")
            return kept
        at = now if end.closed_cs is None else end.closed_cs * CS
        meta: dict[str, MetaValue] = {
            "lease.job_id": str(end.job_id),
            "lease.moment": str(end.moment),
            "lease.boot_id": end.boot_id,
            "version": VERSION,
            "interval_ms": self._interval_ns // MS,
        }
        part = first_free_part(self._config.spool_folder, end.stem)
        log = OpenLease(self._config.spool_folder, end.stem, meta, at, self._late_ns, part)
        return _Kept(log, None, now, now, at, False)

    # Readings

    def _tick(self, now: int) -> None:
        if now - self._tick_at_ns > self._interval_ns:
            self._late_ticks += 1
        self._read(list(self._owners))
        for xid in self._probe.xids():
            detail = f"{xid.code} {xid.gpu_instance if xid.gpu_instance is not None else ''}".strip()
            self._event(self._concerned(xid.uuid), xid.uuid, "xid", detail)
        now = self._clock.mono_ns()
        missed = max(0, (now - self._tick_at_ns) // self._interval_ns)
        self._tick_at_ns += (missed + 1) * self._interval_ns

    def _concerned(self, uuid: str) -> list[OpenLease]:
        """Leases that hold a device or an instance of it."""
        return [
            kept.log
            for kept in self._leases.values()
            if any(uuid in (device.uuid, device.parent_uuid) for device in kept.log.devices.values())
        ]

    def _read(self, uuids: Sequence[str], only: Sequence[OpenLease] | None = None) -> None:
        self._watch_clock()
        for uuid, sample in zip(uuids, self._probe.read(uuids)):
            logs = (
                self._owners.get(uuid, []) if only is None else [log for log in only if uuid in log.devices]
            )
            if isinstance(sample, str):
                for log in logs:
                    log.missed(uuid, sample)
                continue
            for log in logs:
                log.sample(uuid, sample)
            slow = (sample[_THROTTLE] or 0) & _SLOWDOWN
            if slow != self._throttled.get(uuid, 0):
                self._throttled[uuid] = slow
                self._event(logs, uuid, "slowdown", str(slow))

    def _read_counters(
        self, uuids: Sequence[str], moment: str, only: Sequence[OpenLease] | None = None
    ) -> None:
        for read in self._probe.counters(uuids, moment):
            logs = self._owners.get(read.uuid, []) if only is None else only
            for log in logs:
                if read.uuid in log.devices:
                    log.counter(read)

    def _read_rings(self, uuids: Sequence[str]) -> None:
        for uuid, name, windows in self._probe.rings(uuids, self._config.ring_names):
            for log in self._owners.get(uuid, []):
                log.windows(uuid, name, windows)

    def _watch_clock(self) -> None:
        """A wall clock that was set is an event; what is counted by the other clock goes on."""
        mono, wall = self._clock.mono_ns(), self._clock.wall_ns()
        offset_ms = (wall - mono) // MS
        if self._offset_ms is not None and abs(offset_ms - self._offset_ms) > _STEP_MS:
            for kept in self._leases.values():
                kept.log.clock(mono, wall)
            logs = [kept.log for kept in self._leases.values()]
            self._event(logs, None, "clock_step", str(offset_ms - self._offset_ms))
            self._probe.forget_rings()
        self._offset_ms = offset_ms

    def _event(self, logs: Iterable[OpenLease], uuid: str | None, kind: str, detail: str) -> None:
        event = Event(self._clock.mono_ns(), self._clock.wall_ns(), uuid, kind, detail)
        for log in logs:
            log.event(event)

    def _account(self) -> None:
        """Values that the source had to leave out go to the leases that hold the device."""
        for (uuid, name, reason), n in self._probe.faults().items():
            for log in self._owners.get(uuid, []):
                log.tally(uuid, name, reason, n)

    # Files

    def _keep_spools(self) -> None:
        now = self._clock.mono_ns()
        if now < self._keep_at_ns:
            return
        due = [kept for kept in self._leases.values() if now >= kept.flush_at_ns]
        if due:
            self._account()
        for kept in due:
            self._flush(kept)
        for stem, kept in list(self._leases.items()):
            if now - kept.opened_ns > self._config.lost_s * S or kept.is_missing(now):
                del self._leases[stem]
                self._close(_Closing(kept.log, "lost", now, self._clock.wall_ns(), True))
                self._own()
            elif now - kept.began_ns > self._config.part_s * S:
                self._next_part(stem, kept, "part", "before_first_read")
        if self._closing and now >= self._retry_at_ns:
            waiting, self._closing = self._closing, []
            for one in waiting:
                self._close(one)
            self._retry_at_ns = now + int(_RETRY_S * S)
        if now >= self._status_at_ns:
            self._status_at_ns = now + int(_STATUS_S * S)
            self._write_status()
        self._keep_at_ns = now + S // 2

    def _flush(self, kept: _Kept) -> None:
        kept.flush_at_ns = self._clock.mono_ns() + int(self._config.chunk_length_s * S)
        try:
            kept.log.flush(self._own_meta())
        except SpoolFailed as error:
            self._log.trouble("spool", f"samples are dropped and counted: {error}")

    def _next_part(self, stem: str, kept: _Kept, closed: str, reason: str) -> None:
        """End a lease's file here and go on in another; the next one is there before this one ends."""
        now, wall = self._clock.mono_ns(), self._clock.wall_ns()
        old = kept.log
        meta = {**old.meta, "from_wall_ns": wall, "version": VERSION, "interval_ms": self._interval_ns // MS}
        for key in ("part", "from_ns", "to_ns", "closed", "dropped_samples"):
            meta.pop(key, None)
        log = OpenLease(self._config.spool_folder, stem, meta, now, self._late_ns, old.part + 1)
        log.attribute(list(old.devices.values()), old.attribution, reason)
        log.clock(now, wall)
        kept.log, kept.began_ns = log, now
        self._own()
        self._flush(kept)
        self._close(_Closing(old, closed, now, wall, False))

    def _close(self, one: _Closing, more: dict[str, MetaValue] | None = None) -> None:
        one.meta = {**one.meta, **self._own_meta(), **(more or {})}
        if one.final:
            self._sealed.add(one.log.stem)
        try:
            one.log.close(one.closed, one.to_ns, one.to_wall_ns, one.meta, one.because)
        except SpoolFailed as error:
            self._log.trouble("seal", f"the spool file of {one.log.stem} cannot be closed now: {error}")
            self._closing.append(one)
            self._retry_at_ns = self._clock.mono_ns() + int(_RETRY_S * S)
            return
        if one.final:
            self._mark(one.log.stem)
        self._courier.notify()

    def _mark(self, stem: str) -> None:
        """The hooks may remove the lease's files."""
        self._sealed.add(stem)
        try:
            mark_sealed(self._config.sampler_folder, stem)
        except OSError as error:
            self._log.trouble("marks", f"{self._config.sampler_folder} cannot be written: {error.strerror}")

    def _own_meta(self) -> dict[str, MetaValue]:
        """The sampler about itself, and the driver, as they are now."""
        info = self._probe.info
        return {
            "alive_ns": self._clock.mono_ns(),
            **own_usage(),
            "polls": self._probe.polls,
            "late_ticks": self._late_ticks,
            "source": info.kind,
            "driver_version": info.driver_version,
            "library_version": info.library_version,
            "cuda_version": info.cuda_version,
        }

    def _write_status(self) -> None:
        lines = {
            "leases": len(self._leases),
            "devices": len(self._owners),
            "driver_open": int(self._probe.is_open),
        }
        known = {**lines, **self._own_meta()}
        text = "".join(f"{key}={value}\n" for key, value in known.items() if value is not None)
        target = self._config.sampler_folder / "status"
        try:
            claim = target.with_name(".status.tmp")
            claim.write_text(text, encoding="utf-8")
            claim.replace(target)
        except OSError as error:
            self._log.trouble("status", f"{target} cannot be written: {error.strerror}")

    def _idle(self) -> bool:
        now = self._clock.mono_ns()
        if self._leases or self._closing:
            self._busy_at_ns = now
        return now - self._busy_at_ns > self._config.idle_s * S

    def shut(self) -> None:
        """Last readings, files closed for good or for the next sampler, driver let go."""
        uuids = list(self._owners)
        if uuids:
            self._read_rings(uuids)
            self._read(uuids)
            self._read_counters(uuids, "stop")
        self._account()
        self._probe.close()
        for stem, kept in list(self._leases.items()):
            self._next_part(stem, kept, "stop", "sampler_stopped")
            kept.log.suspend()
        waiting, self._closing = self._closing, []
        for one in waiting:
            self._close(one)
        self._write_status()
