"""NVIDIA GPUs by NVML. Only reads: changes no setting, takes no profiling lock, and lets go of the driver at `close`.

Hanging calls. A call into a sick driver may never come back, and no signal ends it. Calls give up the interpreter
lock, so run `read`, `counters` and `ring` in a daemon thread, wait as long as you can afford, then walk away and go on
with the other devices in another thread: a device's buffers are its own. Leave the stuck device alone until its call
has returned (its late result is stale: drop it). Do not `close` while a call is out, the library may wait for it;
when nothing comes back at all, end the process by `os._exit` and begin anew.

Lost cards. `DeviceLost` ends the use of one device. `close` and `open` find it again by its UUID, be its index another
than before; where it is not in `devices()`, the driver does not see it.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pynvml

from slurm_trace.node.devices import codes
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.devices.base import CounterRead, DeviceInfo, Reading, SourceInfo, XidEvent
from slurm_trace.node.devices.nvml_device import NvmlDevice, Options
from slurm_trace.node.errors import DeviceLost, SourceGone

_NO_INSTANCE = 0xFFFF_FFFF
_MOST_EVENTS = 256
_REMEDY = {
    "library_missing": "install the NVIDIA driver, or leave this node out",
    "driver_not_loaded": "load the NVIDIA kernel driver, or leave this node out",
    "driver_mismatch": "the driver was upgraded under running jobs: reload it or reboot, then restart this service",
    "no_permission": "let this user read /dev/nvidiactl and /dev/nvidia*",
}


class NvmlSource:
    """A `DeviceSource` over libnvidia-ml."""

    def __init__(
        self,
        *,
        gpm: bool = True,
        pcie_snapshot: bool = True,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is reached before `open`.

        Args:
            gpm: Read GPM counters, in `counters` only, on cards that have them.
            pcie_snapshot: Where a card has no PCIe byte counter, use the call that takes 20 ms for each direction.
            clock: Monotonic seconds; a given one for tests.
            pause: Waits for some seconds, at most 0.11, before the first GPM counters after `open`.
        """
        self._options = Options(gpm, pcie_snapshot, clock, pause)
        self._info = SourceInfo("nvml")
        self._devices: dict[str, NvmlDevice] = {}
        self._infos: list[DeviceInfo] = []
        self._cards: dict[int, str] = {}
        self._events: Any = None
        self._event = pynvml.c_nvmlEventData_t()
        self._open = False
        self._handles: list[Any] = []
        self._failed: list[tuple[int, str]] = []
        self._past_faults: Counter[tuple[str, str, str]] = Counter()

    @property
    def info(self) -> SourceInfo:
        """Driver and library."""
        return self._info

    @property
    def faults(self) -> Mapping[tuple[str, str, str], int]:
        """(uuid, field, reason) → how many single values were lost so, over all openings."""
        total = Counter(self._past_faults)
        for device in list(self._devices.values()):
            # A copy at once: a call that was given up may count one more while this adds.
            total.update(dict(device.faults))
        return total

    def open(self) -> None:
        """Initialise NVML and find out what each device can tell."""
        if self._open:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as problem:
            raise _gone(problem) from None
        self._open = True
        try:
            self._find()
        except pynvml.NVMLError as problem:
            self.close()
            raise _gone(problem) from None

    def close(self) -> None:
        """Let go of the driver."""
        if not self._open:
            return
        self._open = False
        self._past_faults = Counter(self.faults)
        for device in self._devices.values():
            device.release()
        self._devices, self._infos, self._handles, self._cards = {}, [], [], {}
        events, self._events = self._events, None
        # What fails here has been let go of already.
        if events is not None:
            _ask(pynvml.nvmlEventSetFree, events)
        _ask(pynvml.nvmlShutdown)

    def devices(self) -> list[DeviceInfo]:
        """Cards in the driver's order, each followed by its MIG instances."""
        self._need_open()
        return list(self._infos)

    def read(self, uuid: str) -> Reading:
        """The values of the moment."""
        return self._device(uuid).read()

    def counters(self, uuid: str) -> CounterRead:
        """The counters, and what changes rarely."""
        return self._device(uuid).counters()

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """What the driver kept of `kind` after `since_us`."""
        return self._device(uuid).ring(kind, since_us)

    def xid_events(self) -> list[XidEvent]:
        """Errors that the driver reported since the last call."""
        self._need_open()
        found: list[XidEvent] = []
        # Not by the wrapper: nothing new is the rule, for which that raises.
        data, wait = self._event, calls.bind("nvmlEventSetWait_v2")
        if self._events is None or wait is None:
            return found
        while len(found) < _MOST_EVENTS:
            code = wait(self._events, ctypes.byref(data), 0)
            if code == pynvml.NVML_ERROR_UNINITIALIZED:
                raise _gone(pynvml.NVMLError(code))
            if code:
                break  # A time-out, which is the rule; or a lost card, which `read` reports.
            uuid = self._cards.get(_address(data.device), "")
            places = (data.gpuInstanceId, data.computeInstanceId)
            gi, ci = (None if place == _NO_INSTANCE else place for place in places)
            found.append(XidEvent(uuid, data.eventData, gi, ci))
        return found

    def _need_open(self) -> None:
        if not self._open:
            raise SourceGone("the source is not open; call open() first", "closed")

    def _device(self, uuid: str) -> NvmlDevice:
        device = self._devices.get(uuid)
        if device is None:
            self._need_open()
            raise DeviceLost(uuid, "not_found")
        return device

    def _find(self) -> None:
        self._failed = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            self._guard(index, self._find_card, index)
        self._info = SourceInfo(
            "nvml",
            _ask(pynvml.nvmlSystemGetDriverVersion),
            _ask(pynvml.nvmlSystemGetNVMLVersion),
            _cuda(_ask(pynvml.nvmlSystemGetCudaDriverVersion)),
            tuple(self._failed),
        )
        self._register_events()

    def _guard(self, index: int, find: Callable[..., None], *arguments: Any) -> None:
        """One sick card does not hide the others."""
        try:
            find(*arguments)
        except pynvml.NVMLError as problem:
            if problem.value == pynvml.NVML_ERROR_UNINITIALIZED:
                raise
            self._failed.append((index, codes.reason_of(problem.value)))
        except DeviceLost as problem:
            self._failed.append((index, problem.reason))

    def _find_card(self, index: int) -> None:
        # The handle comes from the UUID at once: the index is only a way to the UUID.
        uuid: str = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        name: str = pynvml.nvmlDeviceGetName(handle)
        device = NvmlDevice(uuid, name, handle, handle, self._options)
        mig = _ask(pynvml.nvmlDeviceGetMigMode, handle)
        card = DeviceInfo(
            uuid,
            name,
            index,
            _ask(pynvml.nvmlDeviceGetMinorNumber, handle),
            _pci(handle),
            mig_enabled=bool(mig and mig[0]),
            memory_total_bytes=_total_memory(handle),
            max_sm_mhz=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
            max_mem_mhz=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            power_limit_mw=_ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            power_scope=device.power_scope,
            virtual=_ask(pynvml.nvmlDeviceGetVirtualizationMode, handle)
            == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
            persistence=_flag(_ask(pynvml.nvmlDeviceGetPersistenceMode, handle)),
            capability=device.capability,
        )
        self._devices[uuid] = device
        self._infos.append(card)
        self._handles.append(handle)
        self._cards[_address(handle)] = uuid
        for place, instance in _instances(handle) if card.mig_enabled else ():
            self._guard(index, self._find_instance, card, handle, place, instance)

    def _find_instance(self, card: DeviceInfo, handle: Any, place: int, instance: Any) -> None:
        uuid: str = pynvml.nvmlDeviceGetUUID(instance)
        name: str = pynvml.nvmlDeviceGetName(instance)
        device = NvmlDevice(uuid, name, instance, handle, self._options)
        attributes = _ask(pynvml.nvmlDeviceGetAttributes, instance)
        self._devices[uuid] = device
        self._infos.append(
            DeviceInfo(
                uuid,
                name,
                place,
                card.minor,
                card.pci,
                parent_uuid=card.uuid,
                gpu_instance=_ask(pynvml.nvmlDeviceGetGpuInstanceId, instance),
                compute_instance=_ask(pynvml.nvmlDeviceGetComputeInstanceId, instance),
                mig_profile=name.rpartition(" MIG ")[2] if " MIG " in name else None,
                sm_count=attributes.multiprocessorCount if attributes else None,
                memory_total_bytes=_total_memory(instance),
                max_sm_mhz=card.max_sm_mhz,
                max_mem_mhz=card.max_mem_mhz,
                power_scope=device.power_scope,
                capability=device.capability,
            )
        )

    def _register_events(self) -> None:
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        for handle in self._handles:
            types = _ask(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
            if types & pynvml.nvmlEventTypeXidCriticalError:
                _ask(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, events)
        self._events = events


def _gone(problem: pynvml.NVMLError) -> SourceGone:
    reason = codes.reason_of(problem.value)
    remedy = _REMEDY.get(reason, "see the kernel log")
    return SourceGone(f"NVML does not start ({reason}): {remedy}", reason)


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, or None: descriptions of a device may be incomplete."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _cuda(version: int | None) -> str | None:
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _pci(handle: Any) -> str | None:
    pci = _ask(pynvml.nvmlDeviceGetPciInfo, handle)
    if pci is None:
        return None
    bus = pci.busId
    return (bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)).lower()


def _total_memory(handle: Any) -> int | None:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else int(memory.total)


def _instances(handle: Any) -> Iterator[tuple[int, Any]]:
    for place in range(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        if instance is not None:
            yield place, instance


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
