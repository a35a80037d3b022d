"""The one-sided envelope: held time x ceiling of every device a run could use, less what telemetry proves.

Exact by construction: at the rung `allocation` a run's bound is `held_s` (whole seconds) times its claim's operations
a second (an integer of any size), so that a verdict is one comparison of whole seconds. A lower rung takes whole
operations away from that (see `ladder`); every figure here has them taken away already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.claims import Claim, Claims, Device, Shape
from slurm_trace.analysis.clocks import Clocks
from slurm_trace.analysis.counting import count_accelerators
from slurm_trace.analysis.exact import Exact
from slurm_trace.analysis.ladder import (
    Cards,
    Ladder,
    Refused,
    Rung,
    Telemetry,
    ladder,
    measurable,
    not_lower,
)
from slurm_trace.analysis.measured import Kind, Stretch
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.release import NOTHING, WHY, Releases, releases
from slurm_trace.analysis.tracking import ALWAYS, Tracking
from slurm_trace.site.profile import SiteProfile

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

COUNTED = "counters of its driver"

_SECONDS_END = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the sum: `count` devices x `ceiling_flop_s` x `seconds`, or what a lower rung gives in its place.

    Attributes:
        gpu: Its UUID where leases tell, else what the record calls it.
        measured_flop: Operations by a rung below `allocation`.
    """

    node: str | None
    gpu: str | None
    kind: Literal["gpu", "cpu"]
    device: str
    count: int
    from_: int | None
    to: int | None
    seconds: int
    ceiling_flop_s: int
    source: str
    rung: Rung = "allocation"
    measured_flop: int | None = None

    @property
    def flop(self) -> int:
        """Operations in this term."""
        if self.measured_flop is not None:
            return self.measured_flop
        return self.count * self.ceiling_flop_s * self.seconds


