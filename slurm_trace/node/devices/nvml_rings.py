"""Ring buffers: what the driver has sampled by itself, with its own time stamps."""

from __future__ import annotations

import ctypes
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, Optional, cast

import pynvml

from slurm_trace.node.devices import codes
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.fields import FIELDS, PLAIN, RINGS, Field, invalid

Entry = tuple[int, Optional[int]]


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

    def read(self, kind: str, since_us: int) -> tuple[int, list[Entry], Counter[str]]:
        """Entries newer than `since_us`: (epoch in µs, value) in the order of time, each once.

        Returns:
            NVML's code, the entries, and how many of their values cannot be true, and why: they are None.
        """
        if kind not in self._arrays:
            code = self._size(kind)
            if code != calls.SUCCESS:
                return code, [], Counter()
        array = self._arrays[kind]
        self._count.value = len(array)
        code = self._call(kind, since_us, array)
        if code != calls.SUCCESS:
            return code, [], Counter()
        filled = memoryview(array).cast("B")[: self._count.value * calls.SAMPLE.size]
        # Sorted it is nearly always; that costs little to see.
        raw = sorted(calls.SAMPLE.iter_unpack(filled))
        return code, *self._checked(FIELDS[kind], raw, since_us)

    def _checked(
        self, field: Field, raw: list[tuple[int, int]], since_us: int
    ) -> tuple[list[Entry], Counter[str]]:
        if raw and raw[0][0] > since_us:
            stamps, values = zip(*raw)
            increasing = all(map(operator.lt, stamps, stamps[1:]))
            if increasing and self._type.value in calls.UNSIGNED and max(values) <= min(field.maximum, PLAIN):
                return cast("list[Entry]", raw), Counter()
        entries: list[Entry] = []
        wrong: Counter[str] = Counter()
        last = since_us
        for stamp, bits in raw:
            # An entry never filled has stamp 0; a stale one is not newer than what was asked for.
            if stamp > last:
                last = stamp
                value = calls.whole_number(self._type.value, bits)
                reason = invalid(field, value)
                if reason is not None:
                    wrong[reason] += 1
                entries.append((stamp, value if reason is None else None))
        return entries, wrong
