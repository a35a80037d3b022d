"""Devices without a driver: from a scenario, or from a recorded trace. Deterministic, by a clock that is given.

A trace is a text file of one JSON object a line. First `{"schema": "slurm-trace/replay/1", "devices": [{"uuid",
"name", "index", "minor", "pci", …}]}` with the names of `DeviceInfo`, then readings in the order of time:
`{"t": epoch seconds, "uuid": …, "sample": {field: value}, "counters": {field: value}, "error": word}`; a field that
is left out is None, `error` makes the device lost until its next line.
"""

from __future__ import annotations

import bisect
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_trace.errors import InputProblem
from slurm_trace.node import fields as spec
from slurm_trace.node.devices.base import CounterRead, DeviceInfo, DeviceSource, Reading, SourceInfo, XidEvent
from slurm_trace.node.devices.scenario import load
from slurm_trace.node.devices.scenario_source import ScenarioSource
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone

SCHEMA = "slurm-trace/replay/1"


def replay(path: Path, clock: Callable[[], float] = time.time) -> DeviceSource:
    """A source over a scenario or a trace; `clock` gives Unix seconds."""
    with path.open("rb") as file:
        is_trace = file.read(1) == b"{"
    return TraceSource(path, clock) if is_trace else ScenarioSource(load(path), clock)


class TraceSource:
    """A `DeviceSource` over a recorded trace: at any time, the latest line of a device up to then."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Read the file; InputProblem names a line that is wrong."""
        self._clock = clock
        self._open = False
        self._infos: list[DeviceInfo] = []
        self._lines: dict[str, tuple[list[float], list[dict[str, Any]]]] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            self._read_line(f"{path}, line {number}", line, first=number == 1)

    @property
    def info(self) -> SourceInfo:
        """What the trace stands for."""
        return SourceInfo("replay")

    @property
    def faults(self) -> Mapping[tuple[str, str, str], int]:
        """A trace counts none."""
        return Counter()

    def open(self) -> None:
        """Begin."""
        self._open = True

    def close(self) -> None:
        """End."""
        self._open = False

    def devices(self) -> list[DeviceInfo]:
        """The devices of the first line."""
        return list(self._infos)

    def read(self, uuid: str) -> Reading:
        """The latest line's sample."""
        values, reasons = self._latest(uuid, "sample", spec.SAMPLE_FIELDS)
        return Reading(uuid, values, reasons)

    def counters(self, uuid: str) -> CounterRead:
        """The latest line's counters."""
        values, reasons = self._latest(uuid, "counters", spec.COUNTER_FIELDS)
        return CounterRead(uuid, values, reasons)

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        """A trace has none."""
        raise NotSupported(f"a trace keeps no {kind}; poll it instead", "not_supported")

    def xid_events(self) -> list[XidEvent]:
        """A trace has none."""
        return []

    def _read_line(self, where: str, text: str, *, first: bool) -> None:
        try:
            self._add(json.loads(text), first=first)
        except (ValueError, KeyError, TypeError) as problem:
            raise InputProblem(f"{where}: {problem}; see slurm_trace.node.devices.replay") from None

    def _add(self, line: dict[str, Any], *, first: bool) -> None:
        if first:
            if line["schema"] != SCHEMA:
                raise ValueError(f"schema is not {SCHEMA}")
            self._infos = [DeviceInfo(**device) for device in line["devices"]]
            self._lines = {info.uuid: ([], []) for info in self._infos}
            return
        times, lines = self._lines[line["uuid"]]
        if times and line["t"] < times[-1]:
            raise ValueError("lines of a device are not in the order of time")
        times.append(line["t"])
        lines.append(line)

    def _latest(
        self, uuid: str, part: str, fields: tuple[spec.Field, ...]
    ) -> tuple[tuple[int | None, ...], Mapping[str, str]]:
        if not self._open:
            raise SourceGone("the source is not open; call open() first", "closed")
        if uuid not in self._lines:
            raise DeviceLost(uuid, "not_found")
        times, lines = self._lines[uuid]
        place = bisect.bisect_right(times, self._clock())
        line = lines[place - 1] if place else {}
        if "error" in line:
            raise DeviceLost(uuid, str(line["error"]))
        given = line.get(part, {})
        values: list[int | None] = [None] * len(fields)
        reasons = {}
        for index, field in enumerate(fields):
            value = given.get(field.name)
            wrong = "no_data" if value is None else spec.invalid(field, value)
            if wrong is None:
                values[index] = value
            else:
                reasons[field.name] = wrong
        return tuple(values), reasons
