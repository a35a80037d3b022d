"""A scenario as a device source: what `nvml` would read of it through the driver, without one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_trace.node import fields as spec
from slurm_trace.node.devices import model
from slurm_trace.node.devices.base import CounterRead, DeviceInfo, Reading, SourceInfo, XidEvent
from slurm_trace.node.devices.codes import DEAD, LASTING, STALE_US, commonest, reason_of
from slurm_trace.node.devices.profiles import Profile
from slurm_trace.node.devices.scenario import LOST, Fault, Gpu, Scenario, Unit
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone


@dataclass(frozen=True)
class _Way:
    """How a field is read: by which call, which entry of it, where it exists, and what it shows."""

    call: str
    shows: str
    entry: str = ""
    exists: Callable[[Profile], bool] = lambda profile: not profile.virtual


_FIELD = "DeviceGetFieldValues"
_WAYS: dict[str, tuple[_Way, ...]] = {
    "utilization_pct": (_Way("DeviceGetUtilizationRates", "utilization", exists=lambda _: True),),
    "memory_utilization_pct": (
        _Way("DeviceGetUtilizationRates", "memory_utilization", exists=lambda _: True),
    ),
    "memory_used_bytes": (
        _Way("DeviceGetMemoryInfo_v2", "memory_used", exists=lambda _: True),
        _Way("DeviceGetMemoryInfo", "memory_used", exists=lambda _: True),
    ),
    "power_mw": (
        _Way(_FIELD, "power_average", "field:185", lambda profile: profile.power_average),
        _Way(
            "DeviceGetPowerUsage",
            "power",
            exists=lambda profile: not (profile.virtual or profile.module_extra_w),
        ),
    ),
    "power_instant_mw": (_Way(_FIELD, "power_instant", "field:186"),),
    "module_power_mw": (
        _Way(_FIELD, "module_power", "field:186", lambda profile: profile.module_extra_w > 0),
        _Way("DeviceGetPowerUsage", "power", exists=lambda profile: profile.module_extra_w > 0),
    ),
    "energy_mj": (
        _Way(_FIELD, "energy", "field:83", lambda profile: profile.energy),
        _Way("DeviceGetTotalEnergyConsumption", "energy", exists=lambda profile: profile.energy),
    ),
    "sm_clock_mhz": (_Way("DeviceGetClockInfo", "sm_clock", exists=lambda _: True),),
    "memory_clock_mhz": (_Way("DeviceGetClockInfo", "memory_clock", exists=lambda _: True),),
    "temperature_c": (
        _Way("DeviceGetTemperatureV", "temperature"),
        _Way("DeviceGetTemperature", "temperature"),
    ),
    "pcie_tx_kb_s": (
        _Way(_FIELD, "pcie_tx_bytes", "field:197", lambda profile: profile.pcie_counters),
        _Way("DeviceGetPcieThroughput", "pcie_tx"),
    ),
    "pcie_rx_kb_s": (
        _Way(_FIELD, "pcie_rx_bytes", "field:198", lambda profile: profile.pcie_counters),
        _Way("DeviceGetPcieThroughput", "pcie_rx"),
    ),
    "throttle_reasons": (
        _Way("DeviceGetCurrentClocksEventReasons", "throttle"),
        _Way("DeviceGetCurrentClocksThrottleReasons", "throttle"),
    ),
    "process_count": (_Way("DeviceGetComputeRunningProcesses_v3", "processes", exists=lambda _: True),),
    "pcie_tx_bytes": (_Way(_FIELD, "pcie_tx_bytes", "field:197", lambda profile: profile.pcie_counters),),
    "pcie_rx_bytes": (_Way(_FIELD, "pcie_rx_bytes", "field:198", lambda profile: profile.pcie_counters),),
    "sm_clock_max_mhz": (_Way("DeviceGetMaxClockInfo", "sm_clock_max", exists=lambda _: True),),
    "memory_clock_max_mhz": (_Way("DeviceGetMaxClockInfo", "memory_clock_max", exists=lambda _: True),),
    **{
        field.name: (_Way("GpmSampleGet", f"gpm:{metric}", f"gpm:{metric}", lambda profile: profile.gpm),)
        for metric, field in spec.GPM_FIELDS.items()
    },
}


@dataclass
class _Device:
    """A card (`unit` None) or an instance, with the way found for each field."""

    gpu: Gpu
    unit: Unit | None
    uuid: str
    status: dict[str, str]
    ways: dict[str, _Way]
    links: dict[str, tuple[int, int]]


class _Refused(Exception):
    """A call that a fault of the scenario answers."""

    def __init__(self, code: int) -> None:
        self.code = code


class ScenarioSource:
    """A `DeviceSource` over a scenario; `clock` gives Unix seconds, `pause` is what a hanging call does."""

    def __init__(
        self,
        scenario: Scenario,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._scenario, self._clock, self._pause = scenario, clock, pause
        self._devices: dict[str, _Device] = {}
        self._infos: list[DeviceInfo] = []
        self._failed: list[tuple[int, str]] = []
        self._lost: set[str] = set()
        self._open = False
        self._heard = 0.0
        self._faults: Counter[tuple[str, str, str]] = Counter()

    @property
    def info(self) -> SourceInfo:
        """The scenario's driver."""
        library = f"{int(float(self._scenario.cuda))}.{self._scenario.driver}"
        return SourceInfo("replay", self._scenario.driver, library, self._scenario.cuda, tuple(self._failed))

    @property
    def faults(self) -> Mapping[tuple[str, str, str], int]:
        """(uuid, field, reason) → how many single values were lost so."""
        return self._faults

    def open(self) -> None:
        """Find the devices that are there at this moment."""
        if self._open:
            return
        at = self._now()
        code = self._answer(self._scenario.init_faults, "init", at)
        if code:
            raise SourceGone(f"the scenario's driver does not start ({reason_of(code)})", reason_of(code))
        self._open, self._heard = True, at
        self._devices, self._infos, self._failed, self._lost = {}, [], [], set()
        present = [
            gpu for gpu in self._scenario.gpus if not any(start <= at < end for start, end in gpu.gone)
        ]
        for index, gpu in enumerate(present):
            self._find_card(gpu, index, at)

    def close(self) -> None:
        """Let go."""
        self._open = False

    def devices(self) -> list[DeviceInfo]:
        """Cards in the scenario's order, each followed by its instances."""
        self._need_open()
        return list(self._infos)

    def read(self, uuid: str) -> Reading:
        """What the driver would show at this moment."""
        values, reasons = self._values(uuid, spec.SAMPLE_FIELDS)
        return Reading(uuid, values, reasons)

    def counters(self, uuid: str) -> CounterRead:
        """What its counters would show."""
        values, reasons = self._values(uuid, spec.COUNTER_FIELDS)
        return CounterRead(uuid, values, reasons)

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """What its ring buffers would hold."""
        device, at = self._device(uuid), self._now()
        status = device.status.get(f"ring:{kind}", "not_supported")
        if status in LASTING:
            raise NotSupported(f"{uuid} keeps no {kind} ({status}); poll it instead", status)
        number = spec.RINGS[kind]
        try:
            self._call(device.gpu, "DeviceGetSamples", at, f"samples:{number}")
        except _Refused as refused:
            reason = reason_of(refused.code)
            if reason in DEAD:
                raise DeviceLost(uuid, reason) from None
            if reason == "not_found":
                return []
            self._faults[uuid, f"ring:{kind}", reason] += 1
            raise NotSupported(f"{uuid} does not hand over {kind} now ({reason}); poll it", reason) from None
        entries: list[tuple[int, int | None]] = []
        for stamp, value in model.ring(self._scenario, device.gpu, number, since_us, at):
            wrong = spec.invalid(spec.FIELDS[kind], _shown_as(value))
            if wrong is not None:
                self._faults[uuid, f"ring:{kind}", wrong] += 1
            entries.append((stamp, int(value) if wrong is None else None))
        return entries

    def xid_events(self) -> list[XidEvent]:
        """Errors since the last call."""
        self._need_open()
        since, self._heard = self._heard, self._now()
        found = [
            (at, XidEvent(gpu.uuid, code, gi, ci))
            for gpu in self._scenario.gpus
            if gpu.uuid in self._devices and not gpu.profile.virtual
            for at, code, gi, ci in gpu.xids
            if since < at <= self._heard
        ]
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]

    def _now(self) -> float:
        return self._clock() - self._scenario.epoch

    def _need_open(self) -> None:
        if not self._open:
            raise SourceGone("the source is not open; call open() first", "closed")

    def _device(self, uuid: str) -> _Device:
        self._need_open()
        if uuid not in self._devices:
            raise DeviceLost(uuid, "not_found")
        return self._devices[uuid]

    def _answer(self, faults: list[Fault], function: str, at: float) -> int:
        code, hang = 0, 0.0
        for fault in faults:
            if fault.start <= at < fault.end and fault.function in ("*", function):
                code = code if fault.hang_s else fault.code
                hang = max(hang, fault.hang_s)
        if hang:
            self._pause(hang)
        return code

    def _call(self, gpu: Gpu, function: str, at: float, entry: str = "") -> None:
        """Raise what the scenario lets this call answer."""
        for name in (function, entry):
            code = self._answer(gpu.faults, name, at) if name else 0
            if code == LOST:
                self._lost.add(gpu.uuid)
            if gpu.uuid in self._lost:
                raise _Refused(LOST)
            if code:
                raise _Refused(code)

    def _find_card(self, gpu: Gpu, index: int, at: float) -> None:
        try:
            self._call(gpu, "DeviceGetHandleByIndex_v2", at)
        except _Refused as refused:
            self._failed.append((index, reason_of(refused.code)))
            return
        self._find(gpu, None, index, at)
        for place, unit in enumerate(gpu.instances):
            self._find(gpu, unit, place, at)

    def _find(self, gpu: Gpu, unit: Unit | None, index: int, at: float) -> None:
        uuid = gpu.uuid if unit is None else unit.uuid
        device = _Device(gpu, unit, uuid, {}, {}, {})
        for field in (*spec.SAMPLE_FIELDS, *spec.COUNTER_FIELDS):
            device.status[field.name] = self._choose(device, field, at)
        for kind, number in spec.RINGS.items():
            device.status[f"ring:{kind}"] = self._ring_status(device, kind, number, at)
        self._devices[uuid] = device
        self._infos.append(_describe(device, index, at, self._scenario, self._power_scope(device, at)))

    def _power_scope(self, device: _Device, at: float) -> str:
        if device.unit is not None or device.gpu.profile.virtual:
            return "none"
        try:
            self._call(device.gpu, "DeviceGetPowerUsage", at)
        except _Refused:
            return "none"
        return spec.MODULE if device.gpu.profile.module_extra_w else spec.GPU

    def _choose(self, device: _Device, field: spec.Field, at: float) -> str:
        if device.unit is not None and field.scope in (spec.GPU, spec.MODULE):
            return "whole_card"
        first = ""
        for way in _WAYS[field.name]:
            status = "ok" if self._exists(device, way) else "not_supported"
            try:
                self._call(device.gpu, way.call, at, way.entry)
            except _Refused as refused:
                status = reason_of(refused.code)
            first = first or status
            if status not in LASTING:
                device.ways[field.name] = way
                return status
        return first

    def _exists(self, device: _Device, way: _Way) -> bool:
        if way.shows in ("utilization", "memory_utilization") and device.gpu.instances:
            return False
        return way.exists(device.gpu.profile)

    def _ring_status(self, device: _Device, kind: str, number: int, at: float) -> str:
        profile = device.gpu.profile
        if device.unit is not None:
            return "whole_card"
        missing = profile.virtual or (kind == "module_power_mw" and not profile.module_extra_w)
        if missing or (device.gpu.instances and "utilization" in kind):
            return "not_supported"
        try:
            self._call(device.gpu, "DeviceGetSamples", at, f"samples:{number}")
        except _Refused as refused:
            return "no_data" if reason_of(refused.code) == "not_found" else reason_of(refused.code)
        return "ok"

    def _values(
        self, uuid: str, fields: tuple[spec.Field, ...]
    ) -> tuple[tuple[int | None, ...], Mapping[str, str]]:
        device, at = self._device(uuid), self._now()
        values: list[int | None] = []
        reasons: dict[str, str] = {}
        answered = False
        for field in fields:
            way = device.ways.get(field.name)
            value, reason = None, device.status[field.name]
            if way is not None:
                value, reason, heard = self._value(device, field, way, at)
                answered = answered or heard
            if value is None:
                reasons[field.name] = reason
            values.append(value)
        tried = {name: reason for name, reason in reasons.items() if name in device.ways}
        for reason in tried.values():
            if reason in DEAD:
                raise DeviceLost(uuid, reason)
        if not answered:
            raise DeviceLost(uuid, commonest(tried.values()))
        for name, reason in tried.items():
            if reason != "first_read":
                self._faults[uuid, name, reason] += 1
        return tuple(values), reasons

    def _value(
        self, device: _Device, field: spec.Field, way: _Way, at: float
    ) -> tuple[int | None, str, bool]:
        """Value, the reason why there is none, and whether the call itself was answered."""
        try:
            self._call(device.gpu, way.call, at)
        except _Refused as refused:
            return None, reason_of(refused.code), False
        try:
            self._call(device.gpu, way.entry, at)
        except _Refused as refused:
            return None, reason_of(refused.code), True
        value = self._shown(device, way.shows, at)
        if field.name.endswith("_kb_s") and way.shows.endswith("_bytes"):
            return (*self._rate(device, field, value, int((self._scenario.epoch + at) * 1e6)), True)
        total = device.gpu.whole.memory_bytes if device.unit is None else device.unit.memory_bytes
        if way.shows == "memory_used" and value > total:
            return None, spec.invalid(field, value) or "out_of_range", True
        wrong = spec.invalid(field, value)
        return (value, "", True) if wrong is None else (None, wrong, True)

    def _rate(self, device: _Device, field: spec.Field, value: int, stamp: int) -> tuple[int | None, str]:
        earlier = device.links.get(field.name)
        device.links[field.name] = (stamp, value)
        if earlier is None or stamp - earlier[0] > STALE_US:
            return None, "first_read"
        if stamp <= earlier[0]:
            return None, "no_data"
        if value < earlier[1]:
            return None, "counter_restarted"
        return (value - earlier[1]) * 1000 // (stamp - earlier[0]), ""

    def _shown(self, device: _Device, shows: str, at: float) -> int:
        gpu, unit = device.gpu, device.unit
        if shows.startswith("gpm:"):
            return int(model.gpm_counter(self._scenario, gpu, unit, int(shows[4:]), at))
        if shows == "processes":
            parts = [unit] if unit is not None else [gpu.whole, *gpu.instances]
            return sum(start <= at < end for part in parts for start, end, _, _ in part.processes)
        if shows == "memory_used":
            set_value = None if unit is not None else model.override(gpu, shows, at)
            return _shown_as(model.memory_used(gpu, unit, at) if set_value is None else set_value)
        return _shown_as(model.reading(self._scenario, gpu, shows, at))


