"""Ring buffers: what the driver has sampled by itself, with its own time stamps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from slurm_trace.node.devices import codes
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.fields import RINGS


class RingReader:
    """The ring buffers of one card."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._function: Callable[..., int] | None = calls.bind("nvmlDeviceGetSamples")
        self._type = ctypes.c_uint()
        self._count = ctypes.c_uint()
        self._arrays: dict[str, Any] = {}
        self.status = {kind: codes.reason_of(code) if code else "ok" for kind, code in self._probe()}

    def _probe(self) -> list[tuple[str, int]]:
        return [(kind, self._size(kind)) for kind in RINGS]

    def _size(self, kind: str) -> int:
        """Ask for the length of the buffer, which the driver never changes."""
        self._count.value = 0
        code = self._call(kind, 0, None)
        if code == calls.SUCCESS:
            self._arrays[kind] = (pynvml.c_nvmlSample_t * max(self._count.value, 1))()
        return code

    def _call(self, kind: str, since_us: int, array: Any) -> int:
        if self._function is None:
            return calls.NO_SUCH_FUNCTION
        since = ctypes.c_ulonglong(since_us)
        out = ctypes.byref(self._type), ctypes.byref(self._count), array
        return self._function(self._handle, RINGS[kind], since, *out)

    def read(self, kind: str, since_us: int) -> tuple[int, list[tuple[int, int]]]:
        """NVML's code, and (epoch in µs, value) in the order of time, of entries newer than `since_us`, each once."""
        if kind not in self._arrays:
            code = self._size(kind)
            if code != calls.SUCCESS:
                return code, []
        array = self._arrays[kind]
        self._count.value = len(array)
        code = self._call(kind, since_us, array)
        if code != calls.SUCCESS:
            return code, []
        filled = memoryview(array).cast("B")[: self._count.value * calls.SAMPLE.size]
        entries, last = [], since_us
        for stamp, raw in sorted(calls.SAMPLE.iter_unpack(filled)):
            # An entry never filled has stamp 0; a stale one is not newer than what was asked for.
            if stamp > last:
                last = stamp
                entries.append((stamp, calls.whole_number(self._type.value, raw)))
        return code, entries
