"""Families about how many devices a run could use, where its record leaves that open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.corpus.anchors import UNTYPED, Anchors
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families.common import (
    DAY_S,
    EDGE_S,
    PERCENT,
    REGISTERED,
    at_edge,
    ended,
    held_at,
    one_run,
    span,
    tres,
)
from slurm_trace.analysis.corpus.site import CLUSTER, Family, Site
from slurm_trace.analysis.verdicts import INSUFFICIENT, RULED_OUT
from slurm_trace.site.profile import ClusterProfile, NodeGroup, TresPeriod

H100 = "nvidia-h100-sxm5-80gb"
SPR = "Intel(R) Xeon(R) Platinum 8480+"
RECORDED = tuple(part.partition("=")[0] for part in REGISTERED.split(","))


RECORDINGS = (
    "event", "event too late", "event that ended", "profile", "seen before", "seen later", "not seen", "inventory",
)  # fmt: skip
BELIEVED = ("event", "profile", "seen before", "inventory")


def missing_gres(draw: Draw, number: int, anchors: Anchors) -> Site:
    """No gres in the record is no GPU only where GPUs were recorded: else every GPU a node could hold counts."""
    offset, recorded, nodes = along(number, EDGE_S, RECORDINGS, (4, 16))
    cpus, believed = nodes * 64, recorded in BELIEVED
    cores_flop_s = cpus * anchors.core(SPR if recorded == "inventory" else UNTYPED)
    hidden = 0 if believed else nodes * anchors.limits["gpus_per_node"] * anchors.gpu()
    true_flop_s = cores_flop_s + (0 if believed else nodes * 8 * anchors.gpu("h100"))
    # Where zero is believed the cores alone stay far below.
    held_s = held_at(anchors, cores_flop_s + hidden, offset) if not believed else draw.between(1000, 90_000)
    node_list = f"n[1-{nodes}]"
    run = ended(
        draw,
        anchors,
        number + 2,
        held_s=held_s,
        flop_s=true_flop_s,
        percent=draw.pick(PERCENT),
        node_count=nodes,
        cpu_count=cpus,
        node_list=node_list,
        alloc_tres=tres(cpus, nodes),
    )
    start, end = span(run)
    registered = {
        "event": (start - DAY_S, None),
        "event too late": (start + 1, None),
        "event that ended": (start - DAY_S, end),
    }.get(recorded)
    events: tuple[Event, ...] = ()
    if registered is not None:
        events = (Event(CLUSTER, "", *registered, "", "Cluster Registered TRES", REGISTERED, "slurm"),)
    profiles = {
        "profile": {CLUSTER: ClusterProfile(registered_tres=(TresPeriod(names=RECORDED),))},
        "inventory": {
            CLUSTER: ClusterProfile(nodes=(NodeGroup(hosts=node_list, gpus=0, cpu_model=SPR, cores=64),))
        },
    }.get(recorded, {})
    site = one_run(
        offset,
        run,
        RULED_OUT if believed else None,
        recorded=recorded,
        nodes=nodes,
        profiles=profiles,
        events=events,
    )
    # A run with a GPU shows that GPUs are recorded from its start on: of what was over by then it says nothing.
    shown_at = {"seen before": start - 10 * DAY_S, "seen later": end + 1}.get(recorded)
    if shown_at is not None:
        other = replace(
            run, job_id_raw=1, submit=shown_at, start=shown_at, end=shown_at, step_end=shown_at, elapsed_s=0,
            alloc_tres=tres(1, 1, 1, "v100"), node_count=1, cpu_count=1, true_flop=0,
        )  # fmt: skip
        site = replace(site, runs=(other, run), intended=RULED_OUT if believed else None)
    return site


TELLS = ("empty", "cut", "cut in a number", "cut in a name", "no number", "number only")


def unknown_count(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A record that does not say how many: all GPUs of the inventory, else the most a node is taken to hold."""
    offset, tells, known = along(
        number,
        EDGE_S,
        ("empty", "cut", "cut in a name", "no number", "number only"),
        ("nothing", "at most 8", "inventory", "no nodes"),
    )
    nodes, cores = draw.pick((2, 4)), 48
    cpus = nodes * cores
    node_list = f"n[1-{nodes}]"
    text = {
        "empty": "",
        "cut": f"billing={cpus},cpu={cpus},me+",
        "cut in a number": f"billing={cpus},cpu=1+",
        "cut in a name": f"billing={cpus},cpu={cpus},gres/gp+",
        "no number": f"cpu={cpus},gres/gpu=?,node={nodes}",
        "number only": f"1={cpus},4={nodes},1001=64",
    }[tells]
    per_node = {"at most 8": 8, "inventory": 8}.get(known, anchors.limits["gpus_per_node"])
    card = anchors.skus[H100]["max_any_op"] if known == "inventory" else anchors.gpu()
    core = anchors.core(SPR) if known == "inventory" else anchors.core()
    flop_s = nodes * per_node * card + cpus * core
    profile = {
        "at most 8": ClusterProfile(max_gpus_per_node=8, registered_tres=(TresPeriod(names=RECORDED),)),
        "inventory": ClusterProfile(
            registered_tres=(TresPeriod(names=RECORDED),),
            nodes=(NodeGroup(hosts=node_list, gpus=8, sku=H100, cpu_model=SPR, cores=cores),),
        ),
    }.get(known)
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=None if known == "no nodes" else nodes,
        node_list=None if known == "no nodes" else node_list,
        cpu_count=cpus,
        alloc_tres=text,
    )
    if tells == "number only" and known == "no nodes":
        # The numbered form still says how many nodes there were, but the count of the run comes from its own column.
        run = replace(run, true_flop=None)
    intended = INSUFFICIENT if known == "no nodes" else None
    site = one_run(
        offset, run, intended, tells=tells, known=known, profiles={CLUSTER: profile} if profile else {}
    )
    # What is left of a name that was cut is an accelerator of unknown rate, on top of the rest.
    return replace(site, intended=intended) if tells == "cut in a name" else site


