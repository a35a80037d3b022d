"""NVML's functions without the cost of their wrappers: each call fills a buffer that was made once.

The functions and structures are nvidia-ml-py's; only its per-call wrappers, which allocate and raise, are left out.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pynvml

from slurm_trace.node.devices.nvml_frame import Frame, Layout, Problems
from slurm_trace.node.fields import Field, invalid

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
NO_SUCH_FUNCTION = 13

# nvmlFieldValue_t and nvmlSample_t, as nvidia-ml-py lays them out.
FIELD_VALUE = struct.Struct("=IIqqIIQ")
SAMPLE = struct.Struct("=QQ")
_LAYOUTS = ((FIELD_VALUE, pynvml.c_nvmlFieldValue_t), (SAMPLE, pynvml.c_nvmlSample_t))
if any(ours.size != ctypes.sizeof(theirs) for ours, theirs in _LAYOUTS):  # pragma: no cover
    raise ImportError(
        "nvidia-ml-py lays out nvmlFieldValue_t in an unknown way; install another version of it"
    )

# nvmlValueType_t of unsigned numbers → how `struct` calls them.
UNSIGNED = {1: "I", 2: "Q", 3: "Q"}
U32_BYTES = 4

Values = list["int | None"]


def bind(name: str) -> Callable[..., int] | None:
    """A function of the loaded library, or None where the library does not have it."""
    try:
        function: Callable[..., int] = pynvml.nvmlLib[name]
    except AttributeError:
        return None
    return function


def whole_number(kind: int, raw: int) -> int:
    """A value of the union nvmlValue_t, whose bits are `raw`, as its type tells; doubles are cut to whole numbers."""
    if kind in (1, 5):
        raw &= 0xFFFF_FFFF
        return raw - 2**32 if kind == 5 and raw & 0x8000_0000 else raw
    if kind == 6:
        return raw & 0xFFFF
    if kind == 0:
        return from_double(struct.unpack("=d", struct.pack("=Q", raw))[0])
    return raw - 2**64 if kind == 4 and raw & 2**63 else raw


def from_double(value: float) -> int:
    """A count that NVML hands over as a double; -1, which no field allows, where it is none."""
    return int(value) if 0 <= value < 2**64 else -1


def put(values: Values, problems: Problems, place: int, field: Field, value: int) -> None:
    """Keep a value that can be true; else note why it is none."""
    reason = invalid(field, value)
    if reason is None:
        values[place] = value
    else:
        problems[field.name] = reason


class Call:
    """One function with its arguments, and what to do with the buffer that it filled.

    Attributes:
        take: Puts what is in the buffer into a reading.
        fields: What the call is asked for.
        describe: Says what lies where; False where the buffer is to be taken by `take` only.
        accepts: A return code that is no failure.
    """

    __slots__ = ("accepts", "arguments", "describe", "fields", "function", "take")

    def __init__(
        self,
        function: Callable[..., int],
        arguments: tuple[Any, ...],
        take: Callable[[Values, Problems], None],
        fields: tuple[Field, ...],
        describe: Callable[[Layout], bool],
        accepts: int = SUCCESS,
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.take = take
        self.fields = fields
        self.describe = describe
        self.accepts = accepts


def scalar(
    frame: Frame, name: str, handle: Any, kind: Any, place: int, field: Field, *extra: Any
) -> Call | None:
    """A call that hands over one unsigned number, after `extra` arguments."""
    function = bind(name)
    if function is None:
        return None
    buffer = frame.buffer(kind)
    letter = "I" if ctypes.sizeof(kind) == U32_BYTES else "Q"

    def take(values: Values, problems: Problems) -> None:
        put(values, problems, place, field, buffer.value)

    def describe(layout: Layout) -> bool:
        layout.values[place] = (frame.place(buffer), letter, field.maximum)
        return True

    return Call(function, (handle, *extra, ctypes.byref(buffer)), take, (field,), describe)


def utilization(
    frame: Frame, handle: Any, places: tuple[int, int], fields: tuple[Field, Field]
) -> Call | None:
    """GPU and memory utilisation."""
    function = bind("nvmlDeviceGetUtilizationRates")
    if function is None:
        return None
    buffer = frame.buffer(pynvml.c_nvmlUtilization_t)
    gpu, memory = places

    def take(values: Values, problems: Problems) -> None:
        put(values, problems, gpu, fields[0], buffer.gpu)
        put(values, problems, memory, fields[1], buffer.memory)

    def describe(layout: Layout) -> bool:
        at, kind = frame.place(buffer), type(buffer)
        layout.values[gpu] = (at + kind.gpu.offset, "I", fields[0].maximum)
        layout.values[memory] = (at + kind.memory.offset, "I", fields[1].maximum)
        return True

    return Call(function, (handle, ctypes.byref(buffer)), take, fields, describe)


def memory(frame: Frame, handle: Any, version: int, place: int, field: Field) -> Call | None:
    """Memory in use; a figure above the card's own total is none."""
    function = bind("nvmlDeviceGetMemoryInfo_v2" if version == 2 else "nvmlDeviceGetMemoryInfo")
    if function is None:
        return None
    if version == 2:
        buffer = frame.buffer(pynvml.c_nvmlMemory_v2_t)
        buffer.version = pynvml.nvmlMemory_v2
    else:
        buffer = frame.buffer(pynvml.c_nvmlMemory_t)

    def take(values: Values, problems: Problems) -> None:
        used = buffer.used
        if used > buffer.total:
            problems[field.name] = invalid(field, used) or "out_of_range"
        else:
            put(values, problems, place, field, used)

    def describe(layout: Layout) -> bool:
        at, kind = frame.place(buffer), type(buffer)
        layout.values[place] = (at + kind.used.offset, "Q", min(field.maximum, buffer.total))
        layout.marks.append((at + kind.total.offset, "Q"))
        return True

    return Call(function, (handle, ctypes.byref(buffer)), take, (field,), describe)


def processes(frame: Frame, handle: Any, place: int, field: Field) -> Call | None:
    """How many compute processes there are: the call is asked for the size of its list only."""
    for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
        function = bind(name)
        if function is not None:
            break
    else:
        return None
    buffer = frame.buffer(ctypes.c_uint)

    def take(values: Values, problems: Problems) -> None:
        put(values, problems, place, field, buffer.value)
        buffer.value = 0

    def describe(layout: Layout) -> bool:
        at = frame.place(buffer)
        layout.values[place] = (at, "I", field.maximum)
        layout.cleared.append((at, U32_BYTES))
        return True

    return Call(function, (handle, ctypes.byref(buffer), None), take, (field,), describe, INSUFFICIENT_SIZE)


def temperature(frame: Frame, handle: Any, place: int, field: Field) -> Call | None:
    """The newer of the two calls; the older is in nvml.h only for compatibility."""
    function = bind("nvmlDeviceGetTemperatureV")
    if function is None or not hasattr(pynvml, "c_nvmlTemperature_v1_t"):
        return None
    buffer = frame.buffer(pynvml.c_nvmlTemperature_v1_t)
    buffer.version = pynvml.nvmlTemperature_v1
    buffer.sensorType = pynvml.NVML_TEMPERATURE_GPU

    def take(values: Values, problems: Problems) -> None:
        # Signed here, unsigned in the older call: -1 is all ones.
        put(values, problems, place, field, buffer.temperature & 0xFFFF_FFFF)

    def describe(layout: Layout) -> bool:
        at = frame.place(buffer) + type(buffer).temperature.offset
        layout.values[place] = (at, "I", field.maximum)
        return True

    return Call(function, (handle, ctypes.byref(buffer)), take, (field,), describe)
