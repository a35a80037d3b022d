"""Asks pyslurm for jobs, in a process of its own.

`import pyslurm` loads libslurm, which may end the process that it lives in without an exception (no slurm.conf, a bad
one), and pyslurm is GPL-2.0-only. Standard library otherwise. Prints one JSON object a line: `{"job": ...}` for each
job, then `{"done": n}`, or `{"fault": "..."}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PLAIN = (
    "id",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "heterogeneous_id",
    "heterogeneous_offset",
    "db_index",
    "cluster",
    "name",
    "user_name",
    "user_id",
    "account",
    "partition",
    "state",
    "cancelled_by",
    "submit_time",
    "start_time",
    "end_time",
    "elapsed_time",
    "suspended_time",
    "time_limit",
    "num_nodes",
    "cpus",
    "nodelist",
    "working_directory",
)
_STEP_PLAIN = ("state", "start_time", "end_time")
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def answer(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages that answer a request of `release`, `cluster`, `since` and `until`."""
    conf = os.environ.get("SLURM_CONF")
    if not any(Path(path).is_file() for path in ([conf] if conf else _CONFIGURATIONS)):
        # libslurm would retry for a minute and then end this process.
        yield {"fault": f"no slurm.conf at {conf or ', '.join(_CONFIGURATIONS)}"}
        return
    os.environ["PYSLURM_DISABLE_AUTO_INIT"] = "1"
    try:
        import pyslurm
    except ImportError as error:
        yield {"fault": f"pyslurm is not installed ({error})"}
        return
    release = ".".join(map(str, request["release"]))
    if pyslurm.__version__.split(".")[:2] != release.split("."):
        yield {"fault": f"pyslurm {pyslurm.__version__} is for another Slurm than {release}"}
        return
    pyslurm.slurm_init()
    wanted = pyslurm.db.JobFilter(
        clusters=[request["cluster"]], start_time=request["since"], end_time=request["until"]
    )
    try:
        jobs = pyslurm.db.Jobs.load(wanted)
    except IndexError as error:
        # Statistics of a step over several components of a het job: pyslurm then returns no job at all.
        yield {"fault": f"pyslurm failed on a step of a het job ({error})"}
        return
    for job in jobs.values():
        yield {"job": _job(job)}
    yield {"done": len(jobs)}


def _job(job: Any) -> dict[str, Any]:
    found = {name: getattr(job, name, None) for name in _PLAIN}
    found["allocated_tres"] = _tres(getattr(job, "allocated_tres", None))
    found["steps"] = [
        {"id": str(key), **{name: getattr(step, name, None) for name in _STEP_PLAIN}}
        for key, step in (getattr(job, "steps", None) or {}).items()
    ]
    return found


def _tres(tres: Any) -> dict[str, int] | None:
    """Counts by name; None where this pyslurm does not tell them."""
    if tres is None:
        return None
    counts = {name: getattr(tres, name, None) for name in ("cpu", "node")}
    counts |= {f"gres/{name}": count for name, count in (getattr(tres, "gres", None) or {}).items()}
    return {name: getattr(count, "count", count) for name, count in counts.items() if count is not None}


def main() -> None:
    """Answer the request given as the only argument."""
    for message in answer(json.loads(sys.argv[1])):
        sys.stdout.write(json.dumps(message, default=str) + "\n")


if __name__ == "__main__":
    main()
