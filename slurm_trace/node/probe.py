"""The node's devices as the sampler sees them: asked through the watchdog, opened again when they were lost."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from slurm_trace.node.clock import Clock
from slurm_trace.node.devices.base import CounterRead, DeviceInfo, DeviceSource, SourceInfo, XidEvent
from slurm_trace.node.errors import DeviceLost, DeviceProblem, NotSupported, SourceGone
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.node.log import Log
from slurm_trace.node.rings import Ring, Window
from slurm_trace.node.spool import MS, CounterMoment
from slurm_trace.node.watchdog import Caller, Hung

DRIVER = "driver"
HUNG = "hung"

# Opening a broken driver again takes long and fills logs: less and less often.
_FIRST_RETRY_S, _LAST_RETRY_S = 5.0, 300.0
_SHORTEST_RING_S = 1.0

# (CLOCK_BOOTTIME in ms, wall clock minus that in ms, values in the order of SAMPLE_FIELDS…)
Sample = tuple[Optional[int], ...]


@dataclass(frozen=True)
class Limits:
    """How long calls may take, and how often ring buffers are looked at, in seconds."""

    hang_s: float
    open_s: float
    ring_s: float


class Probe:
    """Asks one device source.

    Args:
        source: Where readings come from.
        caller: Makes the calls.
        clock: Of the node.
        log: For trouble.
        limits: Of time.
    """

    def __init__(self, source: DeviceSource, caller: Caller, clock: Clock, log: Log, limits: Limits) -> None:
        self.devices: dict[str, DeviceInfo] = {}
        self.polls = 0
        self.because = "closed"
        self.ring_s = limits.ring_s
        self._source = source
        self._caller = caller
        self._clock = clock
        self._log = log
        self._limits = limits
        self._open = False
        self._held = False
        self._opened_ns = 0
        self._down: dict[str, str] = {}
        self._retry_s = _FIRST_RETRY_S
        self._retry_at_ns = 0
        self._rings: dict[tuple[str, str], Ring] = {}
        self._faults: Counter[tuple[str, str, str]] = Counter()
        self._xids: list[XidEvent] = []
        self._calls: dict[tuple[str, ...], list[tuple[str, Any]]] = {}

    @property
    def is_open(self) -> bool:
        """Whether the driver is held open."""
        return self._open

    @property
    def info(self) -> SourceInfo:
        """Driver and library."""
        return self._source.info

    def open(self) -> bool:
        """Open the source if it is not, unless that failed a moment ago. False: it is not open, see `because`."""
        if self._open:
            return True
        if self._clock.mono_ns() < self._retry_at_ns or not self.let_go():
            return False
        found = self._ask([(DRIVER, self._open_source)], self._limits.open_s)[0]
        if isinstance(found, list):
            self._open, self._opened_ns = True, self._clock.mono_ns()
            self.devices = {device.uuid: device for device in found}
            self._down = {}
            for index, reason in self._source.info.failed:
                self._log.trouble(f"device {index}", f"device {index} of the driver cannot be read: {reason}")
            return True
        self.because = _reason(found)
        self._later()
        self._log.trouble("open", f"the devices cannot be reached: {found}")
        return False

    def close(self) -> None:
        """Let go of the driver."""
        self._shut("closed")
        self._retry_at_ns, self._retry_s = 0, _FIRST_RETRY_S

    def let_go(self) -> bool:
        """Close what could not be closed while a call was out; false while one still is.

        The driver's library would wait for that call, and whoever closes it with it.
        """
        if self._held and not self._caller.stuck:
            self._ask([(DRIVER, self._source.close)], self._limits.hang_s)
            self._held = False
        return not self._held

    def revive(self, wanted: Iterable[str]) -> bool:
        """Open the source again if some of `wanted` were lost and it is time to look for them; true if it was."""
        if not self._down or not self._open or not any(uuid in self._down for uuid in wanted):
            return False
        if self._clock.mono_ns() < self._retry_at_ns or self._caller.stuck:
            return False
        self._later()
        self._shut("lost")
        self._retry_at_ns = 0
        return self.open()

    def read(self, uuids: Sequence[str]) -> list[Sample | str]:
        """A reading of each device, or the reason why there is none."""
        key = tuple(uuids)
        calls = self._calls.get(key)
        if calls is None:
            self._calls = {key: [(uuid, functools.partial(self._sample, uuid)) for uuid in uuids]}
            calls = self._calls[key]
        self.polls += 1
        return self._sound(calls, self._note_xids)

    def _note_xids(self) -> None:
        self._xids += self._source.xid_events()

    def counters(self, uuids: Sequence[str], moment: str) -> list[CounterMoment]:
        """The counters of each device that gives them."""
        calls = [(uuid, functools.partial(self._counters, uuid, moment)) for uuid in uuids]
        return [found for found in self._sound(calls) if isinstance(found, CounterMoment)]

    def rings(self, uuids: Sequence[str], names: Sequence[str]) -> list[tuple[str, str, list[Window]]]:
        """What the driver kept since the last look."""
        wanted = [(uuid, name) for uuid in uuids for name in names if self._has_ring(uuid, name)]
        calls = [(uuid, functools.partial(self._ring, uuid, name)) for uuid, name in wanted]
        found = []
        lost = False
        for (uuid, name), entries in zip(wanted, self._sound(calls)):
            ring = self._rings.setdefault((uuid, name), Ring())
            if isinstance(entries, str):
                ring.forget()
                continue
            holes = ring.holes
            windows = ring.take(*entries)
            lost = lost or ring.holes > holes
            if windows:
                found.append((uuid, name, windows))
        if lost:
            self.ring_s = max(_SHORTEST_RING_S, self.ring_s / 2)
        return found

    def forget_rings(self, not_before_us: int = 0) -> None:
        """The driver's time stamps before now, and those up to `not_before_us`, do not go with later ones."""
        for ring in self._rings.values():
            ring.forget(not_before_us)

    def xids(self) -> list[XidEvent]:
        """Errors that the driver had reported when devices were read since the last call."""
        found, self._xids = self._xids, []
        return found

    def faults(self) -> Counter[tuple[str, str, str]]:
        """(uuid, field, reason) → values that had to be left out since the last call."""
        now = Counter(dict(self._source.faults))
        fresh = now - self._faults
        self._faults = now
        return fresh

    def _open_source(self) -> list[DeviceInfo]:
        self._source.open()
        return self._source.devices()

    def _sample(self, uuid: str) -> Sample:
        values = self._source.read(uuid).values
        clock = self._clock
        mono_ms = clock.mono_ns() // MS
        return (mono_ms, clock.wall_ns() // MS - mono_ms, *values)

    def _counters(self, uuid: str, moment: str) -> CounterMoment:
        before = self._clock.mono_ns()
        read: CounterRead = self._source.counters(uuid)
        after, wall = self._clock.mono_ns(), self._clock.wall_ns()
        return CounterMoment(
            moment, before, after - before, wall, uuid, dict(zip(COUNTER_NAMES, read.values))
        )

    def _ring(self, uuid: str, name: str) -> tuple[list[tuple[int, int | None]], int, int]:
        ring = self._rings.get((uuid, name))
        entries = self._source.ring(uuid, name, ring.since_us if ring else 0)
        wall_ns = self._clock.wall_ns()
        return entries, wall_ns // MS - self._clock.mono_ns() // MS, wall_ns // 1000

    def _has_ring(self, uuid: str, name: str) -> bool:
        device = self.devices.get(uuid)
        return device is not None and device.capability.get(f"ring:{name}", "ok") == "ok"

    def _sound(self, calls: Sequence[tuple[str, Any]], also: Callable[[], None] | None = None) -> list[Any]:
        """Results of calls, or the reason why there is none; devices that are lost are not asked.

        Args:
            calls: Name of the device, and the call.
            also: Called before them, of the driver as a whole.
        """
        if not self._open:
            return [self.because] * len(calls)
        for call in calls:
            if call[0] not in self.devices:
                self._give_up(call[0], "not_found")
        down = dict(self._down)
        ask = [call for call in calls if call[0] not in down] if down else list(calls)
        if also is not None:
            ask.insert(0, (DRIVER, also))
        answers = self._ask(ask, self._limits.hang_s)
        if also is not None:
            del answers[0]
        rest = iter(answers)
        judged = [down[uuid] if uuid in down else next(rest) for uuid, _ in calls] if down else answers
        return [
            self._judge(call[0], answer) if isinstance(answer, Exception) else answer
            for call, answer in zip(calls, judged)
        ]

    def _judge(self, uuid: str, error: Exception) -> str:
        reason = _reason(error)
        if isinstance(error, NotSupported):
            return reason
        if isinstance(error, SourceGone) and self._open:
            self._later()
            self._shut(reason)
        elif isinstance(error, DeviceLost):
            self._give_up(uuid, reason)
        self._log.trouble(f"{uuid} {reason}", f"{uuid} gives no reading ({reason}): {error}")
        return reason

    def _shut(self, because: str) -> None:
        self._held = self._held or self._open
        self._open = False
        self.because = because
        self._calls = {}
        self.forget_rings()
        self.let_go()

    def _give_up(self, uuid: str, reason: str) -> None:
        """Ask a device no more until the driver was opened again; soon, if it held for a while, else later."""
        if uuid in self._down:
            return
        self._down[uuid] = reason
        now = self._clock.mono_ns()
        if now - self._opened_ns > 2 * _LAST_RETRY_S * 1e9:
            self._retry_s = _FIRST_RETRY_S
        self._retry_at_ns = max(self._retry_at_ns, now + int(self._retry_s * 1e9))

    def _later(self) -> None:
        self._retry_at_ns = self._clock.mono_ns() + int(self._retry_s * 1e9)
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)

    def _ask(self, calls: Sequence[tuple[str, Any]], limit_s: float) -> list[Any]:
        return self._caller.run(calls, limit_s)


def _reason(error: Any) -> str:
    if isinstance(error, DeviceProblem):
        return error.reason
    return HUNG if isinstance(error, Hung) else "other_error"
