"""One card or MIG instance behind NVML: what it can tell is found out once, then asked in as few calls as possible."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from slurm_trace.node import fields as spec
from slurm_trace.node.devices import codes, nvml_batch
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.devices.base import CounterRead, Reading
from slurm_trace.node.devices.nvml_frame import Frame, Layout, QuickReading
from slurm_trace.node.devices.nvml_gpm import GpmReader
from slurm_trace.node.devices.nvml_rings import RingReader
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone
from slurm_trace.node.fields import Field

_PLACE = {field.name: place for place, field in enumerate(spec.SAMPLE_FIELDS)}
_COUNTER_PLACE = {field.name: place for place, field in enumerate(spec.COUNTER_FIELDS)}
_GPM_NAMES = frozenset(field.name for field in spec.GPM_FIELDS.values())
# Superchips: the plain power call speaks of the module.
_SUPERCHIPS = ("GH200", "GB200", "GB300", "GB10")
_ENERGY_CALL = "nvmlDeviceGetTotalEnergyConsumption"

Way = Callable[[], "calls.Call | None"]


@dataclass(frozen=True)
class Options:
    """How a source reads; see `NvmlSource`."""

    gpm: bool
    pcie_snapshot: bool
    clock: Callable[[], float]
    pause: Callable[[float], None]


class NvmlDevice:
    """Reads one device. Buffers belong to the object: one call at a time."""

    def __init__(self, uuid: str, name: str, handle: Any, card: Any, options: Options) -> None:
        """Find out what the device can tell; `card` is the handle of its card, for a whole card `handle` itself."""
        self.uuid = uuid
        self.power_scope = "none"
        self.faults: Counter[tuple[str, str, str]] = Counter()
        self._handle, self._card, self._options = handle, card, options
        self._superchip = any(chip in name for chip in _SUPERCHIPS)
        self._status: dict[str, str] = {}
        self._frame = Frame()
        self._quick: QuickReading | None = None
        self._plan: list[calls.Call] = []
        self._marks: list[calls.Call] = []
        self._gpm: GpmReader | None = None
        self._rings: RingReader | None = None
        if handle is card:
            self._plan_card()
        else:
            self._plan_instance()
        self._plan_both()
        self._sample_reasons = self._lasting(spec.SAMPLE_NAMES)
        self._counter_reasons = self._lasting(spec.COUNTER_NAMES)

    @property
    def capability(self) -> Mapping[str, str]:
        """Field or `ring:field` → what was found at the start; of GPM metrics, at the first read."""
        return self._status

    def read(self) -> Reading:
        """The values of the moment."""
        failed = self._make(self._plan)
        problems: dict[str, str] = {}
        if self._quick is not None and not failed:
            quick = self._quick.take(problems)
            if quick is not None:
                return Reading(self.uuid, quick, self._settle(problems, self._sample_reasons))
        values: calls.Values = [None] * len(_PLACE)
        self._take(self._plan, failed, values, problems)
        if not failed and problems.keys() <= nvml_batch.RATE_NAMES:
            self._quick = self._learn()
        return Reading(self.uuid, tuple(values), self._settle(problems, self._sample_reasons))

    def counters(self) -> CounterRead:
        """The counters, and what changes rarely."""
        values: calls.Values = [None] * len(_COUNTER_PLACE)
        problems: dict[str, str] = {}
        answered = False
        # First what may have to wait, so that all counters are of one moment.
        if self._gpm is not None and self._gpm.supported:
            code = self._gpm.take(values, problems, _COUNTER_PLACE)
            answered = code == calls.SUCCESS
            if not answered:
                problems.update(dict.fromkeys(_GPM_NAMES, self._reason(code)))
        self._take(self._marks, self._make(self._marks), values, problems, answered)
        return CounterRead(self.uuid, tuple(values), self._settle(problems, self._counter_reasons))

    def ring(self, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """Entries of a ring buffer newer than `since_us`, oldest first."""
        status = self._status.get(f"ring:{kind}", "not_supported")
        if self._rings is None or status in codes.LASTING:
            raise NotSupported(f"{self.uuid} keeps no {kind} ({status}); poll it instead", status)
        code, entries, wrong = self._rings.read(kind, since_us)
        if code == calls.NOT_FOUND:
            return []
        if code != calls.SUCCESS:
            reason = self._reason(code)
            self.faults[self.uuid, f"ring:{kind}", reason] += 1
            raise NotSupported(
                f"{self.uuid} does not hand over {kind} now ({reason}); poll it instead", reason
            )
        for reason, n in wrong.items():
            self.faults[self.uuid, f"ring:{kind}", reason] += n
        return entries

    def release(self) -> None:
        """Give back what NVML holds for this object."""
        if self._gpm is not None:
            self._gpm.release()

    # Shared by all reads.

    def _make(self, plan: Sequence[calls.Call]) -> dict[calls.Call, str]:
        """Make the calls of a plan; those that were not answered, and why."""
        failed = {}
        for call in plan:
            code = call.function(*call.arguments)
            if code and code != call.accepts:
                failed[call] = self._reason(code)
        return failed

    def _take(
        self,
        plan: Sequence[calls.Call],
        failed: Mapping[calls.Call, str],
        values: calls.Values,
        problems: dict[str, str],
        answered: bool = False,
    ) -> None:
        """Take over what the calls of a plan gave; where nothing was answered at all, the device is lost."""
        for call in plan:
            if call in failed:
                problems.update(dict.fromkeys((field.name for field in call.fields), failed[call]))
            else:
                call.take(values, problems)
        if len(failed) == len(plan) and not answered:
            raise DeviceLost(self.uuid, codes.commonest(problems.values()))

    def _reason(self, code: int) -> str:
        """What a return code says, unless it ends the use of the device or of the library."""
        if code == calls.UNINITIALIZED:
            raise SourceGone("NVML is not initialised; open the source again", "closed")
        reason = codes.reason_of(code)
        if reason in codes.DEAD:
            raise DeviceLost(self.uuid, reason)
        return reason

    def _settle(self, problems: dict[str, str], lasting: Mapping[str, str]) -> Mapping[str, str]:
        """Count what went wrong."""
        if not problems:
            return lasting
        for name, reason in problems.items():
            if reason in codes.LASTING and name in _GPM_NAMES:
                # Which metrics there are shows at the first read only.
                self._status[name] = reason
            elif reason != "first_read":
                self.faults[self.uuid, name, reason] += 1
        return {**lasting, **problems}

    def _learn(self) -> QuickReading | None:
        """A quick way for readings like this one, where there is one."""
        layout = Layout()
        described = all(call.describe(layout) for call in self._plan)
        return QuickReading(self._frame, layout, len(_PLACE)) if described else None

    # Done once, at the start.

    def _lasting(self, names: tuple[str, ...]) -> Mapping[str, str]:
        return {name: self._status[name] for name in names if self._status.get(name) in codes.LASTING}

    def _missing(self, field: Field) -> bool:
        return self._status.get(field.name) in codes.LASTING

    def _try(self, call: calls.Call | None) -> str:
        if call is None:
            return "missing_symbol"
        code = call.function(*call.arguments)
        if code == calls.UNINITIALIZED:
            raise SourceGone("NVML is not initialised; open the source again", "closed")
        return "ok" if code in (calls.SUCCESS, call.accepts) else codes.reason_of(code)

    def _add(self, plan: list[calls.Call], fields: tuple[Field, ...], *ways: Way) -> None:
        """The first way that is not out for good joins the plan: one that fails for now may work later."""
        first = ""
        for way in ways:
            call = way()
            status = self._try(call)
            first = first or status
            if call is not None and status not in codes.LASTING:
                plan.append(call)
                first = status
                break
        self._status.update({field.name: first for field in fields})

    def _add_scalar(self, plan: list[calls.Call], field: Field, handle: Any, kind: Any, *names: Any) -> None:
        """`names`: functions, the preferred one first, or tuples of a function and its further arguments."""
        place = (_PLACE if plan is self._plan else _COUNTER_PLACE)[field.name]
        self._add(
            plan, (field,), *(_scalar_way(self._frame, handle, kind, place, field, name) for name in names)
        )

    def _plan_card(self) -> None:
        frame, handle, plan = self._frame, self._handle, self._plan
        found = nvml_batch.probe(handle)
        for key, field in (*nvml_batch.SAMPLED.items(), *nvml_batch.COUNTED.items()):
            self._status[field.name] = found.get(key, "missing_symbol")
        alive = {key for key, status in found.items() if status not in codes.LASTING}
        self._add_batch(
            plan, {key: field for key, field in nvml_batch.SAMPLED.items() if key in alive}, _PLACE
        )
        both = (spec.UTILIZATION, spec.MEMORY_UTILIZATION)
        self._add(
            plan,
            both,
            lambda: calls.utilization(frame, handle, (_PLACE[both[0].name], _PLACE[both[1].name]), both),
        )
        self._plan_power()
        if nvml_batch.ENERGY_KEY not in alive:
            self._add_scalar(plan, spec.ENERGY, handle, ctypes.c_ulonglong, _ENERGY_CALL)
            if not self._missing(spec.ENERGY):
                self._add_scalar(self._marks, spec.ENERGY, handle, ctypes.c_ulonglong, _ENERGY_CALL)
        self._add_batch(
            self._marks, {k: f for k, f in nvml_batch.COUNTED.items() if k in alive}, _COUNTER_PLACE
        )
        for number, field in enumerate((spec.PCIE_TX, spec.PCIE_RX)):
            if not self._missing(field):
                continue
            if self._options.pcie_snapshot:
                self._add_scalar(plan, field, handle, ctypes.c_uint, ("nvmlDeviceGetPcieThroughput", number))
            else:
                self._status[field.name] = "switched_off"
        self._rings = RingReader(handle)
        self._status.update(
            {f"ring:{kind}": self._ring_status(status) for kind, status in self._rings.status.items()}
        )

    def _ring_status(self, status: str) -> str:
        return "no_data" if status == "not_found" else status

    def _add_batch(
        self, plan: list[calls.Call], wanted: dict[nvml_batch.Key, Field], places: dict[str, int]
    ) -> None:
        call = nvml_batch.FieldBatch(self.uuid, self._frame, wanted, places).call(self._handle)
        if call is not None:
            plan.append(call)

    def _plan_power(self) -> None:
        """The plain power call, where field values do not tell; on a superchip it speaks of the module."""
        name, watts = "nvmlDeviceGetPowerUsage", ctypes.c_uint()
        function = calls.bind(name)
        self._superchip = self._superchip or self._status[spec.MODULE_POWER.name] == "ok"
        if function is not None and function(self._handle, ctypes.byref(watts)) == calls.SUCCESS:
            self.power_scope = spec.MODULE if self._superchip else spec.GPU
        target = spec.MODULE_POWER if self._superchip else spec.POWER
        if self._missing(target):
            self._add_scalar(self._plan, target, self._handle, ctypes.c_uint, name)

    def _plan_instance(self) -> None:
        """What counts the whole card cannot be split among its parts."""
        whole = [field for field in spec.FIELDS.values() if field.scope in (spec.GPU, spec.MODULE)]
        self._status.update({field.name: "whole_card" for field in whole})
        self._status.update({f"ring:{kind}": "whole_card" for kind in spec.RINGS})

    def _plan_both(self) -> None:
        """What a MIG instance has of its own, and what its card shows for it."""
        frame, handle, card, plan = self._frame, self._handle, self._card, self._plan
        used, heat, count = spec.MEMORY_USED, spec.TEMPERATURE, spec.PROCESSES
        memory, heat_place = _PLACE[used.name], _PLACE[heat.name]
        self._add(
            plan,
            (used,),
            lambda: calls.memory(frame, handle, 2, memory, used),
            lambda: calls.memory(frame, handle, 1, memory, used),
        )
        for field, kind in (
            (spec.SM_CLOCK, pynvml.NVML_CLOCK_SM),
            (spec.MEMORY_CLOCK, pynvml.NVML_CLOCK_MEM),
        ):
            self._add_scalar(plan, field, card, ctypes.c_uint, ("nvmlDeviceGetClockInfo", kind))
        old_call = ("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
        self._add(
            plan,
            (heat,),
            lambda: calls.temperature(frame, card, heat_place, heat),
            _scalar_way(frame, card, ctypes.c_uint, heat_place, heat, old_call),
        )
        names = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        self._add_scalar(plan, spec.THROTTLE, card, ctypes.c_ulonglong, *names)
        self._add(plan, (count,), lambda: calls.processes(frame, handle, _PLACE[count.name], count))
        for field, kind in (
            (spec.SM_CLOCK_MAX, pynvml.NVML_CLOCK_SM),
            (spec.MEMORY_CLOCK_MAX, pynvml.NVML_CLOCK_MEM),
        ):
            self._add_scalar(self._marks, field, card, ctypes.c_uint, ("nvmlDeviceGetMaxClockInfo", kind))
        if self._options.gpm:
            self._gpm = GpmReader(handle, self._options.clock, self._options.pause)
            self._status.update(self._gpm.status)
        else:
            self._status.update(dict.fromkeys(_GPM_NAMES, "switched_off"))


def _scalar_way(frame: Frame, handle: Any, kind: Any, place: int, field: Field, name: Any) -> Way:
    call, *further = name if isinstance(name, tuple) else (name,)
    return lambda: calls.scalar(frame, call, handle, kind, place, field, *further)