def typed_and_untyped(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Typed and untyped counts name the same cards; what the untyped count has over is of no known type."""
    offset, shape = along(
        number, EDGE_S, ("equal", "untyped more", "typed more", "two types", "two types and more", "per node")
    )
    nodes, cpus, k = 4, 128, draw.pick((1, 2, 4))
    a100, h100, any_card = anchors.gpu("a100"), anchors.gpu("h100"), anchors.gpu()
    gres, cards = {
        "equal": (f"gres/gpu:a100={4 * k},gres/gpu={4 * k}", 4 * k * a100),
        "untyped more": (f"gres/gpu:a100={2 * k},gres/gpu={4 * k}", 2 * k * (a100 + any_card)),
        "typed more": (f"gres/gpu:a100={4 * k},gres/gpu={2 * k}", 4 * k * a100),
        "two types": (f"gres/gpu={4 * k},gres/gpu:a100={2 * k},gres/gpu:h100={2 * k}", 2 * k * (a100 + h100)),
        "two types and more": (
            f"gres/gpu={6 * k},gres/gpu:a100={2 * k},gres/gpu:h100={2 * k}",
            2 * k * (a100 + h100 + any_card),
        ),
        "per node": ("", 4 * k * nodes * h100),
    }[shape]
    flop_s = cards + cpus * anchors.core()
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=nodes,
        cpu_count=cpus,
        alloc_tres=f"billing=1,cpu={cpus},{gres + ',' if gres else ''}mem=8G,node={nodes}",
        alloc_gres=None if gres else f"gpu:h100:{4 * k}",
    )
    return one_run(offset, run, shape=shape, k=k)


def shares(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Shares of cards (shard, mps) are at most as many whole cards, and at most those of the node."""
    offset, gres, shares_, known = along(
        number, EDGE_S, ("shard", "mps"), (1, 3, 8, 200), ("inventory", "nothing")
    )
    cores, cards = 64, 8
    whole = anchors.skus[H100]["max_any_op"] if known == "inventory" else anchors.gpu()
    count = min(shares_, cards if known == "inventory" else anchors.limits["gpus_per_node"])
    flop_s = count * whole + cores * anchors.core(SPR if known == "inventory" else UNTYPED)
    node = NodeGroup(hosts="n1", gpus=cards, sku=H100, cpu_model=SPR, cores=cores)
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        cpu_count=cores,
        node_list="n1",
        alloc_tres=tres(cores, more=f"gres/{gres}={shares_},"),
    )
    profiles = {CLUSTER: ClusterProfile(nodes=(node,))} if known == "inventory" else {}
    return one_run(offset, run, gres=gres, shares=shares_, known=known, profiles=profiles)


