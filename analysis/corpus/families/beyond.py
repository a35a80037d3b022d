"""Families about what counts of a group besides the sum of its runs: a window, a base model, use between leases."""

from __future__ import annotations

from dataclasses import replace

from slurm_trace.analysis.corpus.anchors import Anchors
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families.common import (
    DAY_S,
    EDGE_S,
    PERCENT,
    ended,
    limit_flop,
    longest_s,
    moved,
    span,
    tres,
    verdict_at,
    width,
)
from slurm_trace.analysis.corpus.site import Ask, Family, LeaseReads, Run, Site
from slurm_trace.analysis.ladder import RUNGS
from slurm_trace.analysis.verdicts import NOT_RULED_OUT, RULED_OUT

GPUS, CPUS, CARD, NODES = 32, 256, "h100", 4
WIDE = ("cluster", "user", "lineage")

H100, H100_MHZ, CARDS = "NVIDIA H100 80GB HBM3", 1980, 8
EDGE_MS = (-1000, -1, 0, 1, 1000)
"""Milliseconds of a card at its highest clock between the most that stays below the limit and an instance."""

_NS_PER_MS, _NS_PER_S = 10**6, 10**9


def _flop_s(anchors: Anchors, nodes: int = NODES) -> int:
    return nodes * (GPUS * anchors.gpu(CARD) + CPUS * anchors.core()) // NODES


