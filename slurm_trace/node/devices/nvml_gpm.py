"""GPM cycle counters: since reboot, so that two reads tell what lay between, however long ago the first was.

They are read by taking a sample and asking for metrics of two samples; nothing is switched on, no profiling lock is
taken. The first sample is kept for as long as the source is open: should a driver count from the first sample instead
of from reboot, the figures still only grow, and start again where the source did.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from slurm_trace.node.devices import codes
from slurm_trace.node.devices import nvml_calls as calls
from slurm_trace.node.devices.nvml_frame import Problems
from slurm_trace.node.fields import GPM_FIELDS

# The header wants samples to be more than 100 ms apart.
_APART_S = 0.11
_NAMES = tuple(field.name for field in GPM_FIELDS.values())


class GpmReader:
    """The counters of one card or MIG instance."""

    def __init__(self, handle: Any, clock: Callable[[], float], pause: Callable[[float], None]) -> None:
        self._handle, self._clock, self._pause = handle, clock, pause
        self._samples: list[Any] = []
        self._query: Any = None
        self.status = dict.fromkeys(_NAMES, self._begin())

    @property
    def supported(self) -> bool:
        """Whether it is worth asking."""
        return self.status[_NAMES[0]] not in codes.LASTING

    def take(self, values: calls.Values, problems: Problems, places: Mapping[str, int]) -> int:
        """Read all counters into `values`; returns NVML's code for the whole."""
        if not self._samples:
            status = self._begin()
            if status != "ok":
                problems.update(dict.fromkeys(_NAMES, status))
                return calls.SUCCESS
        wait = self._begun + _APART_S - self._clock()
        if wait > 0:
            self._pause(wait)
        code = self._get(self._handle, self._samples[1])
        if code != calls.SUCCESS:
            return code
        code = self._metrics(ctypes.byref(self._query))
        if code != calls.SUCCESS:
            return code
        for place, field in enumerate(GPM_FIELDS.values()):
            metric = self._query.metrics[place]
            if metric.nvmlReturn != calls.SUCCESS:
                problems[field.name] = codes.reason_of(metric.nvmlReturn)
            else:
                calls.put(values, problems, places[field.name], field, calls.from_double(metric.value))
        return code

    def release(self) -> None:
        """Free the samples."""
        free = calls.bind("nvmlGpmSampleFree")
        while self._samples and free is not None:
            free(self._samples.pop())

    def _begin(self) -> str:
        names = ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet")
        query, alloc, get, metrics = (calls.bind(name) for name in names)
        if query is None or alloc is None or get is None or metrics is None:
            return "missing_symbol"
        support = pynvml.c_nvmlGpmSupport_t()
        support.version = pynvml.NVML_GPM_SUPPORT_VERSION
        code = query(self._handle, ctypes.byref(support))
        if code != calls.SUCCESS:
            return codes.reason_of(code)
        if not support.isSupportedDevice:
            return "not_supported"
        self._get, self._metrics = get, metrics
        samples = [pynvml.c_nvmlGpmSample_t(), pynvml.c_nvmlGpmSample_t()]
        for sample in samples:
            code = alloc(ctypes.byref(sample))
            if code != calls.SUCCESS:
                return codes.reason_of(code)
            self._samples.append(sample)
        code = get(self._handle, samples[0])
        if code != calls.SUCCESS:
            self.release()
            return codes.reason_of(code)
        self._begun = self._clock()
        self._query = pynvml.c_nvmlGpmMetricsGet_t()
        self._query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._query.numMetrics = len(GPM_FIELDS)
        self._query.sample1, self._query.sample2 = samples
        for place, metric in enumerate(GPM_FIELDS):
            self._query.metrics[place].metricId = metric
        return "ok"
