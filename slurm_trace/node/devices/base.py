"""What every device source offers.

A device is its UUID; NVML's index, the minor number and Slurm's index may all differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from slurm_trace.node.fields import COUNTER_NAMES, SAMPLE_NAMES

_SAMPLE_PLACE = {name: place for place, name in enumerate(SAMPLE_NAMES)}
_COUNTER_PLACE = {name: place for place, name in enumerate(COUNTER_NAMES)}


@dataclass(frozen=True)
class DeviceInfo:
    """One GPU, or one MIG instance of one, as it was when the source was opened.

    Attributes:
        uuid: The identity, `GPU-…` or `MIG-…`.
        index: Place in the source's own list; of a MIG instance, its place on the card.
        minor: N of /dev/nvidiaN; of a MIG instance, its card's.
        pci: Bus id in lower case, `00000000:1b:00.0`; of a MIG instance, its card's.
        parent_uuid: The card of a MIG instance, None for a card.
        mig_profile: `1g.10gb`, of a MIG instance.
        mig_enabled: True for a card in MIG mode: its utilisation does not exist.
        sm_count: Streaming multiprocessors of a MIG instance where the driver says so.
        power_scope: What the driver's plain power reading speaks of: `gpu`, `module`, or `none`.
        virtual: True for a vGPU.
        capability: Field or ring name (`ring:power_mw`) → a word of `errors.REASONS`.
    """

    uuid: str
    name: str
    index: int
    minor: int | None
    pci: str | None
    parent_uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    mig_profile: str | None = None
    mig_enabled: bool = False
    sm_count: int | None = None
    memory_total_bytes: int | None = None
    max_sm_mhz: int | None = None
    max_mem_mhz: int | None = None
    power_limit_mw: int | None = None
    power_scope: str = "gpu"
    virtual: bool = False
    persistence: bool | None = None
    capability: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceInfo:
    """The driver behind a source, and the devices that it could not name: (index, reason)."""

    kind: str
    driver_version: str | None = None
    library_version: str | None = None
    cuda_version: str | None = None
    failed: tuple[tuple[int, str], ...] = ()


class Reading(NamedTuple):
    """Values in the order of `fields.SAMPLE_FIELDS`; `reasons` names why each None is one.

    A tuple, for one is made per device and interval.
    """

    uuid: str
    values: tuple[int | None, ...]
    reasons: Mapping[str, str]

    def get(self, name: str) -> int | None:
        """The value of a field by name."""
        return self.values[_SAMPLE_PLACE[name]]


@dataclass(frozen=True)
class CounterRead:
    """Values in the order of `fields.COUNTER_FIELDS`; `reasons` names why each None is one."""

    uuid: str
    values: tuple[int | None, ...]
    reasons: Mapping[str, str]

    def get(self, name: str) -> int | None:
        """The value of a field by name."""
        return self.values[_COUNTER_PLACE[name]]


@dataclass(frozen=True)
class XidEvent:
    """An error that the driver reported of a card, or of one MIG instance on it."""

    uuid: str
    code: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


class DeviceSource(Protocol):
    """Readings of the node's devices. Nothing here changes a setting or takes a profiling lock.

    All methods raise `SourceGone` where no device can be read, `read`, `counters` and `ring` raise `DeviceLost` where
    this one cannot. One device's trouble never hides another's: each call speaks of one device. Calls for different
    devices may run in different threads, one call a device at a time.
    """

    @property
    def info(self) -> SourceInfo:
        """Driver and library."""

    @property
    def faults(self) -> Mapping[tuple[str, str, str], int]:
        """(uuid, field, reason) → how many single values were lost so since `open`, without those known at open."""

    def open(self) -> None:
        """Reach the driver and find the devices. After `close`, finds again by UUID what had been lost."""

    def close(self) -> None:
        """Let go of the driver, so that a reset or reload is not held up. May be called twice."""

    def devices(self) -> list[DeviceInfo]:
        """Cards and MIG instances; a card in MIG mode and its instances are both in the list."""

    def read(self, uuid: str) -> Reading:
        """The values of the moment."""

    def counters(self, uuid: str) -> CounterRead:
        """The counters, and what changes rarely."""

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """What the driver kept of `kind` (a name of `fields.RINGS`) after `since_us`: (epoch in µs, value).

        A value is None where the entry is there but cannot be true. Raises `NotSupported` where there is no such ring.
        """

    def xid_events(self) -> list[XidEvent]:
        """Errors reported since the last call; never waits."""
