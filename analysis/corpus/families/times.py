"""Families about the release: how long a run may have held its devices when its record is odd."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_trace.accounting.events import Event
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
from slurm_trace.analysis.verdicts import INSUFFICIENT, NOT_RULED_OUT, RULED_OUT
from slurm_trace.site.profile import ClusterProfile

GPUS, CPUS, CARD = 64, 512, "h100"
NODES = 8
NODE_LIST = "n[1-8]"
KILLED = ("FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE")

SUMMER_TIME_ENDS = 1_761_440_400
"""2025-10-26 01:00 UTC: Europe's clocks go back from 3 to 2, so that an hour's local times come twice."""

HOUR_S = 3600


def _flop_s(anchors: Anchors) -> int:
    return GPUS * anchors.gpu(CARD) + CPUS * anchors.core()


def _longest(anchors: Anchors) -> int:
    return longest_s(limit_flop(anchors, Ask()), _flop_s(anchors))


def _run(draw: Draw, anchors: Anchors, number: int, held_s: int, **told: Any) -> Run:
    """A run of this module's shape that held its devices so long."""
    values: dict[str, Any] = {
        "node_count": NODES,
        "cpu_count": CPUS,
        "node_list": NODE_LIST,
        "alloc_tres": tres(CPUS, NODES, GPUS, CARD),
    }
    return ended(
        draw,
        anchors,
        number + 1,
        held_s=held_s,
        flop_s=_flop_s(anchors),
        percent=draw.pick(PERCENT),
        **(values | told),
    )