def _shown_as(value: float) -> int:
    """What a register shows of a number that it cannot hold: all ones."""
    return int(value) if 0 <= value < 2**64 else 2**64 - 1


def _describe(device: _Device, index: int, at: float, scenario: Scenario, scope: str) -> DeviceInfo:
    gpu, unit = device.gpu, device.unit
    domain, bus, rest = gpu.pci.split(":")
    common = {
        "minor": gpu.minor,
        "pci": f"{int(domain, 16):08x}:{bus}:{rest}".lower(),
        "max_sm_mhz": int(model.reading(scenario, gpu, "sm_clock_max", at)),
        "max_mem_mhz": int(model.reading(scenario, gpu, "memory_clock_max", at)),
        "capability": device.status,
    }
    if unit is not None:
        return DeviceInfo(
            uuid=unit.uuid, name=f"{gpu.name} MIG {unit.profile_name}", index=index, parent_uuid=gpu.uuid,
            gpu_instance=unit.gpu_instance, compute_instance=unit.compute_instance, mig_profile=unit.profile_name,
            sm_count=unit.sms, memory_total_bytes=unit.memory_bytes, power_scope=scope, **common,  # type: ignore[arg-type]
        )  # fmt: skip
    virtual = gpu.profile.virtual
    return DeviceInfo(
        uuid=gpu.uuid, name=gpu.name, index=index, mig_enabled=bool(gpu.instances),
        memory_total_bytes=gpu.whole.memory_bytes,
        power_limit_mw=None if virtual else int(model.reading(scenario, gpu, "power_limit", at)),
        power_scope=scope,
        virtual=virtual, persistence=model.reading(scenario, gpu, "persistence", at) != 0, **common,  # type: ignore[arg-type]
    )  # fmt: skip
