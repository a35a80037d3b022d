"""Families around each threshold: the last second below it and the first one at it."""

from __future__ import annotations

from fractions import Fraction

from slurm_trace.analysis.corpus.anchors import UNTYPED, Anchors
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families.common import (
    EDGE_S,
    PERCENT,
    REGISTERED,
    ended,
    limit_flop,
    longest_s,
    span,
    tres,
    verdict_at,
    verdict_of,
    width,
)
from slurm_trace.analysis.corpus.site import CLUSTER, Ask, Family, Site
from slurm_trace.analysis.verdicts import INSUFFICIENT, NOT_RULED_OUT
from slurm_trace.site.profile import ClusterProfile, TresPeriod

THRESHOLDS = ("eu-gpai", "eu-modifier-gpai", "eu-modifier-systemic", "eu-systemic", "ca-sb53")
CARDS = ("h100", "a100", "h200", "b200", "mi300x", "l40s", "gh200", UNTYPED)
MARGINS = tuple(Fraction(n, 100) for n in (0, 1, 5, 10, 33, 100, 1000))
BASES = ("max_any_op", "max_fp_sparse", "max_fp_dense", "bf16_dense")


def threshold_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """One run, seconds below or above each threshold, on each kind of card."""
    offset, card, threshold = along(number, EDGE_S, CARDS, THRESHOLDS)
    return _edge(draw, anchors, Ask(threshold=threshold), card, offset)


def margin_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The same with other margins than the default: the margin moves the edge, to the second."""
    offset, margin, card, threshold = along(number, EDGE_S, MARGINS, CARDS[:4], THRESHOLDS[:4])
    return _edge(draw, anchors, Ask(threshold=threshold, margin=margin), card, offset)


def basis_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The same for every basis: the estimate rules nothing out."""
    offset, basis, card, threshold = along(number, EDGE_S, BASES, CARDS[:5], THRESHOLDS[:3])
    return _edge(draw, anchors, Ask(threshold=threshold, basis=basis), card, offset)


def _edge(draw: Draw, anchors: Anchors, ask: Ask, card: str, offset: int) -> Site:
    gpus, cpus = draw.pick((4, 8)), draw.pick((16, 48, 96))
    node_flop_s = gpus * anchors.gpu(card, ask.basis) + cpus * anchors.core(basis=ask.basis)
    nodes = width(anchors, ask, node_flop_s) * draw.between(1, 2)
    flop_s = nodes * node_flop_s
    held_s = longest_s(limit_flop(anchors, ask), flop_s) + offset
    run = ended(
        draw,
        anchors,
        draw.between(1, 10**6),
        held_s=held_s,
        flop_s=flop_s,
        percent=draw.pick(PERCENT),
        node_count=nodes,
        cpu_count=nodes * cpus,
        alloc_tres=tres(nodes * cpus, nodes, nodes * gpus, card),
    )
    intended = verdict_at(offset)
    if ask.basis == "bf16_dense" and intended != NOT_RULED_OUT:
        intended = INSUFFICIENT
    return Site(
        varies={"card": card or "untyped", "offset_s": offset, "nodes": nodes},
        runs=(run,),
        ask=ask,
        intended=intended,
    )


def exact_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A bound that is the threshold to the last operation, without a margin: what equals T is not ruled out."""
    offset, off_by, card = along(number, (-1, 0, 1), (-1, 0, 1), CARDS)
    flop_s = 8 * anchors.gpu(card) + 32 * anchors.core()
    held_s = draw.between(10**4, 10**6)
    ask = Ask(threshold=str(held_s * flop_s + off_by), margin=Fraction(0))
    run = ended(
        draw,
        anchors,
        number + 1,
        held_s=held_s + offset,
        flop_s=flop_s,
        percent=draw.pick(PERCENT),
        cpu_count=32,
        alloc_tres=tres(32, 1, 8, card),
    )
    return Site(
        varies={"card": card or "untyped", "offset_s": offset, "threshold_off_by": off_by},
        runs=(run,),
        ask=ask,
        intended=verdict_of((held_s + offset) * flop_s, limit_flop(anchors, ask)),
    )


def cpu_only(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Processor cores alone: zero GPUs is believed only where GPUs were recorded, and cores compute too."""
    offset, recorded, spread = along(number, EDGE_S, ("always", "never", "unsaid", "ended before"), range(6))
    cpus = 4096 * (spread + 1)
    nodes = cpus // 128
    held_s = longest_s(limit_flop(anchors, Ask()), cpus * anchors.core()) + offset
    run = ended(
        draw,
        anchors,
        number + 1,
        held_s=held_s,
        flop_s=cpus * anchors.core(),
        percent=draw.pick(PERCENT),
        node_count=nodes,
        cpu_count=cpus,
        alloc_tres=tres(cpus, nodes),
    )
    names = tuple(part.partition("=")[0] for part in REGISTERED.split(","))
    without = tuple(name for name in names if not name.startswith("gres/"))
    _, end = span(run)
    periods = {
        "always": (TresPeriod(names=names),),
        "never": (TresPeriod(names=without),),
        "unsaid": (),
        "ended before": (
            TresPeriod(names=names, to=end - 1),
            TresPeriod(names=without, from_=end - 1),
        ),
    }[recorded]
    profiles = {CLUSTER: ClusterProfile(registered_tres=periods)} if periods else {}
    # Where zero is not believed, 32 of the fastest cards in each node count: far above.
    intended = verdict_at(offset) if recorded == "always" else NOT_RULED_OUT
    return Site(
        varies={"recorded": recorded, "offset_s": offset, "cpus": cpus},
        runs=(run,),
        ask=Ask(),
        profiles=profiles,
        intended=intended,
    )


FAMILIES = (
    Family(threshold_edge, 1120),
    Family(margin_edge, 784),
    Family(basis_edge, 420),
    Family(exact_edge, 72),
    Family(cpu_only, 336),
)
