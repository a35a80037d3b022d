"""Figures of one spool file: per device, and per device and hour. What was not measured is None, never 0.

A sample speaks for the time since the sample before it. Time that a gap covers, time after the last sample, and a
way from sample to sample that is far too long are gaps. Times are milliseconds of CLOCK_BOOTTIME; hours are of the
node's wall clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES, FIELDS, invalid
from slurm_trace.node.spool import MS, RING, SAMPLE, Gap
from slurm_trace.store.spool_check import COUNTER_HEAD, MAX_PART_S, CheckedSpool, check_chunk
from slurm_trace.store.spool_intervals import Busy, Interval, Sampled, busy_of, intervals_of
from slurm_trace.store.spool_values import Damaged

Ints = npt.NDArray[np.int64]

COUNTER, SAMPLES, POWER = SOURCES = ("counter", "samples", "power")
"""Where a figure of energy comes from, the best first."""

_HOUR_MS = 3_600_000
_NONE = -1
"""Stands for no value; a value is never negative."""
_FIELDS = ("utilization_pct", "power_mw", "energy_mj", "sm_clock_mhz", "memory_used_bytes", "process_count")
_BUSY_RING, _CLOCK_RING = f"{RING}utilization_pct", f"{RING}sm_clock_mhz"
_LONGEST_WAY_MS = 60_000
_LONGEST_WAY_INTERVALS = 10
_GRAIN_MJ = 1000
"""Sampled energy is rounded up to this, so it may seem to go back by as much."""
_LAST_MS = 2**53
_MOST_HOURS = MAX_PART_S // 3600 + 1000
_MOST_MJ_PER_MS = FIELDS["power_mw"].maximum // 1000
"""A counter that moves faster than the largest power that can be true has begun anew, or was never true."""
_MONO_AT, _TOOK_AT = 2, 3
_ENERGY_AT = COUNTER_HEAD + COUNTER_NAMES.index("energy_mj")
_CLOCK_LIMIT_AT = COUNTER_HEAD + COUNTER_NAMES.index("sm_clock_max_mhz")


@dataclass(slots=True)
class Figures:
    """What adds up over time, and what was highest; names as in the store."""

    covered_ms: int = 0
    gap_ms: int = 0
    utilization_ms: int = 0
    utilization_pct_ms: int = 0
    utilization_max_pct: int | None = None
    energy_mj: int | None = None
    energy_from: str | None = None
    power_max_mw: int | None = None
    memory_used_max_bytes: int | None = None
    sm_clock_top_mhz: int | None = None


@dataclass(slots=True)
class DeviceFigures(Figures):
    """One device's part of a lease."""

    samples: int = 0
    invalid: int = 0
    power_mj: int | None = None
    energy_resets: int = 0
    energy_first_mj: int | None = None
    energy_last_mj: int | None = None
    sm_clock_max_mhz: int | None = None
    process_max: int | None = None
    hours: dict[int, Figures] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    busy: list[Busy] = field(default_factory=list)


def figures_of(checked: CheckedSpool) -> dict[str, DeviceFigures]:
    """The figures of every device, by its UUID.

    Raises:
        Damaged: A chunk cannot be unpacked, or holds what no sampler writes.
    """
    spool = checked.spool
    taken = {device.uuid: _Taken() for device in spool.devices}
    for chunk in spool.chunks():
        for series in spool.series(check_chunk(chunk)):
            # Other ring buffers are stored as they are; here it only matters that they can be unpacked.
            if chunk.kind == SAMPLE:
                taken[series.uuid].add(series.columns)
            elif chunk.kind == _BUSY_RING:
                taken[series.uuid].windows.append(series.columns)
            elif chunk.kind == _CLOCK_RING:
                taken[series.uuid].clocks.append(series.columns)
    return {device.uuid: _figures(checked, device, taken[device.uuid]) for device in spool.devices}


class _Taken:
    """The samples of one device, as they come in."""

    def __init__(self) -> None:
        self._parts: list[Ints] = []
        self.windows: list[Mapping[str, Any]] = []
        self.clocks: list[Mapping[str, Any]] = []
        self.invalid = 0

    def add(self, columns: Any) -> None:
        rows = [_times(columns["mono_ms"]), _times(columns["wall_offset_ms"])]
        for name in _FIELDS:
            values = columns.get(name)
            rows.append([_NONE] * len(rows[0]) if values is None else self._values(name, values))
        self._parts.append(np.array(rows, dtype=np.int64))

    def _values(self, name: str, values: Sequence[int | None]) -> list[int]:
        spec = FIELDS[name]
        found = [_NONE if value is None or invalid(spec, value) else value for value in values]
        self.invalid += found.count(_NONE) - sum(value is None for value in values)
        return found

    def in_order(self) -> Ints:
        """Rows of time, wall offset and the fields, by time; of equal times the first."""
        whole = np.concatenate([np.empty((2 + len(_FIELDS), 0), dtype=np.int64), *self._parts], axis=1)
        found: Ints = whole[:, np.unique(whole[0], return_index=True)[1]]
        return found