def killed_grace(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A run that did not end by itself computes on for as long as Slurm may need to kill it."""
    offset, state, grace, steps = along(number, EDGE_S, KILLED, ("default", "known", "half known"), (0, 2))
    profile = {
        "default": None,
        "known": ClusterProfile(kill_wait_s=300, unkillable_step_timeout_s=900),
        "half known": ClusterProfile(kill_wait_s=20),
    }[grace]
    grace_s = (
        0 if steps else {"default": anchors.grace_s, "known": 1200, "half known": anchors.grace_s}[grace]
    )
    held_s = _longest(anchors) + offset
    told = held_s - grace_s
    run = _run(draw, anchors, number, told, state=state, step_count=steps)
    if not steps:
        run = replace(run, step_end=None, true_flop=held_s * _flop_s(anchors) * draw.pick(PERCENT) // 100)
    return Site(
        varies={"state": state, "grace": grace, "steps": steps, "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        profiles={CLUSTER: profile} if profile else {},
        intended=verdict_at(offset),
    )


def suspended(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Time in suspension counts: the processes were stopped by a signal that not all of them heed."""
    offset, share, told, state = along(
        number, EDGE_S, (0, 1, 10, 50, 99), (True, False), ("COMPLETED", "CANCELLED")
    )
    held_s = _longest(anchors) + offset
    run = _run(draw, anchors, number, held_s, state=state)
    paused = (held_s - 1) * share // 100
    # The End of a run that was killed while it was suspended is when it was suspended.
    early = paused if state == "CANCELLED" and told else 0
    _, end = span(run)
    run = replace(
        run,
        elapsed_s=held_s - 1 - paused,
        suspended_s=paused if told else None,
        end=end - early,
        step_end=end - early,
    )
    return Site(
        varies={"share": share, "told": str(told), "state": state, "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        intended=verdict_at(offset),
    )


def running_at_query(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A run that goes on counts up to the query; where that moment is not known, nothing bounds it."""
    offset, state, given = along(
        number, EDGE_S, ("RUNNING", "SUSPENDED", "COMPLETING"), ("queried", "sums", "end filled", "nothing")
    )
    held_s = _longest(anchors) + offset
    start = anchors.as_of - (held_s - 1)
    run = _run(draw, anchors, number, held_s)
    run = replace(
        run,
        submit=start - 60,
        start=start,
        end=anchors.as_of - DAY_S if given == "end filled" else None,
        elapsed_s=held_s - 1,
        suspended_s=None if given == "nothing" else 0,
        queried_at=anchors.as_of if given in ("queried", "end filled") else None,
        step_end=None,
        step_count=None,
        limit_s=held_s + 10 * DAY_S,
        state=state,
        final=False,
    )
    intended = INSUFFICIENT if given == "nothing" else verdict_at(offset)
    return Site(
        varies={"state": state, "given": given, "offset_s": offset}, runs=(run,), ask=Ask(), intended=intended
    )


def runaway(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A record that was never closed is listed apart, and counts in every group all the same."""
    past_s, limit_s, beside = along(number, (-1, 0, 1, 2, DAY_S), (60, 3600, DAY_S, 20 * DAY_S), (0, 1, 3))
    held_s = 2 * limit_s + past_s
    start = anchors.as_of - (held_s - 1)
    stuck = replace(
        _run(draw, anchors, number, held_s, true_flop=draw.between(0, limit_s) * _flop_s(anchors)),
        submit=start - 1,
        start=start,
        end=None,
        elapsed_s=held_s - 1,
        queried_at=anchors.as_of,
        step_end=None,
        step_count=None,
        limit_s=limit_s,
        state="RUNNING",
        final=False,
    )
    rest = [_run(draw, anchors, number + 1 + k, draw.between(100, 5000)) for k in range(beside)]
    held = held_s + sum((r.elapsed_s or 0) + 1 for r in rest)
    return Site(
        varies={"past_s": past_s, "limit_s": limit_s, "beside": beside},
        runs=(stuck, *rest),
        ask=Ask(),
        intended=verdict_at(held - _longest(anchors)),
    )


def never_started(draw: Draw, number: int, anchors: Anchors) -> Site:
    """What never held anything did nothing; what is half written is open until it is read again."""
    kind, waiting, beside = along(number, ("pending", "cancelled", "half written"), range(1, 21), (0, 1))
    submit = anchors.as_of - draw.between(1, 90) * DAY_S
    started = kind == "half written"
    runs = [
        Run(
            job_id_raw=number * 50 + k + 1,
            submit=submit + k,
            start=submit + 60 if started and k == 0 else None,
            end=submit + DAY_S if kind == "cancelled" else None,
            elapsed_s=0,
            state="CANCELLED" if kind == "cancelled" else "PENDING",
            final=kind == "cancelled",
            started=started and k == 0,
            node_list="None assigned",
            node_count=NODES,
            queried_at=anchors.as_of,
            alloc_tres="" if not started else tres(CPUS, NODES, GPUS, CARD),
            true_flop=None if started and k == 0 else 0,
        )
        for k in range(waiting)
    ]
    runs += [_run(draw, anchors, number * 50 + 40, draw.between(60, 9000)) for _ in range(beside)]
    intended = INSUFFICIENT if started else RULED_OUT if beside else None
    return Site(
        varies={"kind": kind, "waiting": waiting, "beside": beside},
        runs=tuple(runs),
        ask=Ask(),
        intended=intended,
    )


def zero_length(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Start and End alike: the record was closed by hand, and only the time limit says how long it may have run."""
    offset, what, back_s = along(
        number, EDGE_S, ("limit", "no limit", "finished step", "no GPU"), (0, 1, 40, 5000)
    )
    held_s = _longest(anchors) + offset
    run = _run(draw, anchors, number, held_s)
    start, _ = span(run)
    told: dict[str, Any] = {
        "end": start - back_s,
        "elapsed_s": 0,
        "limit_s": held_s - anchors.grace_s - 1 if what == "limit" else None,
        "step_end": start if what == "finished step" else None,
        "step_count": 1 if what == "finished step" else 0,
    }
    truth = draw.between(0, held_s) * _flop_s(anchors)
    if what == "finished step":
        truth = _flop_s(anchors)
    if what == "no GPU":
        told |= {"alloc_tres": tres(CPUS, NODES, more="gres/gpu=0,")}
        truth = CPUS * anchors.core()
    intended = {"limit": verdict_at(offset), "no limit": INSUFFICIENT}.get(what, RULED_OUT)
    return Site(
        varies={"what": what, "back_s": back_s, "offset_s": offset},
        runs=(replace(run, **told, true_flop=truth),),
        ask=Ask(),
        intended=intended,
    )


def node_fail(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A node that is cut off computes on until it is back, which only its events tell."""
    offset, told = along(
        number,
        EDGE_S,
        (
            "events",
            "no events",
            "still down",
            "another node",
            "two events",
            "long before",
            "late",
            "too late",
        ),
    )
    held_s = _longest(anchors) + offset
    down_s = draw.between(600, 20_000)
    lost = told in ("events", "two events", "still down", "late")
    tail_s = down_s + anchors.kill_wait_s if lost else anchors.grace_s
    run = _run(draw, anchors, number, held_s - tail_s)
    if told == "still down":
        run = moved(run, anchors.as_of - down_s - span(run)[1])
    _, end = span(run)
    node = f"n{draw.between(1, NODES)}"
    shapes: dict[str, list[tuple[str, int, int | None]]] = {
        "events": [(node, end - 30, end + down_s)],
        "no events": [],
        "still down": [(node, end - 30, None)],
        "another node": [("n9", end - 30, end + down_s)],
        "two events": [(node, end - 30, end + 200), (node, end + 200, end + down_s)],
        "long before": [(node, end - 9000, end - 5000)],
        # A node may be found to be down as late as Slurm may still be killing its processes.
        "late": [(node, end + anchors.grace_s, end + down_s)],
        "too late": [(node, end + anchors.grace_s + 1, end + down_s)],
    }
    events = tuple(
        Event(CLUSTER, n, a, b, "DOWN", "Not responding", None, "root") for n, a, b in shapes[told]
    )
    reached_s = held_s if lost or told == "no events" else held_s - anchors.grace_s
    run = replace(
        run,
        state="NODE_FAIL",
        step_end=None,
        step_count=0,
        true_flop=reached_s * _flop_s(anchors) * draw.pick(PERCENT) // 100,
    )
    return Site(
        varies={"told": told, "down_s": down_s, "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        events=events,
        intended=verdict_at(offset),
    )


def clock_change(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Summer time ends: an hour comes twice, and a record in local time without Elapsed may hide one."""
    offset, where, elapsed = along(
        number,
        EDGE_S,
        ("end in fold", "start in fold", "over the fold", "gap", "no zone"),
        ("given", "missing"),
    )
    held_s = _longest(anchors) + offset
    run = _run(draw, anchors, number, held_s)
    at = SUMMER_TIME_ENDS + draw.between(1, HOUR_S - 1)
    end = {"end in fold": at, "start in fold": at + held_s - 1}.get(where, at + held_s // 2)
    start = end - (held_s - 1)
    # An End in the fold is read as the later of the two; without a zone an hour is added where no Elapsed bears it out.
    assumed = where == "no zone"
    slack_s = HOUR_S if assumed and elapsed == "missing" else 0
    flags = {
        "end in fold": "dst_fold",
        "start in fold": "dst_fold",
        "gap": "dst_gap",
        "no zone": "tz_assumed",
    }
    run = replace(
        run,
        submit=start - 60,
        start=start,
        end=end - slack_s,
        step_end=end - slack_s,
        elapsed_s=held_s - 1 if elapsed == "given" else None,
        flags=flags.get(where, ""),
    )
    return Site(
        varies={"where": where, "elapsed": elapsed, "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        intended=verdict_at(offset),
    )


SLIPS = (
    "elapsed in ms", "elapsed in minutes", "limit in minutes", "limit in seconds as minutes", "mem in MB", "mem in kB",
)  # fmt: skip


def unit_slip(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A figure in another unit than its column says: a slip may cost a rule-out, and never makes one."""
    offset, slip = along(
        number,
        EDGE_S,
        (
            "elapsed in ms",
            "elapsed in minutes",
            "limit in minutes",
            "limit in seconds as minutes",
            "mem in MB",
            "mem in kB",
        ),
    )
    held_s = _longest(anchors) + offset
    run = _run(draw, anchors, number, held_s)
    intended = verdict_at(offset)
    if slip == "elapsed in ms":
        run, intended = replace(run, elapsed_s=(held_s - 1) * 1000), NOT_RULED_OUT
    elif slip == "elapsed in minutes":
        run = replace(run, elapsed_s=(held_s - 1) // 60)
    elif slip.startswith("limit"):
        # Only a record that was closed by hand leans on its limit.
        limit_s = held_s - anchors.grace_s - 1
        slipped = limit_s // 60 if slip == "limit in minutes" else limit_s * 60
        run = replace(
            run, end=run.start, elapsed_s=0, step_end=None, step_count=0, limit_s=slipped, true_flop=None
        )
        intended = RULED_OUT if slip == "limit in minutes" else NOT_RULED_OUT
    else:
        memory = "mem=4194304M" if slip == "mem in MB" else "mem=4294967296K"
        run = replace(run, alloc_tres=str(run.alloc_tres).replace(f"mem={CPUS * 4}G", memory))
    return Site(varies={"slip": slip, "offset_s": offset}, runs=(run,), ask=Ask(), intended=intended)


def outlived_end(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A step, or a lease, that ends after the job did: the latest of them counts."""
    offset, by, state = along(number, EDGE_S, ("step", "lease", "proven lease", "early lease"), KILLED[:3])
    held_s = _longest(anchors) + offset
    late_s = draw.between(1, 5000)
    grace_s = anchors.grace_s if by in ("lease", "early lease") else 0
    if by == "early lease":
        late_s = 0
    run = _run(draw, anchors, number, held_s - grace_s, state=state)
    start, last = span(run)
    run = replace(
        run,
        end=last - late_s,
        elapsed_s=last - late_s - start,
        step_end=last if by == "step" else None,
        step_count=1 if by == "step" else 0,
        lease_end=None if by == "step" else last - 100 if by == "early lease" else last,
        lease_gpus=None if by == "step" else GPUS,
        release_proven=by in ("proven lease", "early lease"),
    )
    return Site(
        varies={"by": by, "state": state, "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        intended=verdict_at(offset),
    )


def clock_step(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The controller's clock was set while the run ran: of Elapsed and End - Start the larger counts."""
    offset, step_s, larger = along(number, EDGE_S, (1, 60, HOUR_S, 40 * DAY_S), ("elapsed", "span"))
    held_s = _longest(anchors) + offset
    run = _run(draw, anchors, number, held_s)
    _, end = span(run)
    if larger == "elapsed":
        run = replace(run, end=end - step_s, step_end=end - step_s, flags="elapsed_disagrees")
    else:
        run = replace(run, elapsed_s=max(1, held_s - 1 - step_s), flags="elapsed_disagrees")
    return Site(
        varies={"larger": larger, "step_s": step_s, "offset_s": offset},
        runs=(run,),
        ask=Ask(),
        intended=verdict_at(offset),
    )


FAMILIES = (
    Family(killed_grace, 504),
    Family(suspended, 420),
    Family(running_at_query, 336),
    Family(runaway, 360),
    Family(never_started, 240),
    Family(zero_length, 448),
    Family(node_fail, 448),
    Family(clock_change, 420),
    Family(unit_slip, 420),
    Family(outlived_end, 420),
    Family(clock_step, 392),
)
