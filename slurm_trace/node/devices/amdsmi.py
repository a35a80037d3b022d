"""AMD GPUs by the module `amdsmi` that ROCm brings, as far as it goes.

What is written here was checked against the text of amdsmi 7.0.2 and a stand-in, never on a card. AMD reports power and
energy of the socket, which can hold two GPUs or CPU cores too: power is shown as the module's, never as the GPU's, and
`energy_mj` is the socket's. Ring buffers, cycle counters, PCIe rates, throttle reasons and error events are not read.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from slurm_trace.node import fields as spec
from slurm_trace.node.devices.base import CounterRead, DeviceInfo, Reading, SourceInfo, XidEvent
from slurm_trace.node.devices.codes import commonest
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone

# amdsmi_status_t.
_REASONS = {
    2: "not_supported", 3: "not_supported", 4: "library_missing", 5: "missing_symbol", 8: "timeout",
    10: "no_permission", 30: "no_data", 31: "not_found", 32: "closed", 34: "driver_not_loaded", 40: "no_data",
    51: "driver_not_loaded",
}  # fmt: skip
_UNKNOWN = (7, 16, 0xFFFF_FFFF)

Ask = Callable[[Any], Any]


def _reason(code: int | None) -> str:
    return "unknown_error" if code in _UNKNOWN else _REASONS.get(code or 0, "other_error")


class AmdSmiSource:
    """A `DeviceSource` over AMD SMI."""

    def __init__(self, module: Any = None) -> None:
        """`module` stands in for `amdsmi` in tests."""
        self._smi = module
        self._handles: dict[str, Any] = {}
        self._infos: list[DeviceInfo] = []
        self._info = SourceInfo("amdsmi")
        self._faults: Counter[tuple[str, str, str]] = Counter()
        self._sample: dict[str, Ask] = {}
        self._counter: dict[str, Ask] = {}
        self._open = False

    @property
    def info(self) -> SourceInfo:
        """Driver and library."""
        return self._info

    @property
    def faults(self) -> Mapping[tuple[str, str, str], int]:
        """(uuid, field, reason) → how many single values were lost so."""
        return self._faults

    def open(self) -> None:
        """Load the module and find the GPUs."""
        if self._open:
            return
        if self._smi is None:
            try:
                self._smi = importlib.import_module("amdsmi")
            except (
                ImportError,
                OSError,
                KeyError,
            ):  # Without its library, the module itself fails by KeyError.
                raise SourceGone(
                    "no usable module amdsmi; install ROCm's AMD SMI", "library_missing"
                ) from None
        smi = self._smi
        self._sample, self._counter = _sampled(smi), _counted(smi)
        try:
            smi.amdsmi_init()
            handles = smi.amdsmi_get_processor_handles()
        except smi.AmdSmiException as problem:
            reason = _reason(getattr(problem, "err_code", None))
            raise SourceGone(f"AMD SMI does not start ({reason}); is amdgpu loaded?", reason) from None
        self._open, self._handles, self._infos = True, {}, []
        for index, handle in enumerate(handles):
            self._describe(index, handle)
        driver = self._try(smi.amdsmi_get_gpu_driver_info, handles[0]) if handles else None
        self._info = SourceInfo(
            "amdsmi", (driver or {}).get("driver_version"), getattr(smi, "__version__", None)
        )

    def close(self) -> None:
        """Let go of the driver."""
        if self._open:
            self._open = False
            self._try(lambda _: self._smi.amdsmi_shut_down(), None)

    def devices(self) -> list[DeviceInfo]:
        """GPUs in the library's order."""
        self._need_open()
        return list(self._infos)

    def read(self, uuid: str) -> Reading:
        """The values of the moment."""
        values, reasons = self._values(uuid, spec.SAMPLE_FIELDS, self._sample)
        return Reading(uuid, values, reasons)

    def counters(self, uuid: str) -> CounterRead:
        """The energy counter and the maximum clocks."""
        values, reasons = self._values(uuid, spec.COUNTER_FIELDS, self._counter)
        return CounterRead(uuid, values, reasons)

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """There are none."""
        raise NotSupported(f"{uuid} keeps no {kind}; poll it instead", "not_supported")

    def xid_events(self) -> list[XidEvent]:
        """There are none."""
        return []

    def _need_open(self) -> None:
        if not self._open:
            raise SourceGone("the source is not open; call open() first", "closed")

    def _try(self, ask: Ask, handle: Any) -> Any:
        """What a call gives, or None."""
        try:
            return ask(handle)
        except self._smi.AmdSmiException:
            return None

    def _describe(self, index: int, handle: Any) -> None:
        smi = self._smi
        uuid = self._try(smi.amdsmi_get_gpu_device_uuid, handle)
        if not uuid:
            return
        asic = self._try(smi.amdsmi_get_gpu_asic_info, handle) or {}
        render = (self._try(smi.amdsmi_get_gpu_enumeration_info, handle) or {}).get("drm_render")
        top = {name: self._try(ask, handle) for name, ask in self._counter.items()}
        capability = {}
        for field in (*spec.SAMPLE_FIELDS, *spec.COUNTER_FIELDS):
            known = field.name in self._sample or field.name in self._counter
            capability[field.name] = "ok" if known else "not_supported"
        self._handles[uuid] = handle
        self._infos.append(
            DeviceInfo(
                uuid,
                str(asic.get("market_name", "AMD GPU")),
                index,
                render if isinstance(render, int) else None,
                self._try(smi.amdsmi_get_gpu_device_bdf, handle),
                memory_total_bytes=self._try(
                    lambda it: smi.amdsmi_get_gpu_memory_total(it, smi.AmdSmiMemoryType.VRAM), handle
                ),
                max_sm_mhz=_number(top["sm_clock_max_mhz"]),
                max_mem_mhz=_number(top["memory_clock_max_mhz"]),
                power_scope=spec.MODULE,
                capability={**capability, **{f"ring:{kind}": "not_supported" for kind in spec.RINGS}},
            )
        )

    def _values(
        self, uuid: str, fields: tuple[spec.Field, ...], asks: Mapping[str, Ask]
    ) -> tuple[tuple[int | None, ...], Mapping[str, str]]:
        self._need_open()
        if uuid not in self._handles:
            raise DeviceLost(uuid, "not_found")
        values: list[int | None] = []
        reasons: dict[str, str] = {}
        for field in fields:
            value, reason = None, "not_supported"
            if field.name in asks:
                value, reason = self._value(field, asks[field.name], self._handles[uuid])
            if value is None:
                reasons[field.name] = reason
            values.append(value)
        tried = {name: reason for name, reason in reasons.items() if name in asks}
        if len(tried) == len(asks):
            raise DeviceLost(uuid, commonest(tried.values()))
        for name, reason in tried.items():
            self._faults[uuid, name, reason] += 1
        return tuple(values), reasons

    def _value(self, field: spec.Field, ask: Ask, handle: Any) -> tuple[int | None, str]:
        try:
            answer = ask(handle)
        except self._smi.AmdSmiException as problem:
            return None, _reason(getattr(problem, "err_code", None))
        value = _number(answer)
        if value is None:
            return None, "no_data"  # The module's own "N/A".
        wrong = spec.invalid(field, value)
        return (value, "") if wrong is None else (None, wrong)


