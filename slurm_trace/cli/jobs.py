"""JOB on the command line: which run a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_trace.analysis.names import RunNames
from slurm_trace.cli import output
from slurm_trace.cli.tables import TOP
from slurm_trace.errors import UsageProblem

if TYPE_CHECKING:
    import pandas as pd


def find_run(runs: pd.DataFrame, job: str) -> int:
    """Position of the run that JOB names.

    Args:
        runs: With cluster, job_id, job_id_raw, submit and start.
        job: [CLUSTER:]ID[@SUBMIT].

    Raises:
        UsageProblem: It names none, or several.
    """
    from slurm_trace.accounting.times import parse_moment

    text, _, submit = job.partition("@")
    cluster, _, job_id = text.rpartition(":")
    when = runs["submit"].fillna(runs["start"])  # some exports lack Submit
    shown = runs["job_id"].astype(str)
    hit = shown == job_id
    if job_id.isdecimal() and len(job_id) < 19:
        hit |= (runs["job_id_raw"] == int(job_id)).fillna(False)
        hit |= shown.str.startswith((job_id + "_", job_id + "+"))  # tasks of an array, parts of a het job
    if cluster:
        hit &= runs["cluster"].astype(str) == cluster
    if submit:
        hit &= (when == parse_moment(submit)).fillna(False)
    positions = [int(i) for i in hit.to_numpy(dtype=bool).nonzero()[0]]
    if len(positions) == 1:
        return positions[0]
    if not positions:
        raise UsageProblem(
            f"no run {output.printable(job)} in the store; JOB is [CLUSTER:]ID[@SUBMIT], see `slurm-trace rank`"
        )
    named = RunNames(runs)
    names = [named[i] for i in positions[:TOP]]
    more = f" and {len(positions) - TOP} more" if len(positions) > TOP else ""
    raise UsageProblem(
        f"{output.printable(job)} is the name of several runs: {', '.join(names)}{more}; name one of them"
    )
