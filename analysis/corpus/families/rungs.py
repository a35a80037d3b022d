"""Families about the rungs below `allocation`: what counters may take away from a bound, and when they may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from slurm_trace.analysis.corpus.anchors import UNTYPED, Anchors
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families.common import (
    EDGE_S,
    PERCENT,
    ended,
    held_at,
    limit_flop,
    span,
    tres,
    verdict_at,
    verdict_of,
)
from slurm_trace.analysis.corpus.site import Ask, Counted, Family, Measured, Run, Site
from slurm_trace.analysis.ladder import RUNGS, Rung

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
LABEL = "nvidia_h100_80gb_hbm3"
H100_MHZ = 1980
GPUS, CPUS, NODES = 64, 64, 8
CYCLES: tuple[Rung, ...] = RUNGS[1:4]
LOWER: tuple[Rung, ...] = RUNGS[1:]
TIMES_ALLOWED = (Fraction(3, 2), Fraction(3), Fraction(10))
"""Bound at the rung `allocation` over the limit: how much the counters have to take away."""

EDGE = (-1000, -1, 0, 1, 1000)
"""Units of the counter between the most that stays below the limit and what an instance has."""


def _run(draw: Draw, anchors: Anchors, ask: Ask, held_s: int, label: str = LABEL) -> Run:
    """A run with a lease on each of its GPUs."""
    core = CPUS * anchors.core(basis=ask.basis)
    gpus = GPUS * anchors.counted[H100][""][ask.basis]["flop_s"]
    run = ended(
        draw,
        anchors,
        draw.between(1, 10**6),
        held_s=held_s,
        flop_s=gpus + core,
        percent=draw.pick(PERCENT),
        node_count=NODES,
        cpu_count=CPUS,
        alloc_tres=tres(CPUS, NODES, GPUS, label),
        lease_gpus=GPUS,
        release_proven=True,
    )
    return replace(run, lease_end=span(run)[1])


def _lowered(anchors: Anchors, ask: Ask, times: Fraction) -> tuple[int, int, int]:
    """Seconds held so that `allocation` comes to `times` the limit, what the cores do in them, and the limit."""
    core_flop_s = CPUS * anchors.core(basis=ask.basis)
    flop_s = GPUS * anchors.counted[H100][""][ask.basis]["flop_s"] + core_flop_s
    limit = limit_flop(anchors, ask)
    held_s = int(times * limit / flop_s)
    return held_s, held_s * core_flop_s, limit


def _cycles(rung: Rung, amount: int, others: int) -> dict[str, int]:
    """Columns of the telemetry in which `amount` decides at this rung; what lies above it is never less."""
    if rung == "cycles_elapsed":
        return {"elapsed": amount, "active": amount, "tensor": amount}
    if rung == "cycles_active":
        return {"elapsed": 4 * amount, "active": amount, "tensor": amount}
    return {
        "elapsed": 8 * (amount + others),
        "active": 4 * (amount + others),
        "tensor": amount,
        "dmma": others,
        "vector": others,
        "vector_fp": others // 2,
    }


def _counted(rung: Rung, amount: int) -> dict[str, int]:
    """The column of this rung alone."""
    return {"busy_ms": amount} if rung == "busy" else _cycles(rung, amount, 0)


def _per(rates: Mapping[str, int], rung: Rung) -> int:
    """Operations of a thousand cycles, or of a millisecond, at this rung."""
    return {"busy": -(-rates["flop_s"] // 1000), "pipe_cycles": rates["tensor"]}.get(rung, rates["whole"])


def cycles_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Cycles of each kind, a thousand below or above what the limit allows; the trust decides which kind counts."""
    offset, rung, proven, basis, times = along(
        number, EDGE, CYCLES, (0, 1), ("max_any_op", "max_fp_sparse"), TIMES_ALLOWED
    )
    # The trust goes down to `rung`; what is proven may lie lower still.
    trusted = Ask(basis=basis, trust=rung)
    lowest = CYCLES[min(CYCLES.index(rung) + proven, len(CYCLES) - 1)]
    held_s, cores, limit = _lowered(anchors, trusted, times)
    rates = anchors.counted[H100][""][basis]
    others = draw.between(0, 10**6) if rung == "pipe_cycles" else 0
    vector = others if basis == "max_any_op" else others // 2
    beside = others * rates["dmma"] + vector * rates["vector"]
    per = _per(rates, rung)
    amount = (limit - 1 - cores - beside) // per + offset
    flop = amount * per + beside
    run = _run(draw, anchors, trusted, held_s)
    run = replace(run, true_flop=(cores + flop) * draw.pick(PERCENT) // 100)
    measured = Measured(
        run=0,
        kind=Counted(name=H100, clock_max_mhz=H100_MHZ, rung=lowest),
        seconds=held_s * GPUS,
        **_cycles(rung, amount, others),
    )
    return Site(
        varies={
            "rung": rung,
            "proven": lowest,
            "basis": basis,
            "times": str(times),
            "offset_kcycles": offset,
        },
        runs=(run,),
        ask=trusted,
        telemetry=(measured,),
        intended=verdict_at(offset),
    )


def busy_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Time with a kernel resident, a millisecond below or above what the limit allows; cycles tell of no such time."""
    offset, trust, times, proven = along(number, EDGE, RUNGS, TIMES_ALLOWED, ("busy", "pipe_cycles"))
    ask = Ask(trust=trust)
    held_s, cores, limit = _lowered(anchors, ask, times)
    rates = anchors.counted[H100][""]["max_any_op"]
    per = _per(rates, "busy")
    amount = (limit - 1 - cores) // per + offset
    lowers = proven == "busy" and trust == "busy"
    cycles = held_s * GPUS * H100_MHZ * 1000  # that went by all the time lower nothing
    flop = amount * per if lowers else held_s * GPUS * rates["flop_s"]
    run = _run(draw, anchors, ask, held_s)
    run = replace(run, true_flop=(cores + flop) * draw.pick(PERCENT) // 100)
    measured = Measured(
        run=0,
        kind=Counted(name=H100, clock_max_mhz=H100_MHZ, rung=proven),
        seconds=held_s * GPUS,
        busy_ms=amount,
        elapsed=cycles,
        active=cycles,
        tensor=cycles,
        dmma=cycles,
        vector=cycles,
        vector_fp=cycles,
    )
    return Site(
        varies={"trust": trust, "proven": proven, "times": str(times), "offset_ms": offset},
        runs=(run,),
        ask=ask,
        telemetry=(measured,),
        intended=verdict_at(offset if lowers else 1),
    )


def coverage_hole(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Counters that speak for a part of the time only: the rest counts at the rung `allocation`."""
    offset, share, rung = along(number, EDGE, (0, 1, 25, 50, 90, 99), LOWER)
    ask = Ask(trust=rung)
    held_s, cores, limit = _lowered(anchors, ask, Fraction(9, 8) if share > 10 else Fraction(1001, 1000))
    rates = anchors.counted[H100][""]["max_any_op"]
    seconds = held_s * GPUS * share // 100
    rest = (held_s * GPUS - seconds) * rates["flop_s"] + cores
    per = _per(rates, rung)
    amount = (limit - 1 - rest) // per + offset
    amount = max(amount, 0)  # where the hole alone reaches the limit, nothing that was counted can help
    counted = _counted(rung, amount)
    lowers = amount * per < seconds * rates["flop_s"]
    flop = rest + (amount * per if lowers else seconds * rates["flop_s"])
    run = _run(draw, anchors, ask, held_s)
    run = replace(run, true_flop=flop * draw.pick(PERCENT) // 100, lease_covered_ms=seconds * 1000)
    measured = Measured(
        run=0, kind=Counted(name=H100, clock_max_mhz=H100_MHZ, rung=rung), seconds=seconds, **counted
    )
    return Site(
        varies={"share": share, "rung": rung, "offset": offset},
        runs=(run,),
        ask=ask,
        telemetry=(measured,) if share else (),
        intended=verdict_of(flop, limit),
    )


NOT_PROVEN = (
    "a counter went back",
    "another boot",
    "the driver was loaded anew",
    "read at one end only",
    "fewer cycles than its clock makes",
    "no second signal agrees",
)


def counter_reset(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A stretch of which no rung is proven counts at the rung `allocation`, however low its counters are."""
    offset, reason, trust = along(number, EDGE_S, NOT_PROVEN, RUNGS)
    ask = Ask(trust=trust)
    run = _run(draw, anchors, ask, held_at(anchors, _flop_s(anchors), offset))
    start, end = span(run)
    measured = Measured(
        run=0,
        kind=Counted(name=H100, clock_max_mhz=H100_MHZ, rung=None, reason=reason),
        seconds=(end + 1 - start) * GPUS,
        busy_ms=draw.between(0, 10),
        **_cycles("pipe_cycles", draw.between(0, 1000), 0),
    )
    return Site(
        varies={"reason": reason, "trust": trust, "offset_s": offset},
        runs=(run,),
        ask=ask,
        telemetry=(measured,),
        intended=verdict_at(offset),
    )


def _flop_s(anchors: Anchors) -> int:
    return GPUS * anchors.counted[H100][""]["max_any_op"]["flop_s"] + CPUS * anchors.core()


Doubt = Callable[[Run, Measured], tuple[Run, Measured]]


def _kind(**changes: object) -> Doubt:
    return lambda run, one: (run, replace(one, kind=replace(one.kind, **changes)))  # type: ignore[arg-type]


def _of_run(**changes: object) -> Doubt:
    return lambda run, one: (replace(run, **changes), one)  # type: ignore[arg-type]


DOUBTS: dict[str, Doubt] = {
    "fewer leases than GPUs": _of_run(lease_gpus=GPUS - 1),
    "no lease": _of_run(lease_gpus=None),
    "a lease of another user": _of_run(flags="lease_uid"),
    "a lease that was lost": _of_run(flags="lease_lost"),
    "a larger card by its driver": _kind(name="NVIDIA B200"),
    "a higher clock than the registry's": _kind(clock_max_mhz=H100_MHZ + 1),
    "a card of no known name": _kind(name="Our Card"),
    "no name": _kind(name=None),
    "measured for longer than held": lambda run, one: (run, replace(one, seconds=one.seconds + 1)),
    "two types in the record": _of_run(
        alloc_tres=tres(CPUS, NODES, GPUS // 2, LABEL, more="gres/gpu:a100=32,")
    ),
}


def telemetry_doubtful(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Counters of other GPUs than those of the record, or that contradict it, take nothing away."""
    offset, doubt, trust = along(number, (-2, 0, 1), tuple(DOUBTS), LOWER)
    ask = Ask(trust=trust)
    flop_s = _flop_s(anchors)
    if doubt == "two types in the record":
        flop_s += GPUS // 2 * (anchors.gpu("a100") - anchors.gpu(LABEL))
    run = _run(draw, anchors, ask, held_at(anchors, flop_s, offset))
    start, end = span(run)
    run = replace(run, true_flop=(end + 1 - start) * flop_s * draw.pick(PERCENT) // 100)
    measured = Measured(
        run=0,
        kind=Counted(name=H100, clock_max_mhz=H100_MHZ, rung=trust),
        seconds=(end + 1 - start) * GPUS,
        busy_ms=draw.between(1, 1000),
        **_cycles("pipe_cycles", draw.between(1, 1000), 0),
    )
    run, measured = DOUBTS[doubt](run, measured)
    return Site(
        varies={"doubt": doubt, "trust": trust, "offset_s": offset},
        runs=(run,),
        ask=ask,
        telemetry=(measured,),
        intended=verdict_at(offset),
    )


def mixed_rungs(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Some GPUs with cycles, some with busy time, some with nothing: each counts at its own rung."""
    offset, trust = along(number, EDGE, LOWER)
    ask = Ask(trust=trust)
    held_s, cores, limit = _lowered(anchors, ask, Fraction(5, 4))
    rates = anchors.counted[H100][""]["max_any_op"]
    third = GPUS // 4 * held_s
    part = third * rates["flop_s"]
    # A quarter measured by cycles, a quarter by busy time, the other half not at all.
    low_ms = draw.between(1, third)
    busy = _per(rates, "busy") * low_ms if trust == "busy" else part
    rung: Rung = "pipe_cycles" if trust == "busy" else trust
    per = _per(rates, rung)
    amount = (limit - 1 - cores - 2 * part - busy) // per + offset
    reachable = 0 < amount * per < part
    flop = cores + 2 * part + busy + (amount * per if reachable else part)
    run = _run(draw, anchors, ask, held_s)
    run = replace(run, true_flop=flop * draw.pick(PERCENT) // 100)
    kind = Counted(name=H100, clock_max_mhz=H100_MHZ, rung=rung)
    telemetry = (
        Measured(run=0, kind=kind, seconds=third, **_cycles(rung, max(amount, 0), 0)),
        Measured(run=0, kind=replace(kind, rung="busy"), seconds=third, busy_ms=low_ms),
    )
    return Site(
        varies={"trust": trust, "offset_kcycles": offset},
        runs=(run,),
        ask=ask,
        telemetry=telemetry,
        intended=verdict_of(flop, limit),
    )


def untyped_but_counted(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A record without a type, whose drivers name a smaller card: cycles count at that card's own rate."""
    offset, rung, name = along(number, EDGE, LOWER, (H100, "NVIDIA H200", A100))
    ask = Ask(trust=rung)
    rates = anchors.counted[name][""]["max_any_op"]
    cores_flop_s = CPUS * anchors.core()
    limit = limit_flop(anchors, ask)
    held_s = 2 * limit // (GPUS * anchors.gpu(UNTYPED) + cores_flop_s)
    per = _per(rates, rung)
    cores = held_s * cores_flop_s
    amount = (limit - 1 - cores) // per + offset
    run = _run(draw, anchors, ask, held_s, label=UNTYPED)
    run = replace(run, true_flop=(cores + amount * per) * draw.pick(PERCENT) // 100)
    counted = _counted(rung, amount)
    measured = Measured(run=0, kind=Counted(name=name, rung=rung), seconds=held_s * GPUS, **counted)
    return Site(
        varies={"card": name, "rung": rung, "offset": offset},
        runs=(run,),
        ask=ask,
        telemetry=(measured,),
        intended=verdict_at(offset),
    )


def counted_slices(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Counters of MIG instances: the cycles of a slice are those of its SMs."""
    offset, rung, known = along(number, EDGE, LOWER, ("SMs told", "SMs by the list"))
    ask = Ask(trust=rung)
    rates = anchors.counted[H100]["1g.10gb"]["max_any_op"]
    slices, cores_flop_s = 448, CPUS * anchors.core()
    limit = limit_flop(anchors, ask)
    held_s = 3 * limit // (slices * rates["flop_s"] + cores_flop_s)
    per = _per(rates, rung)
    cores = held_s * cores_flop_s
    amount = (limit - 1 - cores) // per + offset
    run = _run(draw, anchors, ask, held_s)
    run = replace(
        run,
        true_flop=(cores + amount * per) * draw.pick(PERCENT) // 100,
        alloc_tres=tres(CPUS, NODES, slices, f"{LABEL}_1g.10gb"),
        lease_gpus=slices,
    )
    kind = Counted(name=H100, mig_profile="1g.10gb", sm_count=16 if known == "SMs told" else None, rung=rung)
    counted = _counted(rung, amount)
    measured = Measured(run=0, kind=kind, seconds=held_s * slices, **counted)
    return Site(
        varies={"rung": rung, "known": known, "offset": offset},
        runs=(run,),
        ask=ask,
        telemetry=(measured,),
        intended=verdict_at(offset),
    )


WIDE = ("cluster", "account", "user", "lineage", "family")


def split_and_counted(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Parts of one training, each lowered by its counters: what is left of all of them is what counts."""
    offset, parts, rung = along(number, EDGE, (2, 3, 5, 8), LOWER)
    ask = Ask(trust=rung)
    held_s, _, limit = _lowered(anchors, ask, Fraction(2))
    rates = anchors.counted[H100][""]["max_any_op"]
    per = _per(rates, rung)
    cores_flop_s = CPUS * anchors.core()
    lengths = draw.parts(held_s, parts)
    total = (limit - 1 - held_s * cores_flop_s) // per + offset
    amounts = [total * length // held_s for length in lengths]
    amounts[0] += total - sum(amounts)
    runs, telemetry = [], []
    for k, (length, amount) in enumerate(zip(lengths, amounts, strict=True)):
        flop = length * cores_flop_s + amount * per
        run = _run(draw, anchors, ask, length)
        runs.append(replace(run, job_id_raw=k + 1, true_flop=flop * draw.pick((0, 100)) // 100))
        counted = _counted(rung, amount)
        kind = Counted(name=H100, clock_max_mhz=H100_MHZ, rung=rung)
        telemetry.append(Measured(run=k, kind=kind, seconds=length * GPUS, **counted))
    return Site(
        varies={"parts": parts, "rung": rung, "offset": offset},
        runs=tuple(runs),
        ask=ask,
        telemetry=tuple(telemetry),
        levels=WIDE,
        intended=verdict_at(offset),
    )


FAMILIES = (
    Family(cycles_edge, 540),
    Family(busy_edge, 450),
    Family(coverage_hole, 480),
    Family(counter_reset, 420),
    Family(telemetry_doubtful, 480),
    Family(mixed_rungs, 200),
    Family(untyped_but_counted, 300),
    Family(counted_slices, 240),
    Family(split_and_counted, 240),
)