def _number(answer: Any) -> int | None:
    return int(answer) if isinstance(answer, (int, float)) and not isinstance(answer, bool) else None


def _times(answer: Any, factor: float) -> Any:
    return answer * factor if isinstance(answer, (int, float)) else answer


def _sampled(smi: Any) -> dict[str, Ask]:
    clock, kind = smi.amdsmi_get_clock_info, smi.AmdSmiClkType
    sensor, metric = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
    return {
        "utilization_pct": lambda it: smi.amdsmi_get_gpu_activity(it)["gfx_activity"],
        "memory_utilization_pct": lambda it: smi.amdsmi_get_gpu_activity(it)["umc_activity"],
        "memory_used_bytes": lambda it: smi.amdsmi_get_gpu_memory_usage(it, smi.AmdSmiMemoryType.VRAM),
        "module_power_mw": lambda it: _times(_socket_power(smi.amdsmi_get_power_info(it)), 1000),
        "energy_mj": lambda it: _energy_mj(smi.amdsmi_get_energy_count(it)),
        "sm_clock_mhz": lambda it: clock(it, kind.GFX)["clk"],
        "memory_clock_mhz": lambda it: clock(it, kind.MEM)["clk"],
        "temperature_c": lambda it: smi.amdsmi_get_temp_metric(it, sensor, metric),
        "process_count": lambda it: len(smi.amdsmi_get_gpu_process_list(it)),
    }


def _counted(smi: Any) -> dict[str, Ask]:
    clock, kind = smi.amdsmi_get_clock_info, smi.AmdSmiClkType
    return {
        "energy_mj": lambda it: _energy_mj(smi.amdsmi_get_energy_count(it)),
        "sm_clock_max_mhz": lambda it: clock(it, kind.GFX)["max_clk"],
        "memory_clock_max_mhz": lambda it: clock(it, kind.MEM)["max_clk"],
    }


def _socket_power(info: Mapping[str, Any]) -> Any:
    """Watts: of the moment on MI300 and later, a mean on cards before."""
    current = info.get("current_socket_power")
    return current if isinstance(current, (int, float)) else info.get("average_socket_power")


def _energy_mj(count: Mapping[str, Any]) -> Any:
    """The counter ticks in parts of some microjoules."""
    ticks, microjoules = count.get("energy_accumulator"), count.get("counter_resolution")
    if not isinstance(ticks, int) or not isinstance(microjoules, (int, float)):
        return None
    return ticks * microjoules / 1000
