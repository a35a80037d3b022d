"""What the probe reads goes to the leases that hold the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_trace.node.clock import Clock
from slurm_trace.node.open_lease import OpenLease
from slurm_trace.node.probe import Probe
from slurm_trace.node.roster import Roster
from slurm_trace.node.spool import MS, SAMPLE_COLUMNS, Event

_STEP_MS = 250
_THROTTLE = [name for name, _ in SAMPLE_COLUMNS].index("throttle_reasons")
# Hardware slowdown, heat (software and hardware), power brake: not the everyday power cap and idleness.
_SLOWDOWN = 8 | 32 | 64 | 128


class Readings:
    """Reads devices, and credits every lease that holds them.

    Whoever calls may be given up while a device is asked, and another calls again: nothing is credited before all
    answers are in.

    Args:
        probe: Asks the devices.
        clock: Of the node.
        roster: Who holds what.
        rings: Names of the ring buffers to read.
    """

    def __init__(self, probe: Probe, clock: Clock, roster: Roster, rings: Sequence[str]) -> None:
        self._probe = probe
        self._clock = clock
        self._roster = roster
        self._ring_names = rings
        self._offset_ms: int | None = None
        self._throttled: dict[str, int] = {}

    def sample(self, uuids: Sequence[str], only: Sequence[OpenLease] | None = None) -> None:
        """The values of the moment; `only`: for these leases."""
        self._watch_clock()
        owners = self._roster.owners
        for uuid, sample in zip(uuids, self._probe.read(uuids)):
            logs = owners.get(uuid, ()) if only is None else [log for log in only if uuid in log.devices]
            if isinstance(sample, str):
                for log in logs:
                    log.missed(uuid, sample)
                continue
            for log in logs:
                log.sample(uuid, sample)
            slow = (sample[_THROTTLE] or 0) & _SLOWDOWN
            if slow != self._throttled.get(uuid, 0):
                self._throttled[uuid] = slow
                self.event(logs, uuid, "slowdown", str(slow))

    def counters(self, uuids: Sequence[str], moment: str, only: Sequence[OpenLease] | None = None) -> None:
        """The cumulative counters; `only`: for these leases."""
        for read in self._probe.counters(uuids, moment):
            for log in self._roster.owners.get(read.uuid, []) if only is None else only:
                if read.uuid in log.devices:
                    log.counter(read)

    def rings(self, uuids: Sequence[str]) -> None:
        """What the driver kept since the last look."""
        for uuid, name, windows in self._probe.rings(uuids, self._ring_names):
            for log in self._roster.owners.get(uuid, []):
                log.windows(uuid, name, windows)

    def xids(self) -> None:
        """Errors that the driver reported."""
        for xid in self._probe.xids():
            detail = f"{xid.code} {xid.gpu_instance if xid.gpu_instance is not None else ''}".strip()
            self.event(self._roster.concerned(xid.uuid), xid.uuid, "xid", detail)

    def account(self) -> None:
        """Values that the source had to leave out go to the leases that hold the device."""
        for (uuid, name, reason), n in self._probe.faults().items():
            for log in self._roster.owners.get(uuid, []):
                log.tally(uuid, name, reason, n)

    def event(self, logs: Iterable[OpenLease], uuid: str | None, kind: str, detail: str) -> None:
        """Something that happened now."""
        event = Event(self._clock.mono_ns(), self._clock.wall_ns(), uuid, kind, detail)
        for log in logs:
            log.event(event)

    def _watch_clock(self) -> None:
        """A wall clock that was set is an event; what is counted by the other clock goes on."""
        mono, wall = self._clock.mono_ns(), self._clock.wall_ns()
        offset_ms = (wall - mono) // MS
        if self._offset_ms is not None and abs(offset_ms - self._offset_ms) > _STEP_MS:
            logs = self._roster.logs
            for log in logs:
                log.clock(mono, wall)
            self.event(logs, None, "clock_step", str(offset_ms - self._offset_ms))
            self._probe.forget_rings(max(wall, mono + self._offset_ms * MS) // 1000)
        self._offset_ms = offset_ms
