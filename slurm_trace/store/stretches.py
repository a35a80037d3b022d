"""What the counters of one GPU prove of one run, stretch by stretch. No rates: cycles, seconds, and why not more.

GPM counters are cumulative, so two reads tell what lay between them, whoever was there to look. They are believed
only as far as a second witness goes along:

- *All of the time was counted.* Elapsed cycles are held against the sampled clock (the larger of two neighbours; the
  highest clock where there are no samples). What the clock allows and the counter does not show is *unseen*, and
  counts whole in every pipe: a counter that stood still, or began anew unnoticed, lowers nothing.
- *What is counted.* Whether cycles are a mean over the SMs or their sum follows from elapsed cycles against the clock,
  where most of the time has samples. All figures here are of one SM.
- *Idle is idle.* Counters that read 0 at full load are a known fault (github.com/NVIDIA/DCGM/issues/303), so energy,
  power, utilisation or, of a MIG instance, processes have to bear them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slurm_trace.node.fields import COUNTER_NAMES

S, MS = 10**9, 10**6

Rung = Literal["cycles_elapsed", "cycles_active", "pipe_cycles", "busy"]

ELAPSED, ACTIVE, MMA = "gpm_sm_cycles_elapsed", "gpm_sm_cycles_active", "gpm_mma_cycles_active"
DMMA = "gpm_dmma_cycles_active"
OTHER_MMA = ("gpm_hmma_cycles_active", "gpm_imma_cycles_active", "gpm_dfma_cycles_active")
INTEGER = "gpm_integer_cycles_active"
FLOATS = ("gpm_fp64_cycles_active", "gpm_fp32_cycles_active", "gpm_fp16_cycles_active")
PIPES = (MMA, DMMA, *OTHER_MMA, INTEGER, *FLOATS)
ENERGY = "energy_mj"

_OVER_PCT = 1
"""Reads are not of one moment: elapsed cycles may pass the highest clock by this much."""
_LOADED = 3
"""A card that draws more than a third of its power limit is at work: idle ones, contexts and all, stay below."""
_LITTLE = 10
"""A card at work that is said to have been active for less than a tenth of the time is not believed."""

NO_COUNTER = "its driver gives no cycle counters there"
WENT_BACK = "a counter went back: the card or the driver began anew"
OTHER_DRIVER = "the driver is another one"
NO_CLOCK = "its highest clock is not known"
NO_SMS = "how many SMs it has is not known"
NOT_NORMAL = "its elapsed cycles fit neither one SM nor the sum of all at the clock that was seen"
TOO_MANY = "it counted more cycles than its highest clock allows, or than went by"
NO_WITNESS = "neither energy, power nor utilisation was read that could bear the counters out"
NOT_IDLE = "its counters stood still while it drew power or was in use"
NOT_SLOW = "its counters say that it hardly worked, and it drew the power of a card at work"
NO_ACTIVE = "no active cycles were read, so all elapsed ones count"
NO_PIPES = "not every pipe was read, or none moved, so all active cycles count"
NO_HOLE = "the driver's ring buffer has no hole there"


@dataclass(frozen=True, slots=True)
class Read:
    """One read of the counters; `values` in the order of COUNTER_NAMES."""

    mono_ns: int
    took_ns: int
    driver: str | None
    values: tuple[int | None, ...]

    def __getitem__(self, name: str) -> int | None:
        return self.values[COUNTER_NAMES.index(name)]

    @property
    def done_ns(self) -> int:
        """When it was over."""
        return self.mono_ns + self.took_ns


@dataclass(frozen=True, slots=True)
class Witness:
    """What samples say of a stretch, see `spool_intervals.Interval`."""

    from_ns: int
    to_ns: int
    sampled_ms: int
    clock_mhz_ms: int
    utilization_max_pct: int | None
    power_max_mw: int | None
    process_max: int | None


@dataclass(frozen=True, slots=True)
class Kind:
    """What stretches have in common that is turned into operations alike. Rung None: not proven."""

    name: str | None
    mig_profile: str | None
    sm_count: int | None
    clock_max_mhz: int | None
    rung: Rung | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Cycles:
    """Cycles of one SM in thousands, rounded up; each at most `elapsed`."""

    elapsed: int = 0
    active: int = 0
    tensor: int = 0
    dmma: int = 0
    vector: int = 0
    vector_fp: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one GPU, in whole epoch seconds of the node's clock; what is cut off is not proven.

    Attributes:
        kind: The card, the lowest rung that is proven, and why it is not a lower one.
        cycles: At the rungs of cycles; a rung that is not proven repeats the one above it.
        busy_ms: At the rung `busy`.
    """

    node: str
    uuid: str
    from_s: int
    to_s: int
    kind: Kind
    cycles: Cycles = Cycles()
    busy_ms: int = 0

    @property
    def seconds(self) -> int:
        """Its length."""
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True)
class Trail:
    """All that was read of one GPU for one run in one boot, in the order of time.

    Attributes:
        wall_ns: Wall clock minus CLOCK_BOOTTIME when the first of it was read.
        busy: Begin, end and busy milliseconds of what the ring buffer tiles.
    """

    node: str
    uuid: str
    name: str | None
    mig_profile: str | None
    sm_count: int | None
    clock_max_mhz: int | None
    power_limit_mw: int | None
    wall_ns: int
    reads: tuple[Read, ...]
    witnesses: tuple[Witness, ...]
    busy: tuple[tuple[int, int, int], ...]

    def kind(self, rung: Rung | None, reason: str | None) -> Kind:
        """The kind of one of its stretches."""
        return Kind(self.name, self.mig_profile, self.sm_count, self.clock_max_mhz, rung, reason)


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch before it is cut to whole seconds; `joined`: no time is between it and the one before."""

    from_ns: int
    to_ns: int
    joined: bool
    kind: Kind
    cycles: Cycles = Cycles()
    busy_ms: int = 0


def stretches(trail: Trail, since_s: int, until_s: int) -> list[Stretch]:
    """What a trail proves within [since_s, until_s), in the order of time; stretches never overlap."""
    counted = list(_by_counters(trail))
    spans = [span for span in counted if span.kind.rung is not None]
    spans += _by_ring(trail, spans)
    spans += [piece for span in counted if span.kind.rung is None for piece in _beside(span, spans)]
    found = []
    for span in sorted(spans, key=lambda span: span.from_ns):
        first, last = span.from_ns + trail.wall_ns, span.to_ns + trail.wall_ns
        # Where two meet both are rounded down, so that nothing is lost nor counted twice.
        begin = max(since_s, first // S if span.joined else -(-first // S))
        end = min(until_s, last // S)
        if end > begin:
            found.append(Stretch(trail.node, trail.uuid, begin, end, span.kind, span.cycles, span.busy_ms))
    return found


def _by_counters(trail: Trail) -> Iterator[_Span]:
    pairs = list(zip(trail.reads, trail.reads[1:], strict=False))
    moves = [_Move(trail, one, other) for one, other in pairs]
    scales = {move.scale for move in moves if move.scale is not None}
    scale = scales.pop() if len(scales) == 1 else None
    joined = False
    for (one, other), move in zip(pairs, moves, strict=True):
        kind, cycles = move.judged(scale)
        proven = kind.rung is not None
        joined = joined and proven
        # Of a stretch that stands alone the read that it begins with is no part.
        yield _Span(one.mono_ns if joined else one.done_ns, other.mono_ns, joined, kind, cycles)
        joined = proven


class _Move:
    """How the counters moved from one read to the next, and what the samples say of that time."""

    def __init__(self, trail: Trail, one: Read, other: Read) -> None:
        self._trail = trail
        self._moved: dict[str, int | None] = {}
        for name in (ELAPSED, ACTIVE, *PIPES, ENERGY):
            low, high = one[name], other[name]
            self._moved[name] = None if low is None or high is None else high - low
        self._same_driver = one.driver == other.driver and one.driver is not None
        self._length_ms = -(-(other.done_ns - one.mono_ns) // MS)
        self._witnesses = [
            w for w in trail.witnesses if w.from_ns >= one.mono_ns and w.to_ns <= other.done_ns
        ]
        sampled = sum(w.sampled_ms for w in self._witnesses)
        clock = sum(w.clock_mhz_ms for w in self._witnesses)
        if sum(w.to_ns - w.from_ns for w in self._witnesses) > (self._length_ms + 1) * MS * 101 // 100:
            sampled = clock = 0  # two leases tell of the same time
        self._sampled_ms = min(sampled, self._length_ms)
        highest = trail.clock_max_mhz or 0
        # MHz x ms = thousands of cycles
        self._clock_kcycles = clock + (self._length_ms - self._sampled_ms) * highest
        self._most_kcycles = self._length_ms * highest * (100 + _OVER_PCT) // 100 + 1
        self.scale = self._scale()

    def _scale(self) -> int | None:
        """By how much elapsed cycles are more than those of one SM; None if this stretch does not tell."""
        moved = self._moved[ELAPSED]
        if moved is None or moved < 0 or 2 * self._sampled_ms < self._length_ms or not self._clock_kcycles:
            return None
        for scale in (1, self._trail.sm_count or 0):
            if self._clock_kcycles * scale < 2 * moved // 1000 <= 2 * self._most_kcycles * scale:
                return scale
        return None

    def judged(self, scale: int | None) -> tuple[Kind, Cycles]:
        """The lowest rung that is proven, with its cycles."""
        reason = self._fault(scale)
        if reason is not None or scale is None:
            return self._trail.kind(None, reason or self._no_scale()), Cycles()
        elapsed = max(self._clock_kcycles, self._up(ELAPSED, scale))
        unseen = elapsed - (self._moved[ELAPSED] or 0) // (1000 * scale)
        whole = Cycles(elapsed, elapsed, elapsed, 0, elapsed, elapsed)
        if self._moved[ACTIVE] is None:
            return self._trail.kind("cycles_elapsed", NO_ACTIVE), whole
        active = min(elapsed, self._up(ACTIVE, scale) + unseen)
        reason = self._contradicted(active, elapsed)
        if reason is not None:
            return self._trail.kind("cycles_elapsed", reason), whole
        of_active = Cycles(elapsed, active, active, 0, active, active)
        return self._by_pipes(scale, of_active, unseen)

    def _by_pipes(self, scale: int, found: Cycles, unseen: int) -> tuple[Kind, Cycles]:
        moved = [self._moved[name] for name in PIPES]
        if None in moved or (not any(moved) and self._moved[ACTIVE]):
            return self._trail.kind("cycles_active", NO_PIPES), found
        only_dmma = not any(self._moved[name] for name in OTHER_MMA)
        only_dmma = only_dmma and (self._moved[MMA] or 0) <= (self._moved[DMMA] or 0)
        kinds = sum(self._up(name, scale) for name in (DMMA, *OTHER_MMA))
        tensor = max(self._up(MMA, scale), kinds)
        floats = sum(self._up(name, scale) for name in FLOATS) + unseen
        fast = unseen if only_dmma else min(found.active, tensor + unseen)
        cycles = replace(
            found,
            tensor=fast,
            dmma=min(found.active - fast, self._up(DMMA, scale)) if only_dmma else 0,
            vector=min(found.active, floats + self._up(INTEGER, scale)),
            vector_fp=min(found.active, floats),
        )
        if self._loaded() and self._half_dead(cycles):
            return self._trail.kind("cycles_active", NOT_SLOW), found
        return self._trail.kind("pipe_cycles", None), cycles

    def _half_dead(self, cycles: Cycles) -> bool:
        """Too little for a card at work, or no matrix product at all, or nothing else: no witness bears that out."""
        still = not self._moved[MMA] or not any(self._moved[name] for name in (INTEGER, *FLOATS))
        return still or max(cycles.tensor + cycles.dmma, cycles.vector) * _LITTLE < cycles.elapsed

    def _fault(self, scale: int | None) -> str | None:
        known = [value for value in self._moved.values() if value is not None]
        if self._moved[ELAPSED] is None:
            return NO_COUNTER
        if min(known) < 0:
            return WENT_BACK
        if not self._same_driver:
            return OTHER_DRIVER
        if self._trail.clock_max_mhz is None:
            return NO_CLOCK
        if scale is not None:
            elapsed = self._moved[ELAPSED] or 0
            over = any((self._moved[name] or 0) > elapsed + scale for name in (ACTIVE, *PIPES))
            if over or elapsed > self._most_kcycles * 1000 * scale:
                return TOO_MANY
            if self._signals() is None:
                return NO_WITNESS
        return None

    def _no_scale(self) -> str:
        return NO_SMS if self._trail.sm_count is None else NOT_NORMAL

    def _up(self, name: str, scale: int) -> int:
        """Thousands of cycles of one SM, rounded up twice: the driver cuts its own figure off."""
        return -(-((self._moved[name] or 0) + 1) // (1000 * scale))

    def _signals(self) -> bool | None:
        """Whether anything but the counters says that it was in use; None if nothing was read that could."""
        used = [w.utilization_max_pct for w in self._witnesses]
        # A context proves no use, but of a MIG instance nothing else is known.
        if self._trail.mig_profile is not None:
            used += [w.process_max for w in self._witnesses]
        told = [value > 0 for value in used if value is not None]
        loaded = self._loaded()
        if loaded is not None:
            told.append(loaded)
        return any(told) if told else None

    def _loaded(self) -> bool | None:
        """It drew the power of a card at work, by its energy counter, else by its highest sample."""
        return _loaded(self._trail, self._moved[ENERGY], self._length_ms, self._witnesses)

    def _contradicted(self, active: int, elapsed: int) -> str | None:
        if not self._moved[ACTIVE] and self._signals():
            return NOT_IDLE
        if self._loaded() and active * _LITTLE < elapsed:
            return NOT_SLOW
        return None


def _loaded(trail: Trail, energy_mj: int | None, length_ms: int, witnesses: Sequence[Witness]) -> bool | None:
    power = max((w.power_max_mw for w in witnesses if w.power_max_mw is not None), default=None)
    limit = trail.power_limit_mw
    if limit is None:
        return None
    if energy_mj is not None and energy_mj >= 0 and length_ms > 0:
        return energy_mj * 1000 * _LOADED > limit * length_ms
    return None if power is None else power * _LOADED > limit


def _by_ring(trail: Trail, proven: Sequence[_Span]) -> Iterator[_Span]:
    """What the ring buffer tiles beside the stretches that cycles prove."""
    for first_ms, last_ms, busy_ms in trail.busy:
        reach = first_ms * MS
        for span in (*proven, None):
            until = last_ms * MS if span is None else min(last_ms * MS, span.from_ns)
            if until > reach:
                yield from _ring_span(trail, reach, until, busy_ms)
            if span is not None:
                reach = max(reach, span.to_ns)


def _beside(span: _Span, others: Sequence[_Span]) -> Iterator[_Span]:
    """What of a span lies beside others, which do not overlap each other."""
    reach = span.from_ns
    over = [one for one in others if one.from_ns < span.to_ns and one.to_ns > reach]
    for other in sorted(over, key=lambda one: one.from_ns):
        if other.from_ns > reach:
            yield replace(span, from_ns=reach, to_ns=other.from_ns)
        reach = other.to_ns
    if reach < span.to_ns:
        yield replace(span, from_ns=reach)


def _ring_span(trail: Trail, first: int, last: int, busy_ms: int) -> Iterator[_Span]:
    length_ms = -(-(last - first) // MS)
    busy_ms = min(busy_ms, length_ms)
    around = [w for w in trail.witnesses if w.from_ns < last and w.to_ns > first]
    inside = [r for r in trail.reads if first <= r.mono_ns and r.done_ns <= last and r[ENERGY] is not None]
    energy = span_ms = None
    if len(inside) > 1:
        energy = (inside[-1][ENERGY] or 0) - (inside[0][ENERGY] or 0)
        span_ms = (inside[-1].mono_ns - inside[0].mono_ns) // MS
    loaded = _loaded(trail, energy, span_ms or 0, around)
    if loaded is None or (loaded and busy_ms * _LITTLE < length_ms):
        return
    yield _Span(first, last, False, trail.kind("busy", NO_HOLE), busy_ms=busy_ms)
