"""Families about the records as a whole: what is missing makes a group open, unless the hardware clears it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_trace.analysis.completeness import Coverage
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
)
from slurm_trace.analysis.corpus.site import CLUSTER, Ask, Family, Run, Site
from slurm_trace.analysis.verdicts import INSUFFICIENT, RULED_OUT
from slurm_trace.site.profile import ClusterProfile, NodeGroup

SKU = "nvidia-a100-sxm4-80gb"
MODEL, CORES = "AMD EPYC 7763 64-Core Processor", 128
NODES = 2


def _run(draw: Draw, anchors: Anchors, number: int, held_s: int, **told: Any) -> Run:
    """A run on some of the cards of two nodes."""
    cpus, gpus = 64, 8
    flop_s = gpus * anchors.gpu("a100_80gb") + cpus * anchors.core()
    values: dict[str, Any] = {
        "node_count": NODES,
        "cpu_count": cpus,
        "node_list": "n[1-2]",
        "alloc_tres": tres(cpus, NODES, gpus, "a100_80gb"),
    }
    return ended(
        draw, anchors, number, held_s=held_s, flop_s=flop_s, percent=draw.pick(PERCENT), **(values | told)
    )


def rejected_rows(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Rows that could not be read may be anybody's: no group of the cluster is ruled out by its sum."""
    rejected, runs, hours = along(number, (0, 1, 2, 1000), (1, 2, 5), (1, 10, 100))
    found = tuple(_run(draw, anchors, k + 1, hours * 3600) for k in range(runs))
    return Site(
        varies={"rejected": rejected, "runs": runs, "hours": hours},
        runs=found,
        ask=Ask(),
        rejected=rejected,
        intended=INSUFFICIENT if rejected else RULED_OUT,
    )


IMPORTS = (
    "whole", "hole", "touching", "overlapping", "broken off", "not all users", "no duplicates", "PrivateData", "unsaid",
)  # fmt: skip


