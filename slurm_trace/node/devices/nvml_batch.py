"""Field values: many quantities by one call into the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from slurm_trace.node import fields as spec
from slurm_trace.node.devices import codes
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.devices.nvml_frame import Frame, Layout, Problems, Rate
from slurm_trace.node.errors import DeviceLost
from slurm_trace.node.fields import Field

# (Number of nvml.h, scope): NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, _POWER_AVERAGE, _POWER_INSTANT, _PCIE_COUNT_…_BYTES.
Key = tuple[int, int]
_GPU_SCOPE, _MODULE_SCOPE = 0, 1
ENERGY_KEY: Key = (83, 0)
SAMPLED: dict[Key, Field] = {
    ENERGY_KEY: spec.ENERGY,
    (185, _GPU_SCOPE): spec.POWER,
    (186, _GPU_SCOPE): spec.POWER_INSTANT,
    (186, _MODULE_SCOPE): spec.MODULE_POWER,
    (197, 0): spec.PCIE_TX,
    (198, 0): spec.PCIE_RX,
}
COUNTED: dict[Key, Field] = {
    ENERGY_KEY: spec.ENERGY,
    (197, 0): spec.PCIE_TX_BYTES,
    (198, 0): spec.PCIE_RX_BYTES,
}
_RATES = (spec.PCIE_TX, spec.PCIE_RX)
RATE_NAMES = frozenset(field.name for field in _RATES)
# Types of 64 bits. Narrower byte counters wrap unseen, several times a second.
_WIDE = (2, 3)
Row = tuple[int, ...]


def _name(array: Any, keys: Sequence[Key]) -> None:
    for entry, (number, scope) in zip(array, keys):
        entry.fieldId, entry.scopeId = number, scope


def probe(handle: Any) -> dict[Key, str]:
    """What each field value of `SAMPLED` answers: a word for each, or for none where the call does not exist."""
    function = calls.bind("nvmlDeviceGetFieldValues")
    if function is None:
        return {}
    keys = list(SAMPLED)
    array = (pynvml.c_nvmlFieldValue_t * len(keys))()
    _name(array, keys)
    code = function(handle, len(keys), array)
    if code:
        return dict.fromkeys(keys, codes.reason_of(code))
    rows = calls.FIELD_VALUE.iter_unpack(memoryview(array).cast("B"))
    return {key: _status(key, row) for key, row in zip(keys, rows)}


def _status(key: Key, row: Row) -> str:
    kind, code = row[4], row[5]
    if code == calls.INVALID_ARGUMENT:
        return "not_supported"  # A number that the library does not know.
    if not code and SAMPLED[key] in _RATES and kind not in _WIDE:
        return "not_supported"
    return "ok" if not code else codes.reason_of(code)


class FieldBatch:
    """Some field values of one device, with the places where they go."""

    def __init__(
        self, uuid: str, frame: Frame, wanted: Mapping[Key, Field], places: Mapping[str, int]
    ) -> None:
        self._uuid = uuid
        self._frame = frame
        self._wanted = [(field, places[field.name]) for field in wanted.values()]
        self._array = frame.buffer(pynvml.c_nvmlFieldValue_t * len(wanted))
        _name(self._array, list(wanted))
        self._view = memoryview(self._array).cast("B")
        self._rates = {field.name: _meter(field) for field, _ in self._wanted if field in _RATES}

    def call(self, handle: Any) -> calls.Call | None:
        """The call that fills the batch; None where there is nothing in it."""
        function: Callable[..., int] | None = calls.bind("nvmlDeviceGetFieldValues")
        if function is None or not self._wanted:
            return None
        fields = tuple(field for field, _ in self._wanted)
        arguments = (handle, len(fields), self._array)
        return calls.Call(function, arguments, self._take, fields, self._describe)

    def _take(self, values: calls.Values, problems: Problems) -> None:
        rows = calls.FIELD_VALUE.iter_unpack(self._view)
        for (field, place), (_, _, stamp, _, kind, code, raw) in zip(self._wanted, rows):
            if code:
                self._refused(field, code, problems)
                continue
            value = calls.whole_number(kind, raw)
            if field in _RATES:
                values[place] = self._rates[field.name](stamp, value, problems)
            else:
                calls.put(values, problems, place, field, value)

    def _describe(self, layout: Layout) -> bool:
        for (field, place), entry in zip(self._wanted, self._array):
            at, kind = self._frame.place(entry), type(entry)
            letter = calls.UNSIGNED.get(entry.valueType)
            if letter is None or entry.nvmlReturn:
                return False
            layout.marks += [(at + kind.valueType.offset, "I"), (at + kind.nvmlReturn.offset, "I")]
            value = at + kind.value.offset
            if field not in _RATES:
                layout.values[place] = (value, letter, field.maximum)
            elif letter == "Q":
                layout.rates[place] = (at + kind.timestamp.offset, value, self._rates[field.name])
            else:
                return False
        return True

    def _refused(self, field: Field, code: int, problems: Problems) -> None:
        reason = codes.reason_of(code)
        if reason in codes.DEAD:
            raise DeviceLost(self._uuid, reason)
        problems[field.name] = reason


def _meter(field: Field) -> Rate:
    """Makes a rate, in thousands of bytes a second, of a byte counter and the one that it was given before."""
    last_stamp = last_value = 0
    top = min(field.maximum, spec.PLAIN)

    def rate(stamp: int, value: int, problems: Problems) -> int | None:
        nonlocal last_stamp, last_value
        elapsed, moved = stamp - last_stamp, value - last_value
        last_stamp, last_value = stamp, value
        if elapsed > codes.STALE_US:
            # There is none before, or what moved since then may be another job's.
            problems[field.name] = "first_read"
        elif elapsed <= 0:
            problems[field.name] = "no_data"
        elif moved < 0:
            problems[field.name] = "counter_restarted"
        else:
            found = moved * 1000 // elapsed
            if found <= top:
                return found
            problems[field.name] = spec.invalid(field, found) or "out_of_range"
        return None

    return rate
