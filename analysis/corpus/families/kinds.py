"""Families about which kind of device a record means."""

from __future__ import annotations

from dataclasses import replace

from slurm_trace.analysis.corpus.anchors import UNTYPED, Anchors
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families.common import (
    DAY_S,
    EDGE_S,
    PERCENT,
    at_edge,
    ended,
    held_at,
    moved,
    one_run,
    span,
    tres,
)
from slurm_trace.analysis.corpus.site import CLUSTER, Family, Site
from slurm_trace.analysis.verdicts import INSUFFICIENT, RULED_OUT
from slurm_trace.site.profile import ClusterProfile, NodeGroup

H100, A100, V100 = "nvidia-h100-sxm5-80gb", "nvidia-a100-sxm4-80gb", "nvidia-v100-sxm2"
SPR = "Intel(R) Xeon(R) Platinum 8480+"


def untyped_gres(draw: Draw, number: int, anchors: Anchors) -> Site:
    """GPUs without a type: those of the inventory, else the largest card there is."""
    offset, known, gpus = along(
        number, EDGE_S, ("nothing", "sku", "two skus", "half the nodes", "MIG name"), (4, 8)
    )
    nodes, cores = 4, 64
    cpus = nodes * cores
    card = {
        "nothing": anchors.gpu(),
        "sku": anchors.skus[A100]["max_any_op"],
        "two skus": anchors.skus[H100]["max_any_op"],
        "half the nodes": anchors.gpu(),
        "MIG name": anchors.skus[H100]["max_any_op"],
    }[known]
    group = {"gpus": 8, "cpu_model": SPR, "cores": cores}
    inventory = {
        "nothing": (),
        "sku": (NodeGroup(hosts="n[1-4]", sku=A100, **group),),  # type: ignore[arg-type]
        "two skus": (NodeGroup(hosts="n[1-3]", sku=A100, **group), NodeGroup(hosts="n4", sku=H100, **group)),  # type: ignore[arg-type]
        "half the nodes": (NodeGroup(hosts="n[1-2]", sku=A100, **group),),  # type: ignore[arg-type]
        "MIG name": (NodeGroup(hosts="n[1-4]", sku="NVIDIA H100 80GB HBM3 MIG 1g.10gb", **group),),  # type: ignore[arg-type]
    }[known]
    core = anchors.core(SPR if len(inventory) and known != "half the nodes" else UNTYPED)
    flop_s = nodes * gpus * card + cpus * core
    # Three of the nodes have the slower card, which the inventory of the nodes knows and the record does not.
    slower = 3 * gpus * (card - anchors.skus[A100]["max_any_op"]) if known == "two skus" else 0
    run = ended(
        draw,
        anchors,
        number + 1,
        held_s=held_at(anchors, flop_s, offset),
        flop_s=flop_s - slower,
        percent=draw.pick(PERCENT),
        node_count=nodes,
        cpu_count=cpus,
        node_list="n[1-4]",
        alloc_tres=tres(cpus, nodes, nodes * gpus),
    )
    capped = known == "two skus" and gpus == 8
    profiles = {CLUSTER: ClusterProfile(nodes=inventory)} if inventory else {}
    return one_run(offset, run, RULED_OUT if capped else None, known=known, gpus=gpus, profiles=profiles)


def ambiguous_type(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A type that fits several cards means the largest of them; an inventory narrows it, or widens it if it differs."""
    offset, label, sku = along(
        number,
        EDGE_S,
        ("a100", "h100", "h200", "v100", "tesla", "rtx_4090", "gh200", "p100"),
        ("", A100, V100),
    )
    fits = {(A100, "a100"), (A100, "tesla"), (V100, "v100"), (V100, "tesla")}
    own, by_sku = anchors.gpu(label), anchors.skus[sku]["max_any_op"] if sku else 0
    card = own if not sku else by_sku if (sku, label) in fits else max(own, by_sku)
    nodes, cores, gpus = 16, 64, 8
    inventory = (NodeGroup(hosts="n[1-16]", gpus=gpus, sku=sku, cpu_model=SPR, cores=cores),)
    flop_s = nodes * gpus * card + nodes * cores * anchors.core(SPR if sku else UNTYPED)
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=nodes,
        cpu_count=nodes * cores,
        node_list="n[1-16]",
        alloc_tres=tres(nodes * cores, nodes, nodes * gpus, label),
    )
    profiles = {CLUSTER: ClusterProfile(nodes=inventory)} if sku else {}
    return one_run(offset, run, label=label, sku=sku or "none", profiles=profiles)


ENDS = ("long ago", "just before", "just after", "later")


def unknown_type(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A type that no list has: the largest card, as long as the registry speaks for that time, else nothing."""
    offset, label, ends = along(
        number, EDGE_S, ("our_card", UNTYPED), ("long ago", "just before", "just after", "later")
    )
    gpus, cpus = draw.pick((1, 2, 4, 8)), 32
    flop_s = gpus * anchors.gpu(label) + cpus * anchors.core()
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        cpu_count=cpus,
        alloc_tres=tres(cpus, 1, gpus, label),
    )
    _, told = span(run)
    # The release is End + 1, and the registry speaks up to and including its last second.
    end = {
        "just before": anchors.complete_through - 1,
        "just after": anchors.complete_through,
        "later": anchors.complete_through + 9 * DAY_S,
    }.get(ends, told)
    run = moved(run, end - told)
    intended = INSUFFICIENT if ends in ("just after", "later") else None
    return one_run(offset, run, intended, label=label or "untyped", ends=ends)


