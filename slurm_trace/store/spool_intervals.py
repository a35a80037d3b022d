"""What a file's samples say of the time between counter reads, and where the driver's ring buffer tiles time.

Counters are cumulative, so only their ends matter; the samples between are the second witness. Kept beside the
counters, since raw samples are pruned.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slurm_trace.node.spool import MS

Ints = npt.NDArray[np.int64]

_NONE = -1
_FULL_PCT = 100


@dataclass(frozen=True, slots=True)
class Interval:
    """The time from one counter read of a device to the next, or to the begin or the end of the file.

    Attributes:
        from_ns: Begin of the earlier read.
        to_ns: End of the later one.
        sampled_ms: Time between two samples that both have a clock, without a gap.
        clock_mhz_ms: Over that time, the larger clock of the two samples x milliseconds.
    """

    from_ns: int
    to_ns: int
    sampled_ms: int
    clock_mhz_ms: int
    utilization_max_pct: int | None
    power_max_mw: int | None
    process_max: int | None


@dataclass(frozen=True, slots=True)
class Busy:
    """A stretch that windows of the ring buffer tile without a hole; `busy_ms` is the most it can have been busy."""

    from_ms: int
    to_ms: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of one device in the order of time; -1 is no value. `holes` is true where the way to a sample has one."""

    times: Ints
    clock: Ints
    utilization: Ints
    power: Ints
    processes: Ints
    holes: npt.NDArray[np.bool_]


def intervals_of(samples: Sampled, reads: Sequence[tuple[int, int]], span: tuple[int, int]) -> list[Interval]:
    """Cut a file's time at its counter reads.

    Args:
        samples: Of the device.
        reads: Per read its begin and how long it took, in nanoseconds.
        span: Begin and end of the file, in nanoseconds.
    """
    begin, end = span
    edges = [(begin, begin), *sorted((at, at + took) for at, took in reads), (end, end)]
    times = samples.times
    known = np.minimum(samples.clock[:-1], samples.clock[1:]) >= 0
    length = np.where(known & ~samples.holes[1:], np.diff(times), 0)
    highest = np.maximum(samples.clock[:-1], samples.clock[1:])
    found = []
    for (first, _), (_, last) in itertools.pairwise(edges):
        if last <= first:
            continue
        low, high = first // MS, -(-last // MS)
        inside = np.clip(np.minimum(times[1:], high) - np.maximum(times[:-1], low), 0, length)
        seen = slice(int(np.searchsorted(times, low)), int(np.searchsorted(times, high, side="right")))
        found.append(
            Interval(
                first,
                last,
                int(inside.sum()),
                int((inside * highest).sum()),
                *(_top(v[seen]) for v in (samples.utilization, samples.power, samples.processes)),
            )
        )
    return found


def _top(values: Ints) -> int | None:
    top = int(values.max(initial=_NONE))
    return None if top == _NONE else top


def busy_of(windows: Sequence[Mapping[str, Any]], span_ms: tuple[int, int]) -> list[Busy]:
    """Windows of the ring buffer of utilisation, joined where they meet; (u + 1) % of each counts.

    Args:
        windows: Columns `from_ms`, `to_ms` and `value_ms` (percent x milliseconds) of each chunk.
        span_ms: Begin and end of the file; windows that pass them are left out.
    """
    rows = sorted(
        (first, last, value)
        for columns in windows
        for first, last, value in zip(*(columns[n] for n in ("from_ms", "to_ms", "value_ms")), strict=True)
        if None not in (first, last, value) and span_ms[0] <= first < last <= span_ms[1] and value >= 0
    )
    found: list[Busy] = []
    for first, last, value in rows:
        busy = min(last - first, -(-(value + last - first) // _FULL_PCT))
        before = found[-1] if found else None
        if before is None or first > before.to_ms:
            found.append(Busy(first, last, busy))
        elif first == before.to_ms:
            found[-1] = Busy(before.from_ms, last, before.busy_ms + busy)
    return found
