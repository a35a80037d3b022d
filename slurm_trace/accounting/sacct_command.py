"""The command lines of `sacct`, and what counts as an answer to one.

sacct prints nothing but an error if one field is unknown to it, exits with 0 on some failures, and never
escapes free text. So the fields are chosen from its own list, the header is checked, and free text comes last,
between rare delimiters.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from string import ascii_lowercase
from typing import IO

from slurm_trace.accounting.commands import Runner, ask
from slurm_trace.accounting.windows import Window
from slurm_trace.errors import EnvironmentProblem

#: Drawn anew for each process: a user who could know it could write whole records into the name of a job.
DELIMITER = "\x1f" + "".join(secrets.choice(ascii_lowercase) for _ in range(5))
# SubmitLine, Comment, AdminComment and the like are never asked for: long, free text, of no use here.
JOB_FIELDS = (
    "JobIDRaw",
    "JobID",
    "Cluster",
    "User",
    "UID",
    "Account",
    "Partition",
    "State",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "TimelimitRaw",
    "AllocNodes",
    "NNodes",
    "AllocCPUS",
    "AllocTRES",
    "AllocGRES",
    "DBIndex",
    "SLUID",
    "NodeList",
    "WorkDir",
    "JobName",
)
STEP_FIELDS = ("JobIDRaw", "JobID", "Cluster", "State", "Start", "End")
_INDISPENSABLE = frozenset({"JobIDRaw", "JobID", "State", "Submit", "Start", "End"})

# Ends other than COMPLETED: only there can a step outlive its job's End.
ODD_ENDS = (
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
)
IDS_A_CALL = 1000
# slurmdbd's answers to a question beyond MaxQueryTimeRange, or beyond the size of one message.
_TOO_MUCH = ("too wide of a date range", "exceeds size limit")


def known_fields(runner: Runner) -> frozenset[str]:
    """The fields that this sacct knows.

    Raises:
        EnvironmentProblem: sacct cannot be run, or is too old to identify a run.
    """
    known = frozenset(ask(runner, ["sacct", "--helpformat"]).split())
    missing = sorted(_INDISPENSABLE - known)
    if missing:
        raise EnvironmentProblem(
            f"this sacct has no field {', '.join(missing)}; use a sacct of Slurm 17.11 or later"
        )
    return known


def job_call(cluster: str, window: Window, fields: Sequence[str]) -> list[str]:
    """All runs that touched a window, one row each, earlier runs of a requeued job included."""
    return [*_call(cluster, fields), "--allocations", *_between(window)]


def id_call(cluster: str, ids: Sequence[int], fields: Sequence[str]) -> list[str]:
    """All runs of some jobs with their steps, whenever they ran. An id unknown to sacct is no error, only absent."""
    return [*_call(cluster, fields), f"--jobs={','.join(map(str, ids))}"]


def step_call(cluster: str, window: Window) -> list[str]:
    """The steps (and again the jobs) that ended in a window other than COMPLETED."""
    return [*_call(cluster, STEP_FIELDS), f"--state={','.join(ODD_ENDS)}", *_between(window)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call went.

    Attributes:
        problem: Why its output must not be used; None if it is good.
        too_much: It took too long or was refused for its size, so that a smaller question may help.
        remark: What a good call said on standard error.
    """

    problem: str | None = None
    too_much: bool = False
    remark: str = ""


def run_call(runner: Runner, argv: Sequence[str], stdout: IO[bytes], limit_s: float) -> Outcome:
    """Run one call. Only status 0 together with the header that was asked for is an answer."""
    finished = runner.run(argv, stdout, limit_s)
    if finished.status != 0:
        too_much = finished.status is None or any(word in finished.stderr.lower() for word in _TOO_MUCH)
        return Outcome(finished.reason, too_much=too_much)
    stdout.seek(0)
    first = stdout.readline().decode("utf-8", "replace").strip(" \r\n")
    stdout.seek(0)
    wanted = next(a.removeprefix("--format=") for a in argv if a.startswith("--format=")).split(",")
    if first.casefold().split(DELIMITER) == [name.casefold() for name in [*wanted, ""]]:
        return Outcome(remark=finished.reason if finished.stderr.strip() else "")
    said = f"printed {first[:80]!r} in place of its header" if first else "printed nothing"
    return Outcome(f"{said} ({finished.reason})")


def has_rows(output: IO[bytes]) -> bool:
    """Whether an answer holds more than its header."""
    output.seek(0)
    output.readline()
    return bool(output.read(1))


def keep_steps(output: IO[bytes], kept: IO[bytes]) -> None:
    """Copy a step call's header and step rows; its job rows are poorer than those of the job call."""
    output.seek(0)
    kept.write(output.readline())
    for line in output:
        if b"." in line.partition(DELIMITER.encode())[0]:
            kept.write(line)


def _call(cluster: str, fields: Sequence[str]) -> list[str]:
    return [
        "sacct",
        f"--clusters={cluster}",
        "--allusers",
        "--duplicates",
        "--parsable",
        f"--delimiter={DELIMITER}",
        f"--format={','.join(fields)}",
    ]


def _between(window: Window) -> list[str]:
    start, end = (
        datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S") for t in (window.since, window.until)
    )
    return [f"--starttime={start}", f"--endtime={end}"]