def mig_slices(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A slice counts by its share of the card where that is listed, else as a whole card."""
    offset, label = along(number, EDGE_S, tuple(g for g in anchors.gpus if "g." in g))
    slices, cpus = draw.between(1, 14) * 40, 256
    flop_s = slices * anchors.gpu(label) + cpus * anchors.core()
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=20,
        cpu_count=cpus,
        alloc_tres=tres(cpus, 20, slices, label),
    )
    return one_run(offset, run, label=label, slices=slices)


def other_accelerators(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A resource that is no GPU: by its list, of any rate if it has none, and nothing where it computes nothing."""
    offset, gres, known = along(
        number, EDGE_S, (*anchors.others, "nvme", "craynetwork"), ("nothing", "inventory of GPUs")
    )
    count, cpus, gpus = draw.pick((4, 16, 64)), 256, 32
    other = count * anchors.others[gres]["max_any_op"] if gres in anchors.others else 0
    flop_s = gpus * anchors.skus[H100]["max_any_op"] + other + cpus * anchors.core()
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=4,
        cpu_count=cpus,
        node_list="n[1-4]",
        alloc_tres=tres(cpus, 4, gpus, "nvidia_h100_80gb_hbm3", more=f"gres/{gres}={count},"),
    )
    nodes = (NodeGroup(hosts="n[1-4]", gpus=8, sku=H100, cores=64),)
    profiles = {CLUSTER: ClusterProfile(nodes=nodes)} if known != "nothing" else {}
    return one_run(offset, run, gres=gres, count=count, known=known, profiles=profiles)


def inventory_change(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Cards were exchanged: a run that saw both counts at the faster, one that saw a gap at the largest there is."""
    offset, when = along(number, EDGE_S, ("before", "last second", "first second", "middle", "after", "gap"))
    nodes, cards, cores = 8, 8, 64
    old, new = anchors.skus[A100]["max_any_op"], anchors.skus[H100]["max_any_op"]
    card = {"before": new, "first second": new, "after": old, "gap": anchors.gpu()}.get(when, new)
    core = anchors.core(UNTYPED if when == "gap" else SPR)
    gpus = nodes * cards
    flop_s = gpus * card + nodes * cores * core
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=nodes,
        cpu_count=nodes * cores,
        node_list="n[1-8]",
        alloc_tres=tres(nodes * cores, nodes, gpus),
    )
    start, end = span(run)
    changed = {
        "before": start - DAY_S,
        "first second": start,
        "last second": end,
        "after": end + 1,
    }.get(when, (start + end) // 2)
    gap_s = 1 if when == "gap" else 0
    inventory = (
        NodeGroup(hosts="n[1-8]", gpus=cards, sku=A100, cpu_model=SPR, cores=cores, to=changed),
        NodeGroup(hosts="n[1-8]", gpus=cards, sku=H100, cpu_model=SPR, cores=cores, from_=changed + gap_s),
    )
    return one_run(offset, run, when=when, profiles={CLUSTER: ClusterProfile(nodes=inventory)})


def clock_capping(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Cards whose clocks were held down did less; without a proof the bound stays where it was."""
    offset, card, percent = along(number, EDGE_S, ("h100", "a100", "l40s", "mi300x"), (10, 25, 50, 75, 95))
    nodes, cpus = 16, 1024
    flop_s = nodes * 8 * anchors.gpu(card) + cpus * anchors.core()
    run = ended(
        draw,
        anchors,
        number + 1,
        held_s=held_at(anchors, flop_s, offset),
        flop_s=flop_s,
        percent=percent,
        node_count=nodes,
        cpu_count=cpus,
        alloc_tres=tres(cpus, nodes, nodes * 8, card),
    )
    return one_run(offset, run, card=card, clock_percent=percent)


def strict_reading(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Confinement, labels and release are proven one by one: strict takes whole nodes, or nothing, for what lacks."""
    offset, lacks = along(number, EDGE_S, ("nothing", "proof", "confinement", "sku", "steps", "cores"))
    nodes, cards, cores, gpus, cpus = 4, 8, 64, 4, 16
    group = NodeGroup(
        hosts="n[1-4]",
        gpus=cards,
        sku=None if lacks == "sku" else H100,
        cpu_model=SPR,
        cores=cores,
        devices_confined=None if lacks == "confinement" else True,
        cores_confined=None if lacks == "cores" else True,
        basis="declared" if lacks == "proof" else "proven",
    )
    flop_s = nodes * (gpus * anchors.skus[H100]["max_any_op"] + cpus * anchors.core(SPR))
    steps = lacks != "steps"
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=nodes,
        cpu_count=nodes * cpus,
        node_list="n[1-4]",
        alloc_tres=tres(nodes * cpus, nodes, nodes * gpus, "h100"),
    )
    if not steps:
        run = replace(run, step_end=None, step_count=None)
    return one_run(offset, run, lacks=lacks, profiles={CLUSTER: ClusterProfile(nodes=(group,))})


FAMILIES = (
    Family(untyped_gres, 420),
    Family(ambiguous_type, 504),
    Family(unknown_type, 392),
    Family(mig_slices, 420),
    Family(other_accelerators, 448),
    Family(inventory_change, 336),
    Family(clock_capping, 420),
    Family(strict_reading, 336),
)
