"""Steps find the run they belong to: only their times count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slurm_trace.accounting.records import RUN_FIELDS, StepRecord

_RAW_ID, _CLUSTER, _START, _STARTED, _LINE, _STEP_END, _STEP_COUNT = (
    RUN_FIELDS.index(name)
    for name in ("job_id_raw", "cluster", "start", "started", "line", "step_end", "step_count")
)


def attach_steps(columns: tuple[list[Any], ...], steps: Iterable[StepRecord]) -> list[StepRecord]:
    """Enter steps into the runs of a block.

    A step belongs to the last run of its job that stands before it (or, in JSON, around it) and started no later.

    Args:
        columns: Columns of the runs in the order of RUN_FIELDS; `step_end` and `step_count` are changed.
        steps: Steps in the order of the input.

    Returns:
        The steps that no run of the block could take.
    """
    waiting = list(steps)
    if not waiting:
        return []
    wanted = {step.job_id_raw for step in waiting}
    clusters, starts, started, lines = columns[_CLUSTER], columns[_START], columns[_STARTED], columns[_LINE]
    runs: dict[tuple[str | None, int], list[int]] = {}
    for i, raw_id in enumerate(columns[_RAW_ID]):
        if raw_id in wanted and started[i]:
            runs.setdefault((clusters[i], raw_id), []).append(i)
    ends, counts = columns[_STEP_END], columns[_STEP_COUNT]
    orphans: list[StepRecord] = []
    for step in waiting:
        for i in reversed(runs.get((step.cluster, step.job_id_raw), ())):
            late = step.start is not None and starts[i] is not None and starts[i] > step.start
            if lines[i] <= step.line and not late:
                counts[i] = (counts[i] or 0) + step.finished
                if step.finished and step.end is not None:
                    ends[i] = max(step.end, ends[i] or step.end)
                break
        else:
            orphans.append(step)
    return orphans
