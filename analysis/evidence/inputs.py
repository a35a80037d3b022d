"""What is known of one run: accounting, and what the leases of its nodes measured. None is "not known", never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hour:
    """One device's hour: covered and missing time, and the sums over its samples; names as in the store."""

    hour: int
    covered_ms: int
    gap_ms: int
    utilization_ms: int
    utilization_pct_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Raw samples of one device, in the order of time.

    Attributes:
        time_ms: CLOCK_BOOTTIME of each sample. There are holes: samples are lost, and not all are read.
        fields: Field → its values, NaN where there was none; names and units as in docs/FIELDS.md.
    """

    time_ms: Ints
    fields: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One GPU during a run.

    Attributes:
        node: Where it is; devices of one node share their clock.
        begin_ms: CLOCK_BOOTTIME at which its lease opened; None where the first part of the lease is missing.
        covered_ms: Time between samples, with `gap_ms` the time that it was held.
        energy_ms: Time that `energy_mj` speaks of.
        moved: Counter → by how much it rose; only those that rose without beginning anew.
        moved_ms: Time between the counters' first and last reading.
        series: None where no raw sample is left.
    """

    uuid: str
    node: str
    begin_ms: int | None
    memory_total_bytes: int | None
    memory_used_max_bytes: int | None
    power_limit_mw: int | None
    covered_ms: int
    gap_ms: int
    energy_mj: int | None
    energy_ms: int
    hours: tuple[Hour, ...]
    moved: Mapping[str, int] = field(default_factory=dict)
    moved_ms: int = 0
    series: Series | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run.

    Attributes:
        gpu_count: GPUs of the allocation, or those that its leases held, whichever is more; 0 only where accounting
            counts GPUs and has none for it, or where its leases are known to have held none.
        elapsed_s: Its run time.
        chain_length: Runs that continue one another, itself included.
        devices: Those that its leases are known to have held; empty where that is not known.
        leases: How many leases it has.
        devices_known: Whether it is known which devices its leases held.
        devices_shared: Whether a lease of another run held one of them at the same time.
    """

    gpu_count: int | None
    elapsed_s: int | None
    chain_length: int | None
    leases: int = 0
    devices_known: bool = True
    devices_shared: bool = False
    devices: tuple[Device, ...] = ()

    @property
    def coverage(self) -> float | None:
        """Share of the time of its GPUs that samples cover, 0 to 1; None without leases or GPUs."""
        held = sum(device.covered_ms + device.gap_ms for device in self.devices)
        if self.gpu_count is not None and self.elapsed_s is not None:
            held = max(held, self.gpu_count * self.elapsed_s * 1000)
        if not self.devices or not held:
            return None
        return sum(device.covered_ms for device in self.devices) / held
