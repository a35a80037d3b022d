"""Readings of one run: the quantities that channels speak of, or why there is none.

These are worked out of accounting, of sums and of counters; `sampled` holds those that need raw samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from slurm_trace.analysis.evidence import sampled
from slurm_trace.analysis.evidence.channels import Channels
from slurm_trace.analysis.evidence.inputs import Device, Hour, Run
from slurm_trace.analysis.evidence.nothing import NoReading

DIGITS = 3
"""Digits after the point that a reading keeps: what is printed is what was weighed."""

WORKING_PCT = 1.0
"""How a run works can only be read while it works: below this much of the time there is none of these readings."""

_FULL_HOUR_MS = 1_800_000
_LEAST_HOURS = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """A quantity of a run; `value` is None where there is none, and then `reason` says why."""

    value: float | None
    reason: str | None = None


def observe(registry: Channels, run: Run) -> dict[str, Reading]:
    """A reading for every channel."""
    return {channel.id: _read(channel.feature, run, registry) for channel in registry.channels}


def _read(feature: str, run: Run, registry: Channels) -> Reading:
    try:
        if feature not in _OF_ACCOUNTING:
            _check_measured(run, registry.limits.least_coverage_pct)
        return Reading(round(FEATURES[feature](run), DIGITS))
    except NoReading as nothing:
        return Reading(None, str(nothing))


def _check_measured(run: Run, least_pct: int) -> None:
    if not run.leases:
        raise NoReading("no lease: nothing was measured on its nodes")
    if not run.devices_known:
        raise NoReading("which devices its leases held is not known")
    if not run.devices:
        raise NoReading("its leases held no device")
    if run.devices_shared:
        raise NoReading("another run held one of its GPUs at the same time: what was read is of both")
    coverage = run.coverage
    if coverage is None or coverage * 100 < least_pct:
        share = 0 if coverage is None else math.floor(coverage * 100)
        raise NoReading(f"samples cover {share} % of the time of its GPUs; {least_pct} % are needed")


def gpu_count(run: Run) -> float:
    """GPUs of the run."""
    if run.gpu_count is None:
        raise NoReading("accounting does not tell how many GPUs it had")
    return run.gpu_count


def duration_h(run: Run) -> float:
    """Run time in hours."""
    if run.elapsed_s is None:
        raise NoReading("accounting has no run time")
    return run.elapsed_s / 3600


def chain_length(run: Run) -> float:
    """Runs that continue one another."""
    if run.chain_length is None:
        raise NoReading("accounting tells neither its user nor when it ran")
    return run.chain_length


def utilisation_pct(run: Run) -> float:
    """Mean utilisation of its GPUs, in percent."""
    return _mean_utilisation(hour for device in run.devices for hour in device.hours)


def hourly_swing_pp(run: Run) -> float:
    """Standard deviation of the hourly mean utilisation, in percentage points."""
    _check_working(run)
    by_hour: dict[int, list[Hour]] = {}
    for device in run.devices:
        for hour in device.hours:
            if hour.utilization_ms >= _FULL_HOUR_MS:
                by_hour.setdefault(hour.hour, []).append(hour)
    if len(by_hour) < _LEAST_HOURS:
        raise NoReading(f"{len(by_hour)} full hours with utilisation; {_LEAST_HOURS} are needed")
    return float(np.std([_mean_utilisation(hours) for hours in by_hour.values()]))


def utilisation_spread_pp(run: Run) -> float:
    """Largest less smallest mean utilisation of its GPUs, in percentage points."""
    if len(run.devices) < 2:
        raise NoReading("a single GPU")
    _check_working(run)
    means = [_mean_utilisation(device.hours) for device in run.devices]
    return max(means) - min(means)


def power_pct_of_limit(run: Run) -> float:
    """Mean power of its GPUs in percent of their limits."""
    energy_mj = limit_mj = 0.0
    for device in run.devices:
        if device.energy_mj is None or not device.energy_ms:
            raise NoReading("of some GPU no energy is known")
        if not device.power_limit_mw:
            raise NoReading("of some GPU no power limit is known")
        energy_mj += device.energy_mj
        limit_mj += device.power_limit_mw * device.energy_ms / 1000
    return 100 * energy_mj / limit_mj


def memory_pct(run: Run) -> float:
    """Most memory that one of its GPUs used, in percent of the card."""
    shares = [
        100 * device.memory_used_max_bytes / device.memory_total_bytes
        for device in run.devices
        if device.memory_used_max_bytes is not None and device.memory_total_bytes
    ]
    if len(shares) < len(run.devices):
        raise NoReading("of some GPU the memory, or its use, is not known")
    return max(shares)


def sm_active_pct(run: Run) -> float:
    """Cycles with a warp resident, in percent of SM cycles."""
    return _share(run, ("gpm_sm_cycles_active",), "gpm_sm_cycles_elapsed")


def tensor_pct_of_active(run: Run) -> float:
    """Tensor cycles in percent of active ones."""
    return _share_of_active(run, ("gpm_mma_cycles_active",))


def fp64_pct_of_active(run: Run) -> float:
    """Double-precision cycles, tensor pipe included, in percent of active ones."""
    names = ("gpm_fp64_cycles_active", "gpm_dmma_cycles_active", "gpm_dfma_cycles_active")
    return _share_of_active(run, names)


def pcie_mb_s(run: Run) -> float:
    """Mean PCIe traffic of a GPU, both ways, in MB/s: of the byte counters, else of samples."""
    rates = []
    for device in run.devices:
        moved = [device.moved.get(name) for name in ("pcie_tx_bytes", "pcie_rx_bytes")]
        if None in moved or not device.moved_ms:
            return sampled.pcie_mb_s(run)
        rates.append(sum(m for m in moved if m is not None) / 1000 / device.moved_ms)
    return float(np.mean(rates))


def _mean_utilisation(hours: Iterable[Hour]) -> float:
    time_ms = weighted = 0
    for hour in hours:
        time_ms += hour.utilization_ms
        weighted += hour.utilization_pct_ms
    if not time_ms:
        raise NoReading("no utilisation was read (it does not exist in MIG mode)")
    return weighted / time_ms


def _check_working(run: Run) -> None:
    if utilisation_pct(run) < WORKING_PCT:
        raise NoReading("hardly any utilisation: how it works cannot be seen")


def _share_of_active(run: Run, parts: tuple[str, ...]) -> float:
    if sm_active_pct(run) < WORKING_PCT:
        raise NoReading("hardly any active cycles: what they executed cannot be seen")
    return _share(run, parts, "gpm_sm_cycles_active")


def _share(run: Run, parts: tuple[str, ...], whole: str) -> float:
    """Counters of all GPUs in percent of another one; how they are normalised cancels out."""
    above = below = 0
    for device in run.devices:
        above += sum(_rise(device, name) for name in parts)
        below += _rise(device, whole)
    if not below:
        raise NoReading(f"{whole} stood still")
    if above > below:
        raise NoReading(f"{' + '.join(parts)} rose by more than {whole}: the counters contradict one another")
    return 100 * above / below


def _rise(device: Device, name: str) -> int:
    rise = device.moved.get(name)
    if rise is None:
        raise NoReading(f"of some GPU {name} was not read twice without beginning anew")
    return rise


def utilisation_jitter_pp(run: Run) -> float:
    """Mean absolute difference of neighbouring samples of utilisation, in percentage points."""
    _check_working(run)
    return sampled.utilisation_jitter_pp(run)


def synchrony(run: Run) -> float:
    """Mean correlation of the power of two GPUs of one node, sample by sample; -1 to 1."""
    _check_working(run)
    return sampled.synchrony(run)


def memory_busy_pct_of_utilisation(run: Run) -> float:
    """Time with device memory busy in percent of the time with a kernel resident."""
    _check_working(run)
    return sampled.memory_busy_pct_of_utilisation(run)


_OF_ACCOUNTING = frozenset({"gpu_count", "duration_h", "chain_length"})

FEATURES: Mapping[str, Callable[[Run], float]] = MappingProxyType(
    {
        f.__name__: f
        for f in (
            gpu_count, duration_h, chain_length, utilisation_pct, hourly_swing_pp, utilisation_spread_pp,
            power_pct_of_limit, memory_pct, sm_active_pct, tensor_pct_of_active, fp64_pct_of_active, pcie_mb_s,
            utilisation_jitter_pp, sampled.memory_ramp_gib, sampled.memory_plateau_pct, memory_busy_pct_of_utilisation,
            synchrony, sampled.process_count,
        )
    }
)  # fmt: skip
"""Every quantity that a channel can speak of, by name; each raises NoReading where a run has none."""