def _times(values: Sequence[int | None]) -> list[int]:
    found = [value for value in values if value is not None and -_LAST_MS <= value <= _LAST_MS]
    if len(found) != len(values):
        raise Damaged("samples without a time")
    return found


def _figures(checked: CheckedSpool, device: DeviceInfo, taken: _Taken) -> DeviceFigures:
    begin = -(-checked.from_ns // MS)
    rows = taken.in_order()
    rows = rows[:, rows[0] > begin]
    if checked.to_ns is not None:
        end = max(begin, checked.to_ns // MS)
        # The first sample after the end speaks for the time before it.
        rows = rows[:, : int(np.searchsorted(rows[0], end)) + 1]
    else:
        end = max([begin, *rows[0][-1:].tolist()])
    if end - begin > MAX_PART_S * 1000:
        raise Damaged("its samples reach further than any part of a lease")
    found = DeviceFigures(samples=rows.shape[1], invalid=taken.invalid + checked.invalid[device.uuid])
    _tile(checked, device.uuid, rows, (begin, end), found)
    reads = [row for row in checked.counters if row[0] == checked.numbers[device.uuid]]
    holes = np.diff(_before(checked.spool.gaps, device.uuid, (begin, end), rows[0]), prepend=0) > 0
    holes |= np.diff(rows[0], prepend=begin) > _longest_way_ms(checked)
    _, _, utilization, power, _, clock, _, processes = rows
    samples = Sampled(rows[0], clock, utilization, power, processes, holes)
    most = int(processes.max(initial=_NONE))
    found.process_max = None if most == _NONE else most
    moments = [(row[_MONO_AT], row[_TOOK_AT]) for row in reads]
    found.intervals = intervals_of(samples, moments, (checked.from_ns, end * MS))
    found.busy = busy_of(taken.windows, (begin, end))
    clocks = (found.sm_clock_top_mhz, *_ring_clocks(taken.clocks))
    found.sm_clock_top_mhz = max((mhz for mhz in clocks if mhz is not None), default=None)
    _count_energy(reads, found)
    limits = (device.max_sm_mhz, *(row[_CLOCK_LIMIT_AT] for row in reads))
    found.sm_clock_max_mhz = max((limit for limit in limits if limit is not None), default=None)
    return found


def _ring_clocks(windows: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """The highest clock of each window of the ring buffer, which sees more of them than the samples."""
    for columns in windows:
        for mhz in columns["highest"]:
            if mhz is not None and not invalid(FIELDS["sm_clock_mhz"], mhz):
                yield mhz


def _tile(checked: CheckedSpool, uuid: str, rows: Ints, span: tuple[int, int], found: DeviceFigures) -> None:
    begin, end = span
    fallback = [checked.from_at * 1000 - begin if checked.from_at is not None else 0]
    # One stretch per sample, and what is left after the last one, of which nothing is known.
    last_offset = rows[1][-1:].tolist() or fallback
    rows = np.concatenate([rows, np.array([[end], last_offset, *[[_NONE]] * len(_FIELDS)])], axis=1)
    edges = np.concatenate([[begin], np.minimum(rows[0], end)])
    length = np.diff(edges)
    holes = _before(checked.spool.gaps, uuid, span, edges)
    covered = length - np.diff(holes)
    covered[length > _longest_way_ms(checked)] = 0
    covered[-1] = 0
    _, offset, utilization, power, energy, clock, memory, _ = rows
    drawn = np.where(power >= 0, power, 0) * covered
    moved, found.energy_resets = _moved(rows[0], energy)
    pieces = _Pieces(edges[1:] + offset, length)
    parts = {
        "covered_ms": pieces.shared(covered),
        "gap_ms": pieces.shared(length) - pieces.shared(covered),
        "utilization_ms": pieces.shared(np.where(utilization >= 0, covered, 0)),
        "utilization_pct_ms": pieces.shared(np.where(utilization >= 0, utilization * covered, 0)),
    }
    tops = {
        "utilization_max_pct": utilization,
        "power_max_mw": power,
        "memory_used_max_bytes": memory,
        "sm_clock_top_mhz": clock,
    }
    energies = {
        SAMPLES: (pieces.shared(np.maximum(moved, 0)), moved >= 0),
        POWER: (pieces.shared(drawn), (power >= 0) & (covered > 0)),
    }
    if energies[POWER][1].any():
        found.power_mj = int(drawn.sum()) // 1000
    found.hours = {hour: Figures() for hour in pieces.hours}
    for place, into in (*enumerate(found.hours.values()), (None, found)):
        mine = slice(None) if place is None else pieces.of(place)
        for name, amounts in parts.items():
            setattr(into, name, int(amounts[mine].sum()))
        for name, values in tops.items():
            top = int(values[pieces.stretch[mine]].max(initial=_NONE))
            setattr(into, name, None if top == _NONE else top)
        for source, (amounts, known) in energies.items():
            if known[pieces.stretch[mine]].any():
                total = int(amounts[mine].sum())
                into.energy_mj, into.energy_from = total if source == SAMPLES else total // 1000, source
                break


def _longest_way_ms(checked: CheckedSpool) -> int:
    return max(_LONGEST_WAY_MS, _LONGEST_WAY_INTERVALS * (checked.interval_ms or 0))


def _before(gaps: Sequence[Gap], uuid: str, span: tuple[int, int], edges: Ints) -> Ints:
    """How much of the time before each of `edges` lies in a gap of this device, or of all."""
    begin, end = span
    union: list[list[int]] = []
    mine = (gap for gap in gaps if gap.uuid in (uuid, None))
    for gap in sorted(mine, key=lambda gap: gap.from_ns):
        first = max(begin, gap.from_ns // MS)
        last = end if gap.to_ns is None else min(end, -(-gap.to_ns // MS))
        if union and first <= union[-1][1]:
            union[-1][1] = max(union[-1][1], last)
        elif last > first:
            union.append([first, last])
    if not union:
        return np.zeros(len(edges), dtype=np.int64)
    bounds = np.array(union, dtype=np.int64)
    lengths = bounds[:, 1] - bounds[:, 0]
    place = np.searchsorted(bounds[:, 0], edges, side="right")
    whole = np.concatenate([[0], np.cumsum(lengths)])[place]
    over = np.where(place > 0, np.maximum(bounds[place - 1, 1] - edges, 0), 0)
    found: Ints = whole - over
    return found


def _moved(times: Ints, energy: Ints) -> tuple[Ints, int]:
    """Energy since the reading before, per sample; _NONE where there is none. And how often the counter began anew."""
    moved = np.full(energy.size, _NONE, dtype=np.int64)
    given = np.flatnonzero(energy >= 0)
    steps = np.diff(energy[given])
    anew = steps < -_GRAIN_MJ
    steps = np.where(anew, energy[given[1:]], np.maximum(steps, 0))
    possible = steps <= np.diff(times[given]) * _MOST_MJ_PER_MS + _GRAIN_MJ
    moved[given[1:]] = np.where(possible, steps, 0)
    return moved, int((anew | ~possible).sum())


def _count_energy(reads: Sequence[tuple[Any, ...]], found: DeviceFigures) -> None:
    """The counter's exact readings take the place of what the samples say."""
    values = sorted((row[_MONO_AT], row[_ENERGY_AT]) for row in reads if row[_ENERGY_AT] is not None)
    if not values:
        return
    found.energy_first_mj, found.energy_last_mj = values[0][1], values[-1][1]
    if len(values) > 1:
        found.energy_mj, found.energy_resets = 0, 0
        for (before, low), (at, high) in itertools.pairwise(values):
            step = high - low if high >= low else high
            possible = step <= (at - before) // MS * _MOST_MJ_PER_MS + _GRAIN_MJ
            found.energy_mj += step if possible else 0
            found.energy_resets += high < low or not possible
        found.energy_from = COUNTER


class _Pieces:
    """Stretches of time, cut where the hours of the wall clock begin, in the order of the hours."""

    def __init__(self, until: Ints, length: Ints) -> None:
        since = until - length
        first = since // _HOUR_MS
        count = np.where(length > 0, (until - 1) // _HOUR_MS - first + 1, 0)
        stretch = np.repeat(np.arange(until.size), count)
        hour = first[stretch] + np.arange(stretch.size) - np.repeat(np.cumsum(count) - count, count)
        order = np.argsort(hour, kind="stable")
        self.stretch: Ints = stretch[order]
        hour = hour[order]
        self._length = length
        self._from = np.maximum(since[self.stretch], hour * _HOUR_MS) - since[self.stretch]
        self._to = np.minimum(until[self.stretch], (hour + 1) * _HOUR_MS) - since[self.stretch]
        self._cut = np.flatnonzero(count[self.stretch] > 1).tolist()
        distinct, begins = np.unique(hour, return_index=True)
        if distinct.size > _MOST_HOURS:
            raise Damaged("its samples are of more hours than any part of a lease")
        self.hours: list[int] = (distinct * (_HOUR_MS // 1000)).tolist()
        self._begins = [*begins.tolist(), self.stretch.size]

    def of(self, place: int) -> slice:
        """The pieces of one hour."""
        return slice(self._begins[place], self._begins[place + 1])

    def shared(self, amounts: Ints) -> Ints:
        """Amounts of the stretches, spread evenly over their pieces; nothing is lost."""
        found: Ints = amounts[self.stretch]
        for piece in self._cut:
            stretch = self.stretch[piece]
            amount, length = int(amounts[stretch]), int(self._length[stretch])
            before = amount * int(self._from[piece]) // length
            found[piece] = amount * int(self._to[piece]) // length - before
        return found
