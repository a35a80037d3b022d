"""What a driver shows of a scenario's work at a given second: the readings, the counters, the ring buffers."""

from __future__ import annotations

import math
from collections.abc import Callable

from slurm_trace.node.devices.scenario import (
    IDLE_MEMORY_BYTES,
    INSTANCE_IDLE_MEMORY_BYTES,
    RINGS,
    TENSOR_PIPES,
    Gpu,
    Scenario,
    Unit,
)


def _idle(gpu: Gpu, key: str) -> float:
    """What a unit of this card shows when it does nothing."""
    if key == "clock":
        return float(gpu.profile.sm_max_mhz if gpu.instances else gpu.profile.idle_mhz)
    return float(gpu.profile.idle_w) if key == "power" and not gpu.instances else 0.0


def now(gpu: Gpu, unit: Unit, key: str, at: float) -> float:
    """A quantity of the work at one moment."""
    for work in unit.work:
        if work.start <= at < work.end:
            return work.values[key]
    return _idle(gpu, key)


def integral(gpu: Gpu, unit: Unit, keys: tuple[str, ...], start: float, end: float) -> float:
    """Integral of the product of some quantities of the work."""
    idle = 1.0
    for key in keys:
        idle *= _idle(gpu, key)
    total = idle * (end - start)
    for work in unit.work:
        overlap = min(end, work.end) - max(start, work.start)
        if overlap > 0:
            value = 1.0
            for key in keys:
                value *= work.values[key]
            total += (value - idle) * overlap
    return total


def since(scenario: Scenario, gpu: Gpu, at: float) -> float:
    """When the counters that are shown at `at` began."""
    return max([scenario.boot, *(reset for reset in gpu.resets if reset <= at)])


def _round(value: float) -> float:
    return math.floor(value + 0.5)


def _share(gpu: Gpu, key: str, start: float, end: float) -> float:
    mean = 0.0
    for unit in gpu.units:
        mean += integral(gpu, unit, (key,), start, end) / (end - start) * (unit.sms / gpu.profile.sms)
    return mean


def _watts(gpu: Gpu, at: float) -> float:
    watts = float(gpu.profile.idle_w) if gpu.instances else 0.0
    for unit in gpu.units:
        watts += now(gpu, unit, "power", at)
    return watts


def _joules(gpu: Gpu, start: float, end: float) -> float:
    joules = float(gpu.profile.idle_w) * (end - start) if gpu.instances else 0.0
    for unit in gpu.units:
        joules += integral(gpu, unit, ("power",), start, end)
    return joules


def _busiest(gpu: Gpu, key: str, at: float) -> float:
    return max(now(gpu, unit, key, at) for unit in gpu.units)


def _link(gpu: Gpu, key: str, at: float) -> float:
    return sum(now(gpu, unit, key, at) for unit in gpu.units)


def _link_bytes(scenario: Scenario, gpu: Gpu, key: str, at: float) -> float:
    begin, total = since(scenario, gpu, at), 0.0
    for unit in gpu.units:
        total += integral(gpu, unit, (key,), begin, at)
    return math.floor(total * 1000.0)


def _throttle(gpu: Gpu, at: float) -> float:
    if _busiest(gpu, "busy", at) == 0.0:
        return 1.0
    return 4.0 if _busiest(gpu, "clock", at) < gpu.profile.sm_max_mhz else 0.0


def _average_mw(gpu: Gpu, at: float) -> float:
    return _round(_joules(gpu, at - 1.0, at) * 1000.0)


def _instant_mw(gpu: Gpu, at: float) -> float:
    return _round(_watts(gpu, at) * 1000.0)


def _plain_mw(gpu: Gpu, at: float) -> float:
    mean = _average_mw(gpu, at) if gpu.profile.power_average else _instant_mw(gpu, at)
    return mean + gpu.profile.module_extra_w * 1000.0


def _percent(key: str) -> Callable[[Scenario, Gpu, float], float]:
    return lambda _, gpu, at: _round(_share(gpu, key, at - gpu.profile.utilization_period_s, at) * 100.0)


