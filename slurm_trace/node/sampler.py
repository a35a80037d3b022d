"""The sampler: one process per node, which follows the leases and reads the devices that they hold.

A turn looks at the lease directory, reads what is due, credits it to every lease that holds the device, and keeps the
spool files. The driver is open only while some lease holds a device.

A call into the driver may hang, and then the thread that is in it is given up (see `watchdog`): another one begins a
turn anew. So no turn changes anything on the way to a call that it could not do again; what has to be read only once, a
lease's first values, is due until it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_trace.node.about import About
from slurm_trace.node.attribution import attribute, wants_devices
from slurm_trace.node.clock import Clock
from slurm_trace.node.config import NodeConfig
from slurm_trace.node.courier import Courier
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.lease import Lease, LeaseEnd, LeaseReader, LeaseScan
from slurm_trace.node.log import Log
from slurm_trace.node.open_lease import OpenLease, facts, first_free_part
from slurm_trace.node.probe import Probe
from slurm_trace.node.readings import Readings
from slurm_trace.node.resume import reopen
from slurm_trace.node.roster import Roster, Served
from slurm_trace.node.spool import MS, MetaValue
from slurm_trace.node.spool_keeper import Closing, SpoolKeeper
from slurm_trace.node.spool_writer import SpoolWriter
from slurm_trace.version import VERSION

S = 1_000_000_000
CS = 10_000_000

LOOK_S = 0.25
_STATUS_S = 60.0

_CLOSED = {"epilog": "end", "superseded": "superseded", "reboot": "boot", "orphan": "orphan"}


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
        self._counters_ns = int(self._config.counters_s * S)
        self._roster = Roster()
        self._leases = self._roster.leases
        self._about = About(self._probe, self._clock)
        self._readings = Readings(self._probe, self._clock, self._roster, self._config.ring_names)
        self._keeper = SpoolKeeper(self._config, self._clock, self._log, self._courier, self._about.meta)
        self._scan: LeaseScan | None = None
        self._begun: list[Served] = []
        self._counters_moment = "periodic"
        self._stopping = False
        self._starting = True
        now = self._clock.mono_ns()
        self._tick_at_ns = self._counters_at_ns = self._ring_at_ns = now
        self._status_at_ns = self._busy_at_ns = self._keep_at_ns = now

    @property
    def leases(self) -> tuple[str, ...]:
        """Stems of the leases that are served."""
        return tuple(self._leases)

    @property
    def sealed(self) -> frozenset[str]:
        """Stems of leases that are over and whose files the hooks have not removed yet."""
        return frozenset(self._keeper.sealed)

    def stop(self) -> None:
        """Ask the loop to end; may be called by a signal handler."""
        self._stopping = True

    def run(self, until_idle: bool = False, is_over: Callable[[], bool] = lambda: True) -> None:
        """Serve leases until `stop`, or until there have been none for a while. May be begun anew at any moment.

        Args:
            until_idle: End when no lease has been open for `idle_s`.
            is_over: Asked then; false keeps it going (a prolog came in at the last moment).
        """
        while not self._stopping:
            self.turn()
            if until_idle and self._idle() and is_over():
                break
            self._clock.sleep(self.pause_s())
        self.shut()

    def pause_s(self) -> float:
        """How long there is nothing to do."""
        if not self._roster.owners:
            return LOOK_S
        due_s = (min(self._tick_at_ns, self._ring_at_ns) - self._clock.mono_ns()) / S
        return LOOK_S if due_s > LOOK_S else max(due_s, 0.0)

    def turn(self) -> None:
        """Do all that is due now."""
        self._look()
        if self._begun:
            self._read_first()
        now = self._clock.mono_ns()
        owners = self._roster.owners
        if owners:
            if not self._probe.is_open or self._probe.revive(owners):
                self._find_devices()
                owners = self._roster.owners
            if now >= self._ring_at_ns:
                self._readings.rings(list(owners))
                self._ring_at_ns = now + int(self._probe.ring_s * S)
            if now >= self._counters_at_ns:
                self._readings.counters(list(owners), self._counters_moment)
                self._counters_at_ns, self._counters_moment = now + self._counters_ns, "periodic"
            if now >= self._tick_at_ns:
                self._tick(now)
        elif self._roster.waiting():
            self._find_devices()
        else:
            self._probe.let_go()
        if now >= self._keep_at_ns:
            self._keep_spools()

    def _tick(self, now: int) -> None:
        self._readings.sample(list(self._roster.owners))
        self._readings.xids()
        if now - self._tick_at_ns > self._interval_ns:
            self._about.late_ticks += 1
        now = self._clock.mono_ns()
        missed = max(0, (now - self._tick_at_ns) // self._interval_ns)
        self._tick_at_ns += (missed + 1) * self._interval_ns

    def shut(self) -> None:
        """Last readings, files closed for good or for the next sampler, driver let go."""
        uuids = list(self._roster.owners)
        if uuids and self._probe.is_open:
            self._readings.rings(uuids)
            self._readings.sample(uuids)
            self._readings.counters(uuids, "stop")
        self._readings.account()
        self._probe.close()
        for stem, served in list(self._leases.items()):
            self._next_part(stem, served, "stop", "sampler_stopped")
            served.log.suspend()
        self._keeper.retry(now=True)
        self._write_status()

    # What an earlier sampler left

    def resume(self) -> None:
        """Take up the files of an earlier sampler: those of this boot go on, others are closed."""
        for stem, writers in reopen(self._config.spool_folder, self._keeper, self._log).items():
            for earlier, later in zip(writers, writers[1:]):
                log = OpenLease.resume(earlier, self._late_ns, "sampler_down")
                self._keeper.close(Closing(log, "stop", int(later.meta["from_ns"] or 0), None, False))
            self._resume_one(stem, writers[-1])
        self._courier.notify()

    def _resume_one(self, stem: str, writer: SpoolWriter) -> None:
        meta = writer.meta
        same_boot = meta["lease.boot_id"] == self._boot_id
        log = OpenLease.resume(writer, self._late_ns, "sampler_down" if same_boot else "boot")
        if not same_boot:
            self._keeper.close(Closing(log, "boot", None, None, True))
            return
        opened_ns = int(meta.get("lease.opened_cs") or 0) * CS
        served = Served(
            log, None, self._clock.mono_ns(), log.from_ns, opened_ns, bool(meta.get("wants_devices"))
        )
        self._leases[stem] = served
        if not writer.continues:
            # Another version's columns: this file ends here, the next part has ours.
            self._next_part(stem, served, "part", "sampler_down")
        self._regroup()

    # Leases

    def _look(self) -> None:
        if self._starting:
            # Before the leases are read: the hooks remove a sealed one first, and then its mark.
            self._keeper.read_marks()
        scan = self._reader.scan()
        if scan is self._scan:
            return
        for refusal in scan.refused:
            self._log.trouble(f"refused {refusal.name}", f"lease {refusal.name} refused: {refusal.reason}")
        ended: list[tuple[str, Lease | None, LeaseEnd]] = [
            (end.stem, lease, end) for lease, end in scan.ended
        ]
        ended += [(end.stem, None, end) for end in scan.orphans]
        self._end([one for one in ended if one[0] not in self._keeper.sealed])
        for lease in scan.open:
            if lease.stem in self._leases:
                self._leases[lease.stem].lease = lease
        known = self._keeper.sealed.union(self._leases)
        self._begin([lease for lease in scan.open if lease.stem not in known])
        self._note_missing(scan)
        self._keeper.forget(scan)
        self._starting = False
        self._scan = scan

    def _note_missing(self, scan: LeaseScan) -> None:
        """A directory that cannot be read shows nothing, and a file that is refused is there."""
        refused = {refusal.name for refusal in scan.refused}
        if str(self._config.leases_folder) not in refused:
            present = {lease.stem for lease in scan.open} | {name.rpartition(".")[0] for name in refused}
            self._roster.note_missing(present, self._clock.mono_ns())

    def _begin(self, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        if any(wants_devices(lease) for lease in leases):
            self._probe.open()
        now = self._clock.mono_ns()
        if not self._roster.owners:
            self._tick_at_ns = now + self._interval_ns
            self._counters_at_ns = now + self._counters_ns
            self._ring_at_ns = now + int(self._probe.ring_s * S)
        for lease in leases:
            served = self._served(lease, now)
            self._leases[lease.stem] = served
            self._begun.append(served)
            if served.wants:
                self._attribute(served, lease)
            else:
                served.log.attribute([], "none", "")
        self._regroup()

    def _read_first(self) -> None:
        """Leases that have just begun get their first values, and their files."""
        logs = [served.log for served in self._begun]
        uuids = sorted({uuid for log in logs for uuid in log.devices})
        if uuids:
            self._readings.counters(uuids, "start", logs)
            self._readings.sample(uuids, logs)
            self._readings.rings(uuids)
        for served in self._begun:
            self._keeper.flush(served)
        self._begun = []

    def _served(self, lease: Lease, now: int) -> Served:
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
        log = self._new_log(lease.stem, meta, from_ns)
        log.clock(now, self._clock.wall_ns())
        return Served(log, lease, now, now, from_ns, wants)

    def _new_log(self, stem: str, meta: dict[str, MetaValue], from_ns: int) -> OpenLease:
        folder = self._config.spool_folder
        return OpenLease(folder, stem, meta, from_ns, self._late_ns, first_free_part(folder, stem))

    def _attribute(self, served: Served, lease: Lease) -> None:
        if not self._probe.is_open:
            return
        devices = list(self._probe.devices.values())
        found = attribute(lease, devices, lambda: self._minors(lease, devices))
        reason = "sampler_down" if self._starting else "before_first_read"
        served.log.attribute(found.devices, found.how, reason)
        if found.how == "ambiguous":
            self._log.trouble(
                "ambiguous",
                f"lease {lease.stem}: which devices it holds is not known; all {len(found.devices)} are sampled",
            )

    def _find_devices(self) -> None:
        """The driver is open now: leases that wait for it get their devices, and counters are due."""
        if not self._probe.open():
            return
        for served in self._roster.waiting():
            if served.lease is not None:
                self._attribute(served, served.lease)
        self._regroup()
        self._counters_at_ns, self._counters_moment = self._clock.mono_ns(), "resume"

    def _regroup(self) -> None:
        """Who holds what, anew; two owners of one device are an event in both their files."""
        for news in self._roster.regroup():
            kind = "shared" if news.others else "shared_no_more"
            self._readings.event([news.log], news.uuid, kind, " ".join(news.others))
        if not self._roster.owners and not self._roster.wants_devices:
            self._probe.close()

    def _end(self, ended: Sequence[tuple[str, Lease | None, LeaseEnd]]) -> None:
        if not ended:
            return
        logs = [self._leases[stem].log for stem, _, _ in ended if stem in self._leases]
        uuids = sorted({uuid for log in logs for uuid in log.devices})
        if uuids:
            self._readings.rings(uuids)
            self._readings.sample(uuids, logs)
            self._readings.counters(uuids, "end", logs)
        self._readings.account()
        for stem, lease, end in ended:
            served = self._leases.pop(stem, None)
            because = self._probe.because if served is not None else "never_seen"
            log = served.log if served is not None else self._never_served(lease, end)
            log.clock(self._clock.mono_ns(), self._clock.wall_ns())
            to_ns = None if end.closed_cs is None else max(end.closed_cs * CS, log.from_ns)
            to_wall_ns = int(end.closed_at * S)
            meta = facts("end", end)
            self._keeper.close(Closing(log, _CLOSED[end.how], to_ns, to_wall_ns, True, because, meta))
        self._begun = [served for served in self._begun if served.log.stem in self._leases]
        self._regroup()

    def _never_served(self, lease: Lease | None, end: LeaseEnd) -> OpenLease:
        """A lease that was over before it was seen, or an epilog without a lease: a record of nothing."""
        now = self._clock.mono_ns()
        if lease is not None:
            served = self._served(lease, now)
            if not served.wants:
                served.log.attribute([], "none", "")
            return served.log
        meta: dict[str, MetaValue] = {
            "lease.job_id": str(end.job_id),
            "lease.moment": str(end.moment),
            "lease.boot_id": end.boot_id,
            "version": VERSION,
            "interval_ms": self._interval_ns // MS,
        }
        return self._new_log(end.stem, meta, now if end.closed_cs is None else end.closed_cs * CS)

    # Files

    def _keep_spools(self) -> None:
        now = self._clock.mono_ns()
        due = [served for served in self._leases.values() if now >= served.flush_at_ns]
        if due:
            self._readings.account()
        for served in due:
            self._keeper.flush(served)
        for stem, served in list(self._leases.items()):
            if now - served.opened_ns > self._config.lost_s * S or served.is_missing(now):
                del self._leases[stem]
                self._keeper.close(Closing(served.log, "lost", now, self._clock.wall_ns(), True))
                self._regroup()
            elif now - served.began_ns > self._config.part_s * S:
                self._next_part(stem, served, "part", "before_first_read")
        self._keeper.retry()
        if now >= self._status_at_ns:
            self._status_at_ns = now + int(_STATUS_S * S)
            self._write_status()
        self._keep_at_ns = now + S // 2

    def _next_part(self, stem: str, served: Served, closed: str, reason: str) -> None:
        """End a lease's file here and go on in another; the next one is there before this one ends."""
        now, wall = self._clock.mono_ns(), self._clock.wall_ns()
        old = served.log
        meta = {**old.meta, "from_wall_ns": wall, "version": VERSION, "interval_ms": self._interval_ns // MS}
        for key in ("part", "from_ns", "to_ns", "closed", "dropped_samples"):
            meta.pop(key, None)
        log = OpenLease(self._config.spool_folder, stem, meta, now, self._late_ns, old.part + 1)
        log.attribute(list(old.devices.values()), old.attribution, reason)
        log.clock(now, wall)
        served.log, served.began_ns = log, now
        self._regroup()
        self._keeper.flush(served)
        self._keeper.close(Closing(old, closed, now, wall, False))

    def _write_status(self) -> None:
        owners = self._roster.owners
        self._about.write(self._config.sampler_folder, len(self._leases), len(owners), self._log)

    def _idle(self) -> bool:
        now = self._clock.mono_ns()
        if self._leases or not self._keeper.is_done:
            self._busy_at_ns = now
        return now - self._busy_at_ns > self._config.idle_s * S
