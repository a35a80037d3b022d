"""Reads accounting through pyslurm: a second opinion, never the only source.

pyslurm keeps one run a job id, so that the earlier runs of a requeued, preempted or resized job are missing. Nothing
read this way counts as complete; on any fault of it sacct is asked instead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

from slurm_trace.accounting.blocks import BlockMaker, empty_columns
from slurm_trace.accounting.commands import Runner
from slurm_trace.accounting.discovery import LiveCluster
from slurm_trace.accounting.live import LiveQuery, LiveWindow, plan_of, read_live
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunBlock, RunRecord
from slurm_trace.accounting.rows import ReadRow, RowReader
from slurm_trace.accounting.windows import Window

SOURCE = "pyslurm"
BLOCK_JOBS = 2000
LATEST_ONLY = (
    "pyslurm shows only the latest run of a job id; nothing counts as complete until the same time was "
    "imported by sacct"
)
# Slurm's "no value" in 32 bits, which pyslurm leaves in some places.
_NO_VALUE = (2**32 - 2, 2**32 - 1)


def read_pyslurm(runner: Runner, live: LiveCluster, query: LiveQuery) -> Iterator[LiveWindow]:
    """Read a live cluster through pyslurm, oldest window first; from the first fault on through sacct.

    Raises:
        EnvironmentProblem: sacct was needed, and failed.
    """
    plan = plan_of(runner, live, query)
    rest, warnings = query, [LATEST_ONLY]
    while not plan.finished:
        window, asked_at = plan.window(), runner.now()
        with TemporaryFile() as spool:
            fault = _ask(runner, live, window, spool, query.call_limit_s)
            if fault is not None:
                for found in read_live(runner, live, rest):
                    found.warnings[:0] = [f"pyslurm: {fault}; read by sacct instead"] if warnings else []
                    warnings = []
                    yield found
                return
            plan.done(spool.tell(), runner.now() - asked_at)
            rest = replace(query, since=plan.since)
            yield LiveWindow(
                asked=window,
                covers=None,
                watermark=None,
                queried_at=asked_at,
                flags={"source": SOURCE, "slurm": live.version, "all_users": True, "duplicates": False},
                warnings=warnings,
                read=partial(_blocks, spool, live.name, asked_at),
            )
            warnings = []


def _ask(runner: Runner, live: LiveCluster, window: Window, spool: IO[bytes], limit_s: float) -> str | None:
    """Spool the jobs of a window; why that failed, or None."""
    request = {"release": live.release, "cluster": live.name, "since": window.since, "until": window.until}
    argv = [sys.executable, "-m", "slurm_trace.accounting.pyslurm_child", json.dumps(request)]
    finished = runner.run(argv, spool, limit_s)
    if finished.status != 0:
        said = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        return replace(finished, stderr=said[-1] if said else "").reason
    last: Mapping[str, Any] = {}
    spool.seek(0)
    for line in spool:
        try:
            last = json.loads(line)
        except ValueError:
            return f"it printed {line[:40]!r}"
    if "fault" in last:
        return str(last["fault"])
    return None if "done" in last else "its answer broke off"


def _blocks(spool: IO[bytes], cluster: str, queried_at: int) -> Iterator[RunBlock]:
    options = ReadOptions(cluster=cluster, zone=UTC, queried_at=queried_at, source_name=SOURCE)
    maker, reader = BlockMaker(options), RowReader(options)
    rows: list[ReadRow] = []
    spool.seek(0)
    jobs = 0
    for number, line in enumerate(spool, start=1):
        job = json.loads(line).get("job")
        if job is None:
            continue
        read = reader.read(job_cells(job), number, line.rstrip())
        rows.append(replace(read, source=SOURCE) if isinstance(read, RunRecord) else read)
        rows.extend(reader.read(cells, number, b"") for cells in step_cells(job))
        jobs += 1
        if jobs % BLOCK_JOBS == 0:
            yield maker.make(empty_columns(), rows, last=False)
            rows = []
    yield maker.make(empty_columns(), rows, last=True)


def job_cells(job: Mapping[str, Any]) -> dict[str, str]:
    """A job of pyslurm as the cells of a row of sacct; its known faults are put right here."""
    cells = {
        "job_id": _shown_id(job),
        "job_id_raw": str(job["id"]),
        "state": _state(job),
        "submit": _moment(job["submit_time"]),
        "start": _moment(job["start_time"]),
        "end": _moment(job["end_time"]),
        # None stands for zero here.
        "elapsed_raw": str(job["elapsed_time"] or 0),
        "suspended": str(job["suspended_time"] or 0),
        "node_list": job["nodelist"] or "",
    }
    optional = {
        "cluster": job["cluster"],
        "db_index": job["db_index"],
        "name": job["name"],
        "user": job["user_name"],
        "uid": job["user_id"],
        "account": job["account"],
        "partition": job["partition"],
        "work_dir": job["working_directory"],
        "node_count": job["num_nodes"],
        "cpu_count": job["cpus"],
        "alloc_tres": _tres_text(job),
    }
    limit = job["time_limit"]
    optional["limit_raw" if isinstance(limit, int) else "limit"] = limit
    return cells | {name: str(value) for name, value in optional.items() if value is not None}


def step_cells(job: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The steps of a job as cells of rows."""
    for step in job["steps"]:
        name = f"{job['id']}.{step['id']}"
        yield {
            "job_id": name,
            "job_id_raw": name,
            "state": str(step["state"] or ""),
            "start": _moment(step["start_time"]),
            "end": _moment(step["end_time"]),
        }


def _shown_id(job: Mapping[str, Any]) -> str:
    array, task, waiting = job["array_id"], job["array_task_id"], job["array_tasks_waiting"]
    if array is not None:
        # Task 0 is taken for "no task".
        return f"{array}_[{waiting}]" if waiting else f"{array}_{0 if task is None else task}"
    het, offset = job["heterogeneous_id"], job["heterogeneous_offset"]
    if het and offset not in _NO_VALUE:
        return f"{het}+{offset or 0}"
    return str(job["id"])


def _state(job: Mapping[str, Any]) -> str:
    state, canceller = str(job["state"] or ""), job["cancelled_by"]
    return f"{state} by {canceller}" if state == "CANCELLED" and str(canceller).isdecimal() else state


def _moment(value: int | None) -> str:
    return "Unknown" if value is None or value in _NO_VALUE else str(value)


def _tres_text(job: Mapping[str, Any]) -> str | None:
    tres = job["allocated_tres"]
    if tres is None:
        return None
    # Of a job that waits, pyslurm shows what was asked for.
    return (
        ""
        if job["start_time"] is None
        else ",".join(sorted(f"{name}={count}" for name, count in tres.items()))
    )