def _run(draw: Draw, anchors: Anchors, number: int, held_s: int, percent: int, nodes: int = NODES) -> Run:
    cpus, gpus = (nodes * n // NODES for n in (CPUS, GPUS))
    return ended(
        draw, anchors, number, held_s=held_s, flop_s=_flop_s(anchors, nodes), percent=percent, node_count=nodes,
        cpu_count=cpus, alloc_tres=tres(cpus, nodes, gpus, CARD),
    )  # fmt: skip


def worst_window(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Runs that one window just touches all of, or just not; all runs of the site are far above the limit."""
    past_s, late_s, days, parts = along(number, (-50, -1, 0, 1, 50), (0, 1), (1, 7, 90), (2, 3, 5))
    ask = Ask(within_s=days * DAY_S)
    longest = longest_s(limit_flop(anchors, ask), _flop_s(anchors))
    percent = draw.pick((50, 99, 100))
    lengths = draw.parts(longest + past_s, parts)
    runs = [_run(draw, anchors, 1 + k, held_s, percent) for k, held_s in enumerate(lengths)]
    # Let go one second after its End, so the last window that touches the first run begins with that second.
    _, last_second = span(runs[0])
    for k in range(1, parts):
        begin = last_second + draw.between(-500, 1)
        if k == parts - 1:
            begin = last_second + days * DAY_S - 1 + late_s
        runs[k] = moved(runs[k], begin - span(runs[k])[0])
    apart = moved(_run(draw, anchors, 99, longest // 2, percent), -700 * DAY_S)
    return Site(
        varies={"days": days, "parts": parts, "late_s": late_s, "past_s": past_s},
        runs=(*(moved(run, -200 * DAY_S) for run in runs), apart),
        ask=ask,
        levels=WIDE,
        intended=RULED_OUT if late_s else verdict_at(past_s),
    )


def base_third(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A modification of a model of known compute: a third of that is the threshold, and nothing is added."""
    offset, threshold, base_flop = along(
        number,
        EDGE_S,
        ("eu-modifier-gpai", "eu-modifier-systemic"),
        (10**23, 3 * 10**24 + 1, 38 * 10**24 + 2),
    )
    ask = Ask(threshold=threshold, base_flop=base_flop)
    nodes = width(anchors, ask, _flop_s(anchors, 1))
    held_s = longest_s(limit_flop(anchors, ask), _flop_s(anchors, nodes)) + offset
    return Site(
        varies={"threshold": threshold, "base_flop": str(base_flop), "offset_s": offset},
        runs=(_run(draw, anchors, draw.between(1, 10**6), held_s, draw.pick(PERCENT), nodes),),
        ask=ask,
        levels=WIDE,
        intended=verdict_at(offset),
    )


def base_added(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Runs below the threshold that a base model's compute brings just up to it; their own contribution stays below."""
    offset, percent_of_t, parts = along(number, EDGE_S, (1, 10, 50, 90), (1, 2, 3))
    ask = Ask(base_flop=10**21 * percent_of_t + draw.between(0, 10**6))
    longest = longest_s(limit_flop(anchors, ask) - (ask.base_flop or 0), _flop_s(anchors))
    lengths = draw.parts(longest + offset, parts)
    percent = draw.pick(PERCENT)
    return Site(
        varies={"base_percent": percent_of_t, "parts": parts, "offset_s": offset},
        runs=tuple(_run(draw, anchors, 1 + k, held_s, percent) for k, held_s in enumerate(lengths)),
        ask=ask,
        levels=WIDE,
        intended=verdict_at(offset),
    )


def between_leases(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Counters moved while no run held the cards: with the runs it comes to just below or just above the limit."""
    offset_ms, trust, how, share = along(
        number, EDGE_MS, RUNGS[:3], ("counted", "capped", "reset", "driver", "late read"), (10, 60)
    )
    ask = Ask(trust=trust)
    limit, flop_s = limit_flop(anchors, ask), _flop_s(anchors)
    held_s = longest_s(limit * share // 100, flop_s)
    per_ms = anchors.counted[H100][""][ask.basis]["whole"] * H100_MHZ
    used_ms = (limit - 1 - held_s * flop_s) // per_ms + offset_ms
    # Of another driver's counter nothing is known, and what was read late may be the lease's own.
    counts = how not in ("driver", "late read")
    reads = [
        read
        for card, ms in enumerate(draw.parts(used_ms, CARDS))
        for read in _leases(draw, f"GPU-{card}", ms, how)
    ]
    percent = draw.pick(PERCENT)
    return Site(
        varies={"how": how, "trust": trust, "share": share, "offset_ms": offset_ms},
        runs=(_run(draw, anchors, draw.between(1, 10**6), held_s, percent),),
        ask=ask,
        reads=tuple(reads),
        unattributed_flop=used_ms * per_ms * percent // 100 if counts else 0,
        levels=("cluster", "user") if number % 8 == 0 else ("cluster",),
        intended=(NOT_RULED_OUT if offset_ms > 0 else RULED_OUT) if counts else RULED_OUT,
    )


def _leases(draw: Draw, uuid: str, used_ms: int, how: str) -> tuple[LeaseReads, LeaseReads]:
    """Two leases of a card, between which it ran for `used_ms` at its highest clock."""
    cycles = used_ms * H100_MHZ * 1000
    gap_ms = used_ms if how == "capped" else used_ms + draw.between(1, 10**7)
    seen = {"capped": 10 * cycles, "reset": cycles}.get(how, cycles - draw.between(0, 999))
    low = seen + draw.between(1, 10**6) if how == "reset" else draw.between(0, 10**15)
    high = seen if how == "reset" else low + seen
    last_ns = draw.between(10**6, 10**9) * _NS_PER_MS
    first_ns = last_ns + gap_ms * _NS_PER_MS
    ahead_s = 61 if how == "late read" else draw.between(0, 60)
    before = LeaseReads(
        uuid=uuid, lease=1, name=H100, clock_max_mhz=H100_MHZ, first_active=0, last_active=low,
        held_from_ns=0, first_ns=1, last_ns=last_ns, held_to_ns=last_ns + draw.between(0, 60) * _NS_PER_S,
    )  # fmt: skip
    after = replace(
        before, lease=2, first_active=high, last_active=high, first_ns=first_ns, last_ns=first_ns + 1,
        held_from_ns=first_ns - ahead_s * _NS_PER_S, held_to_ns=first_ns + 1,
        driver="560" if how == "driver" else before.driver,
    )  # fmt: skip
    return before, after


FAMILIES = (
    Family(worst_window, 540),
    Family(base_third, 252),
    Family(base_added, 252),
    Family(between_leases, 600),
)