def lease_gpus(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The leases held more GPUs than the record names: all that were seen count."""
    offset, named, seen = along(number, EDGE_S, (0, 4, 8, 16), (0, 4, 9, 32))
    cpus = 128
    # Seen GPUs have no type: the largest card; those of the record stay if they are the larger sum.
    own = named * anchors.gpu("h100")
    cards = max(own, seen * anchors.gpu()) if seen > named else own
    unknown = not named and not seen
    if unknown:
        cards = 4 * anchors.limits["gpus_per_node"] * anchors.gpu()
    if not named and seen:
        cards = max(cards, 4 * anchors.limits["gpus_per_node"] * anchors.gpu())
    flop_s = cards + cpus * anchors.core()
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=4,
        cpu_count=cpus,
        alloc_tres=tres(cpus, 4, named, "h100"),
        lease_gpus=seen or None,
    )
    return one_run(offset, run, named=named, seen=seen)


def unconstrained_devices(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Where jobs reach GPUs and cores that are not theirs, all of the node count; strict takes nothing for granted."""
    offset, devices, cores_held, basis = along(
        number, EDGE_S, (True, False, None), (True, False, None), ("declared", "proven")
    )
    nodes, cards, cores, gpus, cpus = 2, 8, 96, 2, 8
    node_list = "n[1-2]"
    group = NodeGroup(
        hosts=node_list,
        gpus=cards,
        sku=H100,
        cpu_model=SPR,
        cores=cores,
        devices_confined=devices,
        cores_confined=cores_held,
        basis=basis,
    )
    reach_gpus = nodes * (cards if devices is False else gpus)
    reach_cores = nodes * (cores if cores_held is False else cpus)
    flop_s = reach_gpus * anchors.skus[H100]["max_any_op"] + reach_cores * anchors.core(SPR)
    run = at_edge(
        draw,
        anchors,
        number + 1,
        flop_s,
        offset,
        node_count=nodes,
        cpu_count=nodes * cpus,
        node_list=node_list,
        alloc_tres=tres(nodes * cpus, nodes, nodes * gpus, "h100"),
    )
    return one_run(
        offset,
        run,
        devices=str(devices),
        cores=str(cores_held),
        basis=basis,
        profiles={CLUSTER: ClusterProfile(nodes=(group,))},
    )


def nothing_told(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Whole columns are missing: what they would have said is resolved upwards, or there is no bound."""
    offset, lacks = along(
        number, EDGE_S, ("cpus", "nodes", "AllocTRES", "End", "Start", "Elapsed", "Suspended", "all times")
    )
    nodes, cpus, gpus = 4, 128, 32
    cores = nodes * anchors.limits["cores_per_node"] if lacks == "cpus" else cpus
    cards = gpus * anchors.gpu("h100")
    if lacks == "AllocTRES":
        cards = nodes * anchors.limits["gpus_per_node"] * anchors.gpu()
    flop_s = cards + cores * anchors.core()
    run = ended(
        draw,
        anchors,
        number + 1,
        held_s=held_at(anchors, flop_s, offset),
        flop_s=gpus * anchors.gpu("h100") + cpus * anchors.core(),
        percent=draw.pick(PERCENT),
        node_count=nodes,
        cpu_count=cpus,
        alloc_tres=tres(cpus, nodes, gpus, "h100"),
    )
    gone: dict[str, dict[str, Any]] = {
        "cpus": {"cpu_count": None, "alloc_tres": str(run.alloc_tres).replace(f"cpu={cpus},", "")},
        "nodes": {"node_count": None},
        "AllocTRES": {"alloc_tres": None},
        "End": {"end": None},
        "Start": {"start": None, "submit": None},
        "Elapsed": {"elapsed_s": None},
        "Suspended": {"suspended_s": None},
        "all times": {"start": None, "end": None, "elapsed_s": None, "suspended_s": None, "step_end": None},
    }
    intended = INSUFFICIENT if lacks == "all times" else None
    return one_run(offset, replace(run, **gone[lacks]), intended, lacks=lacks)


FAMILIES = (
    Family(missing_gres, 448),
    Family(unknown_count, 672),
    Family(typed_and_untyped, 378),
    Family(shares, 448),
    Family(lease_gpus, 448),
    Family(unconstrained_devices, 504),
    Family(nothing_told, 392),
)
