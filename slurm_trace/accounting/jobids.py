"""The grammar of JobID: `30`, `30_5`, `30_[1-10%2]`, `32+1`, and each of them with a step."""

from __future__ import annotations

import re
from typing import NamedTuple

_JOB_ID = re.compile(
    r"(?P<job>\d{1,18})(?:_(?:(?P<task>\d{1,10})|(?P<tasks>\[[^\]]*\]|\[[0-9,%:\-]*\+?)))?"
    r"(?:\+(?P<het>\d{1,6}))?(?:\.(?P<step>\S+))?",
    re.ASCII,
)


class JobRef(NamedTuple):
    """A job id as Slurm shows it, taken apart.

    Attributes:
        job: The number before `_`, `+` or `.`.
        task: Number of the array task.
        tasks: Unstarted tasks of an array, with their brackets.
        het: Offset of the component of a heterogeneous job.
        step: Name of the step; None for a job.
    """

    job: int
    task: int | None = None
    tasks: str | None = None
    het: int | None = None
    step: str | None = None

    @property
    def shown(self) -> str:
        """The id without its step."""
        array = f"_{self.task}" if self.task is not None else f"_{self.tasks}" if self.tasks else ""
        return f"{self.job}{array}" + (f"+{self.het}" if self.het is not None else "")

    @property
    def array_job(self) -> int | None:
        """Id of the array this is a task of."""
        return self.job if self.task is not None or self.tasks else None

    @property
    def het_job(self) -> int | None:
        """Id of the heterogeneous job this is a component of."""
        return self.job if self.het is not None else None

    @property
    def raw(self) -> int | None:
        """Slurm's own number where the shown id tells it: never for an array task, whose number no rule gives.

        A component of a heterogeneous job has the number of the first one plus its offset; tasks that did not start
        are kept under the number of their array.
        """
        if self.task is not None:
            return None
        return self.job + (self.het or 0)


def parse_job_id(text: str) -> JobRef:
    """Take a JobID apart.

    Raises:
        ValueError: The text is no job id.
    """
    match = _JOB_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no job id")
    job, task, tasks, het, step = match.group("job", "task", "tasks", "het", "step")
    if int(job) == 0:
        raise ValueError("0 is no job id")
    return JobRef(
        int(job),
        int(task) if task is not None else None,
        tasks,
        int(het) if het is not None else None,
        step,
    )
