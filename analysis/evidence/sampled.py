"""Readings that need raw samples: how things change within seconds, and how the GPUs move beside one another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from slurm_trace.analysis.evidence.inputs import Device, Floats, Ints, Run, Series
from slurm_trace.analysis.evidence.nothing import NoReading

GIB = 2**30

RAMP_MS = 30_000
"""The published detection work looks at the first 30 s."""

BEGINNING_MS = 600_000
"""How long after the lease opened the first allocation is looked for: imports and staging come before it."""

_LEAST_SAMPLES = 30
_HOLE = 3
"""Samples further apart than so many usual intervals are no neighbours."""
_RISE_BYTES = 256 * 2**20
"""More than a context takes on some cards, less than any model."""
_LEAST_IN_RAMP = 3
_TOP_PCT = 98


def utilisation_jitter_pp(run: Run) -> float:
    """Mean absolute difference of neighbouring samples of utilisation, in percentage points."""
    steps = []
    for series, values in _all(run, "utilization_pct"):
        apart = np.diff(series.time_ms)
        steps.append(np.abs(np.diff(values))[apart <= _HOLE * np.median(apart)])
    return float(np.mean(_enough(np.concatenate(steps))))


def memory_ramp_gib(run: Run) -> float:
    """Memory that was taken in the 30 s after the first allocation; the median GPU's, in GiB."""
    return float(np.median([_ramp_bytes(device.begin_ms, series) for device, series in _sampled(run)])) / GIB


def memory_plateau_pct(run: Run) -> float:
    """Samples within 2 % of the most memory that their GPU used, in percent."""
    found = [values for _, values in _all(run, "memory_used_bytes")]
    if max(values.max() for values in found) < _RISE_BYTES:
        raise NoReading("hardly any memory was used")
    near = [values * 100 >= values.max() * _TOP_PCT for values in found]
    return 100 * float(np.mean(np.concatenate(near)))


def memory_busy_pct_of_utilisation(run: Run) -> float:
    """Time with device memory busy in percent of the time with a kernel resident."""
    busy = utilisation = 0.0
    for _, series in _sampled(run):
        pair = [series.fields[name] for name in ("memory_utilization_pct", "utilization_pct")]
        both = ~np.isnan(pair[0]) & ~np.isnan(pair[1])
        busy += float(pair[0][both].sum())
        utilisation += float(pair[1][both].sum())
        if both.sum() < _LEAST_SAMPLES:
            raise NoReading("too few samples of memory utilisation")
    if not utilisation:
        raise NoReading("no utilisation in its samples")
    return 100 * busy / utilisation


def process_count(run: Run) -> float:
    """Compute processes on a GPU; the median over samples and GPUs."""
    return float(np.median(_enough(np.concatenate([values for _, values in _all(run, "process_count")]))))


def pcie_mb_s(run: Run) -> float:
    """Mean PCIe traffic of a GPU, both ways, in MB/s."""
    means = []
    for _, series in _sampled(run):
        total = series.fields["pcie_tx_kb_s"] + series.fields["pcie_rx_kb_s"]
        means.append(np.mean(_enough(total[~np.isnan(total)])))
    return float(np.mean(means)) / 1000


def synchrony(run: Run) -> float:
    """Mean correlation of the power of two GPUs of one node, sample by sample; -1 to 1."""
    by_node: dict[str, list[tuple[Ints, Floats]]] = {}
    for device, series in _sampled(run):
        by_node.setdefault(device.node, []).append(_by_second(series))
    found = [
        correlation
        for mates in by_node.values()
        for one, other in combinations(mates, 2)
        if (correlation := _correlation(one, other)) is not None
    ]
    if not found:
        raise NoReading("no two GPUs of a node whose power changes and was sampled together")
    return float(np.mean(found))


def _correlation(one: tuple[Ints, Floats], other: tuple[Ints, Floats]) -> float | None:
    _, at, of = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    a, b = one[1][at], other[1][of]
    if a.size < _LEAST_SAMPLES or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _by_second(series: Series) -> tuple[Ints, Floats]:
    """The first power of each second: a sampler reads its GPUs one after the other."""
    power = series.fields["power_mw"]
    known = ~np.isnan(power)
    seconds, first = np.unique(series.time_ms[known] // 1000, return_index=True)
    return seconds, power[known][first]


def _ramp_bytes(begin_ms: int | None, series: Series) -> float:
    if begin_ms is None:
        raise NoReading("the beginning of its lease is missing")
    used = series.fields["memory_used_bytes"]
    known = ~np.isnan(used) & (series.time_ms <= begin_ms + BEGINNING_MS)
    times, used = series.time_ms[known], used[known]
    if times.size < _LEAST_IN_RAMP or times[0] > begin_ms + RAMP_MS:
        raise NoReading("no raw samples of memory from the beginning")
    # A little that is used from the first sample on is not this run's; much of it is, and was missed rising.
    base = used[0] if used[0] < GIB else 0.0
    risen = np.flatnonzero(used > base + _RISE_BYTES)
    if not risen.size:
        return 0.0
    since = times[risen[0]]
    within = (times >= since) & (times <= since + RAMP_MS)
    if within.sum() < _LEAST_IN_RAMP:
        raise NoReading("sampled too rarely to see memory rise")
    return float(used[within].max() - base)


def _sampled(run: Run) -> list[tuple[Device, Series]]:
    """The GPUs of which there are raw samples: of a large run not every node's are read."""
    found = [(device, device.series) for device in run.devices if device.series is not None]
    if not found:
        raise NoReading("no raw samples are left")
    return found


def _all(run: Run, name: str) -> Iterator[tuple[Series, Floats]]:
    """The samples of every GPU that have a value of a field, and these."""
    for _, series in _sampled(run):
        known = ~np.isnan(series.fields[name])
        if known.sum() < _LEAST_SAMPLES:
            raise NoReading(f"of some GPU fewer than {_LEAST_SAMPLES} samples of {name}")
        yield Series(series.time_ms[known], {}), series.fields[name][known]


def _enough(values: Floats) -> Floats:
    if values.size < _LEAST_SAMPLES:
        raise NoReading(f"fewer than {_LEAST_SAMPLES} samples")
    return values
