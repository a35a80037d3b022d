"""One card or MIG instance behind NVML: what it can tell is found out once, then asked in as few calls as possible."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from slurm_trace.node import fields as spec
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.devices.base import CounterRead, Reading
from slurm_trace.node.devices.nvml_gpm import GpmReader
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone
from slurm_trace.node.fields import Field

_PLACE = {field.name: place for place, field in enumerate(spec.SAMPLE_FIELDS)}
_COUNTER_PLACE = {field.name: place for place, field in enumerate(spec.COUNTER_FIELDS)}
_GPU_SCOPE, _MODULE_SCOPE = 0, 1
# Field value (number, scope) → what it gives. A byte counter gives the rate of the link.
_BATCH: dict[tuple[int, int], Field] = {
    (83, 0): spec.ENERGY,
    (185, _GPU_SCOPE): spec.POWER,
    (186, _GPU_SCOPE): spec.POWER_INSTANT,
    (186, _MODULE_SCOPE): spec.MODULE_POWER,
    (197, 0): spec.PCIE_TX,
    (198, 0): spec.PCIE_RX,
}
_LINK = {197: spec.PCIE_TX_BYTES, 198: spec.PCIE_RX_BYTES}
_WIDE = (2, 3)
_STALE_US = 120_000_000
# Superchips: the plain power call speaks of the module.
_SUPERCHIPS = ("GH200", "GB200", "GB300", "GB10")


class NvmlDevice:
    """Reads one device. Buffers belong to the object: one call at a time."""

    def __init__(
        self,
        uuid: str,
        name: str,
        handle: Any,
        card: Any,
        *,
        gpm: bool,
        pcie_snapshot: bool,
        clock: Callable[[], float],
        pause: Callable[[float], None],
    ) -> None:
        """Find out what the device can tell.

        Args:
            uuid: Its identity.
            name: What the driver calls it.
            handle: NVML's handle of the device itself.
            card: The handle of its card; the same object for a whole card.
            gpm: Read GPM counters where there are any.
            pcie_snapshot: Use the PCIe call that watches the link for 20 ms, where there is no byte counter.
            clock: Monotonic seconds.
            pause: Waits for some seconds.
        """
        self.uuid = uuid
        self.power_scope = "none"
        self.faults: Counter[tuple[str, str, str]] = Counter()
        self._handle, self._card = handle, card
        self._instance = handle is not card
        self._pcie_snapshot = pcie_snapshot
        self._status: dict[str, str] = {}
        self._plan: list[calls.Call] = []
        self._links: dict[int, tuple[int, int]] = {}
        self._rings: dict[str, tuple[Any, Any, Any, Any]] = {}
        self._superchip = any(chip in name for chip in _SUPERCHIPS)
        self._make_batch([] if self._instance else list(_BATCH))
        self._make_plan()
        self._marks = self._make_marks()
        self._gpm = GpmReader(handle, clock, pause) if gpm else None
        self._status.update(self._gpm.status if self._gpm else dict.fromkeys(_GPM_NAMES, "switched_off"))
        for kind in spec.RINGS:
            self._status[f"ring:{kind}"] = "whole_card" if self._instance else self._probe_ring(kind)
        self._sample_reasons = self._lasting(spec.SAMPLE_NAMES)
        self._counter_reasons = self._lasting(spec.COUNTER_NAMES)

    @property
    def capability(self) -> Mapping[str, str]:
        """Field or `ring:field` → what was found at the start."""
        return self._status

    def read(self) -> Reading:
        """The values of the moment."""
        values: calls.Values = [None] * len(_PLACE)
        problems: dict[str, str] = {}
        answered = False
        for call in self._plan:
            code = call.function(*call.arguments)
            if code == calls.SUCCESS or code == call.accepts:
                answered = True
                call.take(values, problems)
            else:
                self._note(code, call.fields, problems)
        if not problems:
            return Reading(self.uuid, tuple(values), self._sample_reasons)
        return Reading(self.uuid, tuple(values), self._settle(problems, self._sample_reasons, answered))

    def counters(self) -> CounterRead:
        """The counters, and what changes rarely."""
        values: calls.Values = [None] * len(_COUNTER_PLACE)
        problems: dict[str, str] = {}
        answered = False
        for call in self._marks:
            code = call.function(*call.arguments)
            if code == calls.SUCCESS:
                answered = True
                call.take(values, problems)
            else:
                self._note(code, call.fields, problems)
        if self._gpm is not None and self._gpm.supported:
            code = self._gpm.take(values, problems, _COUNTER_PLACE)
            answered = answered or code == calls.SUCCESS
            if code != calls.SUCCESS:
                self._note(code, tuple(spec.GPM_FIELDS.values()), problems)
        if not problems:
            return CounterRead(self.uuid, tuple(values), self._counter_reasons)
        return CounterRead(self.uuid, tuple(values), self._settle(problems, self._counter_reasons, answered))

    def ring(self, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """Entries of a ring buffer newer than `since_us`, oldest first, each stamp once."""
        status = self._status.get(f"ring:{kind}", "not_supported")
        if status in calls.LASTING:
            raise NotSupported(f"{self.uuid} keeps no {kind} ({status}); poll it instead", status)
        code, raw = self._ask_ring(kind, since_us)
        if code == calls.NOT_FOUND:
            return []
        if code != calls.SUCCESS:
            self._note(code, (), {})
            reason = calls.reason_of(code)
            self.faults[self.uuid, f"ring:{kind}", reason] += 1
            raise NotSupported(
                f"{self.uuid} does not hand over {kind} now ({reason}); poll it instead", reason
            )
        field, last = spec.FIELDS[kind], since_us
        entries: list[tuple[int, int | None]] = []
        for stamp, value in sorted(raw):
            # Entries never filled have stamp 0; a stale one is not newer than what was asked for.
            if stamp <= last:
                continue
            last = stamp
            wrong = spec.invalid(field, value)
            if wrong is not None:
                self.faults[self.uuid, f"ring:{kind}", wrong] += 1
            entries.append((stamp, value if wrong is None else None))
        return entries

    def release(self) -> None:
        """Give back what NVML holds for this object."""
        if self._gpm is not None:
            self._gpm.release()

    # What follows is done once, at the start.

    def _lasting(self, names: tuple[str, ...]) -> Mapping[str, str]:
        return {name: self._status[name] for name in names if self._status.get(name) in calls.LASTING}

    def _try(self, call: calls.Call | None) -> str:
        if call is None:
            return "missing_symbol"
        code = call.function(*call.arguments)
        if code == calls.UNINITIALIZED:
            raise SourceGone("NVML is not initialised; open the source again", "closed")
        return "ok" if code in (calls.SUCCESS, call.accepts) else calls.reason_of(code)

    def _add(self, plan: list[calls.Call], *ways: Callable[[], calls.Call | None]) -> str:
        """The first way that works joins the plan; one that fails for now stays in it. Returns how it went."""
        first = ""
        for way in ways:
            call = way()
            status = self._try(call)
            first = first or status
            if call is not None and status not in calls.LASTING:
                plan.append(call)
                for field in call.fields:
                    self._status[field.name] = status
                return status
        return first

    def _add_scalar(
        self, plan: list[calls.Call], field: Field, handle: Any, kind: Any, *ways: tuple[Any, ...]
    ) -> None:
        place = (_COUNTER_PLACE if plan is not self._plan else _PLACE)[field.name]
        status = self._add(
            plan,
            *(lambda way=way: calls.scalar(way[0], handle, kind, place, field, *way[1:]) for way in ways),
        )
        self._status[field.name] = status

    def _make_plan(self) -> None:
        handle, card, plan, place = self._handle, self._card, self._plan, _PLACE
        whole = (spec.UTILIZATION, spec.MEMORY_UTILIZATION)
        if self._instance:
            only_card = (field for field in spec.SAMPLE_FIELDS if field.scope in (spec.GPU, spec.MODULE))
            self._status.update({field.name: "whole_card" for field in only_card})
        else:
            places = (place[whole[0].name], place[whole[1].name])
            status = self._add(plan, lambda: calls.utilization(handle, places, whole))
            self._status.update({field.name: status for field in whole})
            self._fall_back()
        used = spec.MEMORY_USED
        self._status[used.name] = self._add(
            plan,
            lambda: calls.memory(handle, 2, place[used.name], used),
            lambda: calls.memory(handle, 1, place[used.name], used),
        )
        clock = "nvmlDeviceGetClockInfo"
        self._add_scalar(plan, spec.SM_CLOCK, card, ctypes.c_uint, (clock, pynvml.NVML_CLOCK_SM))
        self._add_scalar(plan, spec.MEMORY_CLOCK, card, ctypes.c_uint, (clock, pynvml.NVML_CLOCK_MEM))
        heat, heat_place = spec.TEMPERATURE, place[spec.TEMPERATURE.name]
        sensor, old = pynvml.NVML_TEMPERATURE_GPU, "nvmlDeviceGetTemperature"
        self._status[heat.name] = self._add(
            plan,
            lambda: calls.temperature(card, heat_place, heat),
            lambda: calls.scalar(old, card, ctypes.c_uint, heat_place, heat, sensor),
        )
        reasons = ("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)
        self._add_scalar(plan, spec.THROTTLE, card, ctypes.c_ulonglong, *reasons)
        count = spec.PROCESSES
        self._status[count.name] = self._add(plan, lambda: calls.processes(handle, place[count.name], count))

    def _fall_back(self) -> None:
        """Plain calls for what the batch of field values does not give."""
        plan, handle, power = self._plan, self._handle, "nvmlDeviceGetPowerUsage"
        missing = {name for name in _BATCH_NAMES if self._status.get(name) in calls.LASTING}
        self._superchip = self._superchip or self._status.get(spec.MODULE_POWER.name) == "ok"
        plain = ctypes.c_uint()
        function = calls.bind(power)
        if function is not None and function(handle, ctypes.byref(plain)) == calls.SUCCESS:
            self.power_scope = spec.MODULE if self._superchip else spec.GPU
        target = spec.MODULE_POWER if self._superchip else spec.POWER
        if target.name in missing and self.power_scope != "none":
            self._add_scalar(plan, target, handle, ctypes.c_uint, (power,))
        if spec.ENERGY.name in missing:
            self._add_scalar(
                plan, spec.ENERGY, handle, ctypes.c_ulonglong, ("nvmlDeviceGetTotalEnergyConsumption",)
            )
        for number, field in enumerate((spec.PCIE_TX, spec.PCIE_RX)):
            if field.name not in missing:
                continue
            if self._pcie_snapshot:
                self._add_scalar(plan, field, handle, ctypes.c_uint, ("nvmlDeviceGetPcieThroughput", number))
            else:
                self._status[field.name] = "switched_off"

    def _make_batch(self, wanted: list[tuple[int, int]]) -> None:
        """One call for all field values that this device has."""
        function = calls.bind("nvmlDeviceGetFieldValues")
        if function is None or not wanted:
            reason = "missing_symbol" if function is None else "whole_card"
            self._status.update(dict.fromkeys(_BATCH_NAMES, reason))
            self._status.update({field.name: reason for field in _LINK.values()})
            return
        code, rows = _fields(function, self._handle, wanted)
        if code == calls.UNINITIALIZED:
            raise SourceGone("NVML is not initialised; open the source again", "closed")
        kept = []
        for key, row in zip(wanted, rows):
            reason = calls.reason_of(code) if code else _field_status(row)
            if key[0] in _LINK:
                # Narrow counters wrap unseen, several times a second.
                reason = "not_supported" if reason == "ok" and row[4] not in _WIDE else reason
                self._status[_LINK[key[0]].name] = reason
            self._status[_BATCH[key].name] = reason
            if reason not in calls.LASTING:
                kept.append(key)
        if kept:
            self._plan.append(self._batch_call(function, kept, self._take_row))

    def _batch_call(
        self,
        function: Callable[..., int],
        keys: list[tuple[int, int]],
        take_row: Callable[[calls.Values, calls.Problems, tuple[int, ...]], None],
    ) -> calls.Call:
        array = _field_array(keys)
        view, unpack = memoryview(array).cast("B"), calls.FIELD_VALUE.iter_unpack

        def take(values: calls.Values, problems: calls.Problems) -> None:
            for row in unpack(view):
                take_row(values, problems, row)

        fields = tuple(_BATCH[key] for key in keys)
        return calls.Call(function, (self._handle, len(keys), array), take, fields)

    def _take_row(self, values: calls.Values, problems: calls.Problems, row: tuple[int, ...]) -> None:
        number, scope, stamp, _, kind, code, raw = row
        field = _BATCH[number, scope]
        if code:
            problems[field.name] = calls.reason_of(code)
            if problems[field.name] in calls.DEAD:
                raise DeviceLost(self.uuid, problems[field.name])
            return
        value = raw if kind == 3 else calls.whole_number(kind, raw)
        if number in _LINK:
            rate = self._rate(number, stamp, value, problems)
            if rate is not None:
                calls.put(values, problems, _PLACE[field.name], field, rate)
        elif 0 <= value < 0x7FFF_FFFF and value <= field.maximum:
            values[_PLACE[field.name]] = value
        else:
            calls.put(values, problems, _PLACE[field.name], field, value)

    def _rate(self, number: int, stamp: int, value: int, problems: calls.Problems) -> int | None:
        earlier = self._links.get(number)
        self._links[number] = (stamp, value)
        name = _BATCH[number, 0].name
        if earlier is None or stamp - earlier[0] > _STALE_US:
            # What moved since an old reading may be another job's.
            problems[name] = "first_read"
        elif stamp <= earlier[0]:
            problems[name] = "no_data"
        elif value < earlier[1]:
            problems[name] = "counter_restarted"
        else:
            return (value - earlier[1]) * 1000 // (stamp - earlier[0])
        return None

    def _make_marks(self) -> list[calls.Call]:
        marks: list[calls.Call] = []
        top = "nvmlDeviceGetMaxClockInfo"
        self._add_scalar(marks, spec.SM_CLOCK_MAX, self._card, ctypes.c_uint, (top, pynvml.NVML_CLOCK_SM))
        self._add_scalar(
            marks, spec.MEMORY_CLOCK_MAX, self._card, ctypes.c_uint, (top, pynvml.NVML_CLOCK_MEM)
        )
        if self._instance:
            return marks
        function = calls.bind("nvmlDeviceGetFieldValues")
        batched = {83: spec.ENERGY, **_LINK}
        keys = [(number, 0) for number, field in batched.items() if self._field_gives(number, field)]
        if function is not None and keys:

            def take_row(values: calls.Values, problems: calls.Problems, row: tuple[int, ...]) -> None:
                field, code = batched[row[0]], row[5]
                if code:
                    problems[field.name] = calls.reason_of(code)
                    return
                value = calls.whole_number(row[4], row[6])
                calls.put(values, problems, _COUNTER_PLACE[field.name], field, value)

            marks.append(self._batch_call(function, keys, take_row))
        if (83, 0) not in keys and self._status.get(spec.ENERGY.name) not in calls.LASTING:
            self._add_scalar(
                marks, spec.ENERGY, self._handle, ctypes.c_ulonglong, ("nvmlDeviceGetTotalEnergyConsumption",)
            )
        return marks

    def _field_gives(self, number: int, field: Field) -> bool:
        """Whether the batch asks for this field value; a plain call may stand in for it instead."""
        if number in _LINK:
            return self._status.get(field.name) not in calls.LASTING
        plain = any(call.fields == (field,) for call in self._plan)
        return not plain and self._status.get(field.name) not in calls.LASTING

    def _probe_ring(self, kind: str) -> str:
        function = calls.bind("nvmlDeviceGetSamples")
        if function is None:
            return "missing_symbol"
        value_type, size = ctypes.c_uint(), ctypes.c_uint(0)
        arguments = (self._handle, spec.RINGS[kind], ctypes.c_ulonglong(0), ctypes.byref(value_type))
        code = function(*arguments, ctypes.byref(size), None)
        if code == calls.NOT_FOUND:
            return "no_data"
        if code != calls.SUCCESS:
            return calls.reason_of(code)
        self._rings[kind] = (function, value_type, size, (pynvml.c_nvmlSample_t * max(size.value, 1))())
        return "ok"

    # What follows is shared by all reads.

    def _ask_ring(self, kind: str, since_us: int) -> tuple[int, list[tuple[int, int]]]:
        if kind not in self._rings:
            status = self._probe_ring(kind)
            if kind not in self._rings:
                return (calls.NOT_FOUND if status == "no_data" else 999), []
        function, value_type, size, array = self._rings[kind]
        size.value = len(array)
        code = function(
            self._handle, spec.RINGS[kind], ctypes.c_ulonglong(since_us), ctypes.byref(value_type),
            ctypes.byref(size), array,
        )  # fmt: skip
        if code != calls.SUCCESS:
            return code, []
        rows = calls.SAMPLE.iter_unpack(memoryview(array).cast("B")[: size.value * calls.SAMPLE.size])
        return code, [(stamp, calls.whole_number(value_type.value, raw)) for stamp, raw in rows]

    def _note(self, code: int, fields: tuple[Field, ...], problems: dict[str, str]) -> None:
        if code == calls.UNINITIALIZED:
            raise SourceGone("NVML is not initialised; open the source again", "closed")
        reason = calls.reason_of(code)
        if reason in calls.DEAD:
            raise DeviceLost(self.uuid, reason)
        problems.update({field.name: reason for field in fields})

    def _settle(
        self, problems: dict[str, str], lasting: Mapping[str, str], answered: bool
    ) -> Mapping[str, str]:
        if not answered:
            raise DeviceLost(self.uuid, next(iter(problems.values())))
        for name, reason in problems.items():
            if reason != "first_read":
                self.faults[self.uuid, name, reason] += 1
        return {**lasting, **problems}


_BATCH_NAMES = tuple(field.name for field in _BATCH.values())
_GPM_NAMES = tuple(field.name for field in spec.GPM_FIELDS.values())


def _field_array(keys: list[tuple[int, int]]) -> Any:
    array = (pynvml.c_nvmlFieldValue_t * len(keys))()
    for entry, (number, scope) in zip(array, keys):
        entry.fieldId, entry.scopeId = number, scope
    return array


def _fields(
    function: Callable[..., int], handle: Any, keys: list[tuple[int, int]]
) -> tuple[int, list[tuple[int, ...]]]:
    array = _field_array(keys)
    code = function(handle, len(keys), array)
    return code, list(calls.FIELD_VALUE.iter_unpack(memoryview(array).cast("B")))


def _field_status(row: tuple[int, ...]) -> str:
    """A number that the library does not know is an invalid argument to it."""
    return {0: "ok", 2: "not_supported"}.get(row[5]) or calls.reason_of(row[5])
