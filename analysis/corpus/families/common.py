"""Parts from which the families build their sites."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from slurm_trace.analysis.corpus.anchors import UNTYPED, Anchors
from slurm_trace.analysis.corpus.draw import Draw
from slurm_trace.analysis.corpus.site import Ask, Run, Site
from slurm_trace.analysis.verdicts import NOT_RULED_OUT, RULED_OUT

DAY_S = 86_400
LONGEST_RUN_S = 200 * DAY_S
"""Runs are made wide enough to reach their threshold within this."""

EDGE_S = (-1000, -2, -1, 0, 1, 2, 1000)
"""Seconds between the longest hold that stays below a limit and the hold of an instance."""

PERCENT = (0, 1, 50, 99, 100)
"""How hard the hardware really worked."""

MODIFICATIONS = ("eu-modifier-gpai", "eu-modifier-systemic")
"""Thresholds that are a third of the base model's compute where that is known."""

REGISTERED = "billing=1,cpu=1,energy=1,gres/gpu=1,gres/mps=1,gres/shard=1,mem=1,node=1"
"""TRES of a cluster that records every GPU and every share of one."""


def limit_flop(anchors: Anchors, ask: Ask) -> int:
    """A bound below this is below the threshold with its margin."""
    margin = Fraction(anchors.margin) if ask.margin is None else ask.margin
    return math.floor(Fraction(threshold_flop(anchors, ask)) / (1 + margin))


def threshold_flop(anchors: Anchors, ask: Ask) -> int:
    """The threshold of a question, which names one or is a number of operations; of a modification a third."""
    known = anchors.thresholds.get(ask.threshold)
    if ask.threshold in MODIFICATIONS and ask.base_flop is not None:
        return ask.base_flop // 3
    return int(ask.threshold) if known is None else known


def longest_s(limit: int, flop_s: int) -> int:
    """Most whole seconds at this rate that stay below the limit."""
    return (limit - 1) // flop_s


def verdict_at(offset: int) -> str:
    """The verdict on what lies so far past the longest hold below the limit."""
    return RULED_OUT if offset <= 0 else NOT_RULED_OUT


def verdict_of(flop: int, limit: int) -> str:
    """The verdict on a bound of so many operations."""
    return RULED_OUT if flop < limit else NOT_RULED_OUT


def tres(cpus: int, nodes: int = 1, gpus: int = 0, label: str = UNTYPED, more: str = "") -> str:
    """AllocTRES with the GPUs by type where there is one, and in all."""
    typed = f"gres/gpu:{label}={gpus}," if gpus and label else ""
    plain = f"gres/gpu={gpus}," if gpus else ""
    return f"billing={cpus},cpu={cpus},{typed}{plain}{more}mem={cpus * 4}G,node={nodes}"


def width(anchors: Anchors, ask: Ask, flop_s_of_node: int, at_most_s: int = LONGEST_RUN_S) -> int:
    """Nodes with which the threshold can be reached in time."""
    return max(1, -(-limit_flop(anchors, ask) // (flop_s_of_node * at_most_s)))


def ended(
    draw: Draw, anchors: Anchors, number: int, *, held_s: int, flop_s: int, percent: int, **told: Any
) -> Run:
    """A run that completed and let go `held_s` after its start, the last second of which is that of its End.

    Args:
        draw: Where times and waiting come from.
        anchors: The ceilings.
        number: JobIDRaw.
        held_s: Seconds up to its release; at least 1.
        flop_s: What its devices can do in a second.
        percent: How hard they worked; None in `told["true_flop"]` overrides it.
        told: Whatever else its record says.
    """
    end = anchors.complete_through - draw.between(2, 300) * DAY_S
    start = end - (held_s - 1)
    values: dict[str, Any] = {
        "job_id_raw": number,
        "submit": start - draw.between(0, 5000),
        "start": start,
        "end": end,
        "elapsed_s": held_s - 1,
        "limit_s": held_s + 3600,
        "step_end": end,
        "step_count": 2,
        "true_flop": held_s * flop_s * percent // 100,
    }
    return Run(**(values | told))


def at_edge(draw: Draw, anchors: Anchors, number: int, flop_s: int, offset: int, **told: Any) -> Run:
    """A run that was held for as long as brings its devices to T, and `offset` seconds more, at some load."""
    percent = draw.pick(PERCENT)
    return ended(
        draw, anchors, number, held_s=held_at(anchors, flop_s, offset), flop_s=flop_s, percent=percent, **told
    )


def span(run: Run) -> tuple[int, int]:
    """Start and End of a run that has both."""
    if run.start is None or run.end is None:
        raise ValueError(f"run {run.job_id_raw} has no Start or no End")
    return run.start, run.end


def moved(run: Run, by_s: int) -> Run:
    """The run so many seconds later."""
    later: dict[str, Any] = {
        name: value + by_s
        for name in ("submit", "start", "end", "step_end")
        if isinstance(value := getattr(run, name), int)
    }
    return replace(run, **later)


def held_at(anchors: Anchors, flop_s: int, offset_s: int) -> int:
    """So many seconds past the longest hold at this rate that stays below the default question's limit."""
    return longest_s(limit_flop(anchors, Ask()), flop_s) + offset_s


def one_run(offset_s: int, run: Run, intended: str | None = None, **more: Any) -> Site:
    """A site of one run, with the verdict of its offset unless another is intended.

    Args:
        offset_s: How far past the limit it lies.
        run: The run.
        intended: The verdict, where the offset does not decide it.
        more: `profiles` and `events` of the site; all else is what sets it apart.
    """
    parts = {name: more.pop(name) for name in ("profiles", "events") if name in more}
    return Site(
        varies={**more, "offset_s": offset_s},
        runs=(run,),
        ask=Ask(),
        intended=verdict_at(offset_s) if intended is None else intended,
        **parts,
    )
