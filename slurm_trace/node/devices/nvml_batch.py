"""Field values: many quantities by one call into the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from slurm_trace.node import fields as spec
from slurm_trace.node.devices import codes
from slurm_trace.node.devices import nvml_calls as calls
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
# Types of 64 bits. Narrower byte counters wrap unseen, several times a second.
_WIDE = (2, 3)
# Below it no value is one of those that stand for none.
_PLAIN = 0x7FFF_FFFF

Row = tuple[int, ...]


def _array(keys: Sequence[Key]) -> Any:
    array = (pynvml.c_nvmlFieldValue_t * len(keys))()
    for entry, (number, scope) in zip(array, keys):
        entry.fieldId, entry.scopeId = number, scope
    return array


def probe(handle: Any) -> dict[Key, str]:
    """What each field value of `SAMPLED` answers: a word for each, or for none where the call does not exist."""
    function = calls.bind("nvmlDeviceGetFieldValues")
    if function is None:
        return {}
    keys = list(SAMPLED)
    array = _array(keys)
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

    def __init__(self, uuid: str, wanted: Mapping[Key, Field], places: Mapping[str, int]) -> None:
        self._uuid = uuid
        self._wanted = [(field, places[field.name]) for field in wanted.values()]
        self._array = _array(list(wanted))
        self._view = memoryview(self._array).cast("B")
        self._links: dict[str, tuple[int, int]] = {}

    def call(self, handle: Any) -> calls.Call | None:
        """The call that fills the batch; None where there is nothing in it."""
        function: Callable[..., int] | None = calls.bind("nvmlDeviceGetFieldValues")
        if function is None or not self._wanted:
            return None
        fields = tuple(field for field, _ in self._wanted)
        return calls.Call(function, (handle, len(fields), self._array), self._take, fields)

    def _take(self, values: calls.Values, problems: calls.Problems) -> None:
        rows = calls.FIELD_VALUE.iter_unpack(self._view)
        for (field, place), (_, _, stamp, _, kind, code, raw) in zip(self._wanted, rows):
            if code:
                self._refused(field, code, problems)
                continue
            value = raw if kind == calls.U64 else calls.whole_number(kind, raw)
            if field in _RATES:
                rate = self._rate(field.name, stamp, value, problems)
                if rate is not None:
                    calls.put(values, problems, place, field, rate)
            elif 0 <= value < _PLAIN and value <= field.maximum:
                values[place] = value
            else:
                calls.put(values, problems, place, field, value)

    def _refused(self, field: Field, code: int, problems: calls.Problems) -> None:
        reason = codes.reason_of(code)
        if reason in codes.DEAD:
            raise DeviceLost(self._uuid, reason)
        problems[field.name] = reason

    def _rate(self, name: str, stamp: int, value: int, problems: calls.Problems) -> int | None:
        """Thousands of bytes a second since the last reading."""
        earlier = self._links.get(name)
        self._links[name] = (stamp, value)
        if earlier is None or stamp - earlier[0] > codes.STALE_US:
            # What moved since an old reading may be another job's.
            problems[name] = "first_read"
        elif stamp <= earlier[0]:
            problems[name] = "no_data"
        elif value < earlier[1]:
            problems[name] = "counter_restarted"
        else:
            return (value - earlier[1]) * 1000 // (stamp - earlier[0])
        return None