@dataclass(frozen=True, slots=True)
class Envelope:
    """The bounds of a table of runs; row i of everything belongs to row i of `runs`.

    Attributes:
        runs: The runs, as loaded.
        release: When each of them let go.
        claims: The distinct claims.
        code: Index into `claims`.
        basis: What counts as an operation.
        ladder: What telemetry takes away; None at the rung `allocation`.
    """

    runs: pd.DataFrame
    release: Releases
    claims: tuple[Claim, ...]
    code: Ints
    basis: str
    ladder: Ladder | None = None

    def __len__(self) -> int:
        return len(self.code)

    def claim(self, i: int) -> Claim:
        """The claim of run i."""
        return self.claims[int(self.code[i])]

    @property
    def started(self) -> Bools:
        """Runs that may have held anything."""
        return self.runs["started"].to_numpy(dtype=bool)

    @property
    def bounded(self) -> Bools:
        """Runs that have a bound."""
        has = np.array([c.devices is not None for c in self.claims] or [False])
        return self.release.known & (has[self.code] | ~self.started)

    @property
    def strictly_bounded(self) -> Bools:
        """Runs that have a bound when nothing is granted that is not proven."""
        has = np.array([c.strict is not None for c in self.claims] or [False])
        return self.release.proven & (has[self.code] | ~self.started)

    def exact(self, rows: Ints, *, strict: bool = False) -> Exact:
        """The bounds of some runs as a column to compute with; 0 where there is none, so look there first."""
        rates = [(c.strict_flop_s if strict else c.total_flop_s) or 0 for c in self.claims]
        whole = Exact.products(np.maximum(self.release.held_s[rows], 0), rates, self.code[rows])
        saved = self._saved(strict=strict)
        return whole if saved is None else whole + saved.take(rows).negated()

    def _saved(self, *, strict: bool) -> Exact | None:
        """What telemetry takes away from every bound; None: nothing from any."""
        if self.ladder is None:
            return None
        return self.ladder.saved_strict if strict else self.ladder.saved

    def _saved_by(self, i: int, *, strict: bool = False) -> int:
        saved = self._saved(strict=strict)
        return 0 if saved is None else saved[i]

    def rung(self, i: int) -> Rung:
        """The lowest rung that the bound of run i makes use of: the one that it needs the most trust for."""
        return "allocation" if self.ladder is None else self.ladder.lowest(i)

    def coverage(self, i: int) -> float | None:
        """Share of the GPU seconds held by run i that have samples, rounded down; None without a lease that tells."""
        gpus: Any = self.runs["lease_gpus"].iat[i]
        covered_ms: Any = self.runs["lease_covered_ms"].iat[i]
        held_s = int(self.release.held_s[i])
        if pd.isna(gpus) or pd.isna(covered_ms) or int(gpus) < 1 or held_s < 1:
            return None
        count = max(int(gpus), self.claim(i).gpu_count or 0)
        return min(1.0, int(covered_ms) // count / (1000 * held_s))

    def refusals(self, i: int) -> list[str]:
        """Why the telemetry of run i does not lower its bound further: GPU seconds and the reason, the most first."""
        return [
            f"telemetry of {seconds} GPU seconds lowers nothing: {why.reason}"
            for seconds, why in self._refused(i)
        ]

    def larger_card(self, i: int) -> bool:
        """Whether a driver names a larger card than the record of run i stands for."""
        return any(why.larger for _, why in self._refused(i))

    def _refused(self, i: int) -> list[tuple[int, Refused]]:
        if self.ladder is None:
            return []
        own = measurable(self.claim(i))
        found = self.ladder.refused(i, own.ceiling_flop_s if own else None)
        return sorted(found, key=lambda one: -one[0])

    def bound_flop(self, i: int, kind: Literal["gpu", "cpu"] | None = None) -> int | None:
        """Most operations run i can have done; None if there is no bound."""
        if self.release.why[i] == NOTHING:
            return 0
        if not self.release.known[i]:
            return None
        claim = self.claim(i)
        rate = claim.total_flop_s if kind is None else (None if claim.devices is None else claim.flop_s(kind))
        saved = 0 if kind == "cpu" else self._saved_by(i)
        return None if rate is None else int(self.release.held_s[i]) * rate - saved

    def strict_flop(self, i: int) -> int | None:
        """The same when nothing is granted that is not proven; None if there is no bound then."""
        if self.release.why[i] == NOTHING:
            return 0
        rate = self.claim(i).strict_flop_s
        if rate is None or not self.release.proven[i]:
            return None
        return int(self.release.held_s[i]) * rate - self._saved_by(i, strict=True)

    def below(self, limit_flop: int, *, strict: bool = False) -> Bools:
        """Runs whose bound is less than the limit. False says nothing: the bound may be higher or missing."""
        longest = self._per_claim(
            lambda c: _longest_s(c.strict_flop_s if strict else c.total_flop_s, limit_flop), np.int64
        )
        known = self.release.proven if strict else self.release.known
        found: Bools = known & (self.release.held_s <= longest)
        if self.ladder is not None:
            measured = np.flatnonzero(known & self.ladder.lowered(strict=strict) & ~found)
            found[measured] = self.exact(measured, strict=strict).below(Exact.of([max(limit_flop, 0)]))
        return found

    def magnitude(self, rows: Ints | None = None) -> npt.NDArray[np.float64]:
        """The bounds (of some runs) as floats, for ordering and pictures; infinite where there is none."""
        chosen = slice(None) if rows is None else rows
        rates = [float("inf") if c.total_flop_s is None else float(c.total_flop_s) for c in self.claims]
        rate = np.array(rates or [0.0])[self.code[chosen]]
        held, bounded = self.release.held_s[chosen], self.bounded[chosen]
        found: npt.NDArray[np.float64] = np.where(bounded, 0.0, np.inf)
        np.multiply(rate, held, out=found, where=bounded & (held > 0))
        if self.ladder is not None:
            lowered = np.flatnonzero(self.ladder.lowered()[chosen] & bounded)
            at = lowered if rows is None else rows[lowered]
            found[lowered] = self.exact(at).floats()
        return found

    def usage_s(self, since: int | Ints | None, until: int | Ints | None) -> Ints:
        """Seconds that each run ran in [since, until), so that months add up to their year; -1 where not given.

        A run without a start counts whole.
        """
        start, run_s = self.runs["start"], self.release.run_s
        begin = start.fillna(0).to_numpy(dtype=np.int64)
        first = begin if since is None else np.maximum(begin, since)
        last = begin + run_s if until is None else np.minimum(begin + run_s, until)
        clipped: Ints = np.where(start.notna() & (run_s >= 0), np.maximum(last - first, 0), run_s)
        return clipped

    def terms(self, i: int, *, strict: bool = False, stretches: Sequence[Stretch] = ()) -> Iterator[Term]:
        """The parts whose sum is the bound of run i (nothing, if it has no bound).

        Args:
            i: Position of the run.
            strict: Of the bound when nothing is granted that is not proven.
            stretches: What telemetry proves of it, stretch by stretch; needed where it lowers the bound.
        """
        claim = self.claim(i)
        devices = claim.strict if strict else claim.devices
        known = self.release.proven[i] if strict else self.release.known[i]
        if devices is None or not known or self.release.why[i] == NOTHING:
            return
        measured = measurable(claim, strict=strict) if self._saved_by(i, strict=strict) else None
        for device in devices:
            if self.ladder is not None and device is measured:
                used = self.ladder.used(i, strict=strict)
                yield from self._measured(i, device, stretches, used, self.ladder.cards)
            else:
                for first, last, why in self._times(i):
                    yield self._term(i, device, first, last, f"{device.source}; {why}")

    def _times(self, i: int) -> list[tuple[int, int, str]]:
        """Seconds from the start for which the run was held by its record, and those that were added."""
        recorded, held = int(self.release.recorded_s[i]), int(self.release.held_s[i])
        times = [(0, recorded, WHY[0] if held > recorded else WHY[self.release.why[i]])]
        if held > recorded:
            times.append((recorded, held, WHY[self.release.why[i]]))
        return times

    def _term(
        self, i: int, device: Device, first: int, last: int, source: str, count: int | None = None
    ) -> Term:
        start: Any = self.runs["start"].iat[i]
        begin = None if pd.isna(start) else int(start)
        return Term(
            node=device.node,
            gpu=device.label or (device.device if device.kind == "gpu" else None),
            kind=device.kind,
            device=device.device,
            count=device.count if count is None else count,
            from_=None if begin is None else begin + first,
            to=None if begin is None else begin + last,
            seconds=last - first,
            ceiling_flop_s=device.ceiling_flop_s,
            source=source,
        )

    def _measured(
        self, i: int, device: Device, stretches: Sequence[Stretch], used: set[Kind], cards: Cards
    ) -> Iterator[Term]:
        """Each GPU of the leases from the start to the release: what is proven, and `allocation` in between."""
        at: Any = self.runs["start"].iat[i]
        start, held = int(at), int(self.release.held_s[i])
        by_gpu: dict[tuple[str, str], list[Stretch]] = {}
        for one in stretches:
            by_gpu.setdefault((one.node, one.uuid), []).append(one)
        for (node, uuid), mine in by_gpu.items():
            reached, gap = 0, "before its counters were read"
            for one in mine:
                first, last = one.from_s - start, one.to_s - start
                if first > reached:
                    yield self._of_gpu(i, device, node, uuid, reached, first, gap)
                price = cards.price(one.kind, device.ceiling_flop_s)
                if isinstance(price, Refused):
                    yield self._of_gpu(i, device, node, uuid, first, last, price.reason)
                elif one.kind not in used:
                    yield self._of_gpu(i, device, node, uuid, first, last, not_lower(one.kind))
                else:
                    flop = price.flop(one)
                    term = self._of_gpu(i, device, node, uuid, first, last, one.kind.reason or COUNTED)
                    a_second = -(-flop // (last - first))
                    yield replace(term, rung=price.rung, measured_flop=flop, ceiling_flop_s=a_second)
                reached, gap = last, "its counters were not read"
            if held > reached:
                yield self._of_gpu(i, device, node, uuid, reached, held, "after its counters were last read")
        if device.count > len(by_gpu):
            count = device.count - len(by_gpu)
            yield self._term(i, device, 0, held, f"{device.source}; nothing was read of it", count)

    def _of_gpu(self, i: int, device: Device, node: str, uuid: str, first: int, last: int, why: str) -> Term:
        term = self._term(i, device, first, last, f"{device.source}; {why}", 1)
        return replace(term, node=node, gpu=uuid)

    def _per_claim(self, value: Callable[[Claim], float], dtype: type) -> npt.NDArray[Any]:
        table: npt.NDArray[Any] = np.array([value(c) for c in self.claims] or [0], dtype=dtype)
        return table[self.code]


def _longest_s(flop_s: int | None, limit_flop: int) -> int:
    """Most whole seconds at this rate that stay below the limit; -1 if none do."""
    if flop_s is None or limit_flop <= 0:
        return -1
    return _SECONDS_END if flop_s == 0 else min(_SECONDS_END, (limit_flop - 1) // flop_s)


def envelope(
    runs: pd.DataFrame,
    allocations: Mapping[int, tuple[str | None, str | None]],
    *,
    rates: Rates,
    site: SiteProfile,
    events: Sequence[Event] = (),
    as_of: int,
    basis: str,
    trust: Rung = "allocation",
    telemetry: Telemetry | None = None,
    clocks: Clocks | None = None,
) -> Envelope:
    """Bound every run.

    Args:
        runs: One row a run (see the store's `load_runs`), positions counted from 0.
        allocations: AllocTRES and AllocGRES by the codes in `runs["allocation"]`.
        rates: The registry of device rates.
        site: The site profile.
        events: Node and TRES events.
        as_of: Epoch up to which the records speak.
        basis: What counts as an operation (`rates.BASES`).
        trust: The lowest rung to go down to.
        telemetry: What the nodes' counters prove; needed below `allocation`.
        clocks: The clocks that were read of cards; None: no more than the registry has. The highest one that was read
            on a run's own GPUs is in its column `lease_clock_mhz`, if there is one.
    """
    release = releases(runs, site, events, as_of)
    tracking = Tracking(site, events, _first_gpu_start(runs, allocations, rates), rates.inert_gres)
    clocks = Clocks(rates, basis) if clocks is None else clocks
    book = Claims(rates, site, tracking, basis, clocks)
    clock_mhz = _own_clocks(runs, clocks)
    since = runs["start"].fillna(0).to_numpy(dtype=np.int64)
    until = np.where(release.known, since + release.held_s, as_of)
    until = np.where(runs["start"].notna(), np.maximum(until, since + 1), ALWAYS)
    code, firsts = _distinct(runs, book, since, until, clock_mhz)
    table: dict[str, pd.Series[Any]] = {
        name: runs[name]
        for name in ("cluster", "allocation", "node_count", "cpu_count", "node_list", "lease_gpus")
    }
    claims = tuple(
        book.claim(
            replace(
                _shape(table, allocations, int(i), int(since[i]), int(until[i])), clock_mhz=int(clock_mhz[i])
            )
        )
        for i in firsts
    )
    none = np.array([c.gpu_count == 0 for c in claims] or [False])[code]
    release = release.without_gpus(none)
    rungs = None
    if telemetry is not None and trust != "allocation":
        cards = Cards(rates, basis, trust, clocks)
        rungs = ladder(telemetry, runs, release.held_s, claims, code, release.known, cards)
    return Envelope(runs, release, claims, code, basis, rungs)


def _shape(
    table: Mapping[str, pd.Series],
    allocations: Mapping[int, tuple[str | None, str | None]],
    i: int,
    since: int,
    until: int,
) -> Shape:
    allocation: Any = table["allocation"].iat[i]
    alloc_tres, alloc_gres = (None, None) if pd.isna(allocation) else allocations[int(allocation)]
    node_list = table["node_list"].iat[i]
    nodes: Any = table["node_count"].iat[i]
    cpus: Any = table["cpu_count"].iat[i]
    seen: Any = table["lease_gpus"].iat[i]
    return Shape(
        cluster=str(table["cluster"].iat[i]),
        alloc_tres=alloc_tres,
        alloc_gres=alloc_gres,
        nodes=None if pd.isna(nodes) else int(nodes),
        cpus=None if pd.isna(cpus) else int(cpus),
        node_list=node_list if isinstance(node_list, str) else None,
        since=since,
        until=until,
        gpus_seen=0 if pd.isna(seen) else int(seen),
    )


def _own_clocks(runs: pd.DataFrame, clocks: Clocks) -> Ints:
    """The highest clock read on each run's own GPUs, 0 where it can raise nothing: few differ then."""
    if "lease_clock_mhz" not in runs:
        return np.zeros(len(runs), dtype=np.int64)
    read = runs["lease_clock_mhz"].fillna(0).to_numpy(dtype=np.int64)
    found: Ints = np.where(read > clocks.lowest_mhz(), read, 0)
    return found


def _distinct(
    runs: pd.DataFrame, book: Claims, since: Ints, until: Ints, clock_mhz: Ints
) -> tuple[Ints, Ints]:
    """A code for each run, equal where the claim must be equal, and the first run of each code."""
    clusters = runs["cluster"].astype("category")
    flags = runs["flags"].astype("category")
    doubtful = np.array(["nodes_disagree" in str(f).split() for f in flags.cat.categories] or [False])
    by_nodes = np.array([book.needs_nodes(str(c)) for c in clusters.cat.categories] or [False])
    node_count = runs["node_count"]
    # Without an inventory only the number of nodes matters, and the list only where it may say otherwise.
    listed = by_nodes[clusters.cat.codes] | doubtful[flags.cat.codes] | node_count.isna().to_numpy()
    moments = np.array(book.boundaries(), dtype=np.int64)
    parts = [
        clusters.cat.codes.to_numpy(dtype=np.int64),
        runs["allocation"].fillna(-1).to_numpy(dtype=np.int64),
        node_count.fillna(-1).to_numpy(dtype=np.int64),
        runs["cpu_count"].fillna(-1).to_numpy(dtype=np.int64),
        runs["lease_gpus"].fillna(0).to_numpy(dtype=np.int64),
        clock_mhz,
        np.where(listed, runs["node_list"].astype("category").cat.codes.to_numpy(dtype=np.int64) + 1, 0),
        *(np.searchsorted(moments, t, side) for t in (since, until) for side in ("left", "right")),
    ]
    key = np.zeros(len(runs), dtype=np.int64)
    for part in parts:
        dense = pd.factorize(part)[0].astype(np.int64)
        key = pd.factorize(key * (dense.max(initial=0) + 1) + dense)[0].astype(np.int64)
    firsts = np.unique(key, return_index=True)[1]
    return key, firsts


def _first_gpu_start(
    runs: pd.DataFrame, allocations: Mapping[int, tuple[str | None, str | None]], rates: Rates
) -> dict[str, int]:
    """By cluster, the earliest start of a run whose record names a GPU."""
    with_gpu = [
        code
        for code, (tres, gres) in allocations.items()
        if any(n.gres == "gpu" for n in count_accelerators(tres, gres, 1, rates.inert_gres).named)
    ]
    chosen = runs.loc[runs["allocation"].isin(with_gpu) & runs["start"].notna(), ["cluster", "start"]]
    return {str(c): int(s) for c, s in chosen.groupby("cluster", observed=True)["start"].min().items()}