_READINGS: dict[str, Callable[[Scenario, Gpu, float], float]] = {
    "utilization": _percent("busy"),
    "memory_utilization": _percent("membusy"),
    "power": lambda _, gpu, at: _plain_mw(gpu, at),
    "power_average": lambda _, gpu, at: _average_mw(gpu, at),
    "power_instant": lambda _, gpu, at: _instant_mw(gpu, at),
    "module_power": lambda _, gpu, at: _instant_mw(gpu, at) + gpu.profile.module_extra_w * 1000.0,
    "energy": lambda sc, gpu, at: math.floor(_joules(gpu, since(sc, gpu, at), at) * 1000.0),
    "sm_clock": lambda _, gpu, at: _busiest(gpu, "clock", at),
    "memory_clock": lambda _, gpu, at: float(gpu.profile.memory_clock_mhz),
    "sm_clock_max": lambda _, gpu, at: float(gpu.profile.sm_max_mhz),
    "memory_clock_max": lambda _, gpu, at: float(gpu.profile.memory_clock_mhz),
    "temperature": lambda _, gpu, at: math.floor(30.0 + 40.0 * _busiest(gpu, "busy", at)),
    "pcie_tx": lambda _, gpu, at: math.floor(_link(gpu, "tx", at)),
    "pcie_rx": lambda _, gpu, at: math.floor(_link(gpu, "rx", at)),
    "pcie_tx_bytes": lambda sc, gpu, at: _link_bytes(sc, gpu, "tx", at),
    "pcie_rx_bytes": lambda sc, gpu, at: _link_bytes(sc, gpu, "rx", at),
    "throttle": lambda _, gpu, at: _throttle(gpu, at),
    "power_limit": lambda _, gpu, at: gpu.profile.tdp_w * 1000.0,
    "persistence": lambda _, gpu, at: 1.0,
}


def override(gpu: Gpu, reading: str, at: float) -> float | None:
    """What the scenario sets in the place of a reading; the last line that covers `at` wins."""
    found = None
    for start, end, value in gpu.overrides.get(reading, ()):
        if start <= at < end:
            found = value
    return found


def reading(scenario: Scenario, gpu: Gpu, name: str, at: float) -> float:
    """What the driver shows of a whole card."""
    set_value = override(gpu, name, at)
    return _READINGS[name](scenario, gpu, at) if set_value is None else set_value


def memory_used(gpu: Gpu, unit: Unit | None, at: float) -> float:
    """Bytes in use on a card (`unit` None) or an instance, without what the scenario sets."""
    if unit is not None and gpu.instances:
        return INSTANCE_IDLE_MEMORY_BYTES + math.floor(now(gpu, unit, "memory", at))
    used = IDLE_MEMORY_BYTES
    for part in gpu.units:
        used += math.floor(now(gpu, part, "memory", at))
    return used


# GPM metric → the quantity that multiplies the clock; None is all of it.
_CYCLES = {
    248: None, 249: "active", 251: "dmma", 252: "hmma", 253: "imma", 254: "dfma", 257: "int", 258: "fp64",
    259: "fp32", 260: "fp16",
}  # fmt: skip


def gpm_counter(scenario: Scenario, gpu: Gpu, unit: Unit | None, metric: int, at: float) -> float:
    """A GPM counter since reboot, of a card (`unit` None) or an instance."""
    set_value = override(gpu, f"gpm:{metric}", at)
    if set_value is not None:
        return set_value
    begin = since(scenario, gpu, at)
    parts = gpu.units if unit is None else [unit]
    if metric in (255, 256):
        key = "tx" if metric == 255 else "rx"
        return math.floor(sum(integral(gpu, part, (key,), begin, at) for part in parts) * 1000.0)
    pipes = TENSOR_PIPES if metric == 250 else (_CYCLES[metric],)
    total = 0.0
    for part in parts:
        cycles = 0.0
        for pipe in pipes:
            cycles += integral(gpu, part, ("clock", pipe) if pipe else ("clock",), begin, at)
        total += cycles * part.sms
    if metric == 248 and unit is None and gpu.instances:
        total = integral(gpu, gpu.instances[0], ("clock",), begin, at) * gpu.profile.sms
    sms = gpu.profile.sms if unit is None else unit.sms
    return math.floor((total if scenario.cycles == "sum" else total / sms) * 1e6)


def ring(scenario: Scenario, gpu: Gpu, kind: int, since_us: int, at: float) -> list[tuple[int, float]]:
    """The entries of a ring buffer that are newer than `since_us`: (epoch in µs, value), oldest first."""
    name, period, kept = RINGS[kind]
    step = gpu.profile.utilization_period_s if period is None else period
    last = math.floor(at / step)
    entries = []
    for tick in range(last - kept + 1, last + 1):
        moment = tick * step
        stamp = math.floor((scenario.epoch + moment) * 1e6 + 0.5)
        if stamp > since_us and not any(start <= moment < end for start, end in gpu.holes):
            entries.append((stamp, reading(scenario, gpu, name, moment)))
    return entries