def incomplete_import(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Time that no import covers, an import that broke off, one that asked for less than everything."""
    what, live, runs = along(
        number,
        (
            "whole",
            "hole",
            "touching",
            "overlapping",
            "broken off",
            "not all users",
            "no duplicates",
            "PrivateData",
            "unsaid",
        ),
        (True, False),
        (1, 3),
    )
    found = tuple(_run(draw, anchors, k + 1, draw.between(3600, 90_000)) for k in range(runs))
    end, day = anchors.as_of, DAY_S * draw.between(5, 40)
    middle = end - day
    gap_s = {"hole": 1, "overlapping": -3600}.get(what, 0)
    spans = [(0, middle), (middle + gap_s, end)]
    flags: dict[str, Any] = {
        "not all users": {"all_users": False},
        "no duplicates": {"duplicates": False},
        "PrivateData": {"private_data": True},
    }.get(what, {})
    imports = tuple(
        Coverage(
            id=k + 1,
            name=f"import {k + 1}",
            clusters=(CLUSTER,),
            covers=None if what == "unsaid" else span,
            complete=not (what == "broken off" and k == 1),
            live=live,
            flags=flags if k == 1 else {},
        )
        for k, span in enumerate(spans)
    )
    # What covers no time completely is passed over where the rest says how far it reaches; of a file that nobody spoke
    # for nothing is known, of Slurm itself that no time is covered.
    opened = what in ("hole", "broken off") or (what == "unsaid" and live)
    return Site(
        varies={"what": what, "live": str(live), "runs": runs},
        runs=found,
        ask=Ask(),
        imports=imports,
        intended=INSUFFICIENT if opened else RULED_OUT,
    )


def steps_alone(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Steps whose job row is missing say that there was a run, and nothing of what it held."""
    steps, beside, hours = along(number, (1, 2, 5), (0, 1, 4), (1, 10, 100, 1000))
    found = [
        _run(
            draw, anchors, k + 1, hours * 3600, source="step", alloc_tres=None, node_count=None, cpu_count=None,
            node_list=None, user=None, uid=None, account=None,
        )
        for k in range(steps)
    ]  # fmt: skip
    found += [_run(draw, anchors, 50 + k, hours * 36) for k in range(beside)]
    return Site(
        varies={"steps": steps, "beside": beside, "hours": hours},
        runs=tuple(found),
        ask=Ask(),
        intended=INSUFFICIENT,
    )


def capacity_edge(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Whatever is missing, the hardware can't have done more than it can: seconds below and above that edge."""
    offset, missing, basis, whole = along(
        number, EDGE_S, ("rejected", "hole", "steps", "a Gaudi"), ("declared", "proven"), (True, False)
    )
    node_flop_s = 8 * anchors.skus[SKU]["max_any_op"] + CORES * anchors.core(MODEL)
    nodes = 40
    period_s = longest_s(limit_flop(anchors, Ask()), nodes * node_flop_s) + offset
    period = (anchors.as_of - period_s, anchors.as_of)
    group = NodeGroup(
        hosts=f"n[1-{nodes}]", gpus=8, sku=SKU, cpu_model=MODEL, cores=CORES if whole else None, basis=basis
    )
    flop_s = 8 * anchors.gpu("a100_80gb") + 64 * anchors.core(MODEL)
    run = _run(draw, anchors, 1, 3600, true_flop=3600 * flop_s * draw.pick(PERCENT) // 100)
    run = moved(run, period[1] - 60 - span(run)[1])
    if missing == "steps":
        run = replace(run, source="step", alloc_tres=None, cpu_count=None)
    if missing == "a Gaudi":  # which the inventory does not have: it is not the whole of the hardware
        run = replace(run, alloc_tres=tres(64, NODES, 8, "a100_80gb", more="gres/hpu=1,"))
    hole = (
        Coverage(1, "one", (CLUSTER,), (0, period[0] + 9), True, True, {}),
        Coverage(2, "two", (CLUSTER,), (period[0] + 10, period[1]), True, True, {}),
    )
    return Site(
        varies={"missing": missing, "basis": basis, "whole": str(whole), "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        profiles={CLUSTER: ClusterProfile(nodes=(group,))},
        rejected=int(missing in ("rejected", "a Gaudi")),
        imports=hole if missing == "hole" else None,
        period=period,
        intended=RULED_OUT if whole and offset <= 0 and missing != "a Gaudi" else INSUFFICIENT,
    )


FLAGS = (
    "identity_incomplete", "start_from_submit", "nodes_disagree", "utf8_replaced", "line_joined", "shortened",
    "state_unknown",
)  # fmt: skip


def identity_odd(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Rows without a Submit, or with flags of the reader, count like any other."""
    offset, flag, no_submit = along(
        number,
        EDGE_S,
        (
            "identity_incomplete",
            "start_from_submit",
            "nodes_disagree",
            "utf8_replaced",
            "line_joined",
            "shortened",
            "state_unknown",
        ),
        (False, True),
    )
    flop_s = 8 * anchors.gpu("a100_80gb") + 64 * anchors.core()
    # A state that is no known word may stand for a run that was killed.
    grace_s = anchors.grace_s if flag == "state_unknown" else 0
    held_s = longest_s(limit_flop(anchors, Ask()), flop_s) + offset
    told: dict[str, Any] = {"flags": flag, "step_end": None, "step_count": 0}
    if flag == "state_unknown":
        told["state"] = "VANISHED"
    if no_submit:
        told["submit"] = None
    return Site(
        varies={"flag": flag, "no_submit": str(no_submit), "offset_s": offset},
        runs=(_run(draw, anchors, 1, held_s - grace_s, **told),),
        ask=Ask(),
        intended=verdict_at(offset),
    )


FAMILIES = (
    Family(rejected_rows, 180),
    Family(incomplete_import, 180),
    Family(steps_alone, 144),
    Family(capacity_edge, 224),
    Family(identity_odd, 392),
)
