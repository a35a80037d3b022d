"""The rows of one job: tasks of an array, components of a heterogeneous job, requeues and resizes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from slurm_trace.analysis.components import Links, dense, linked
from slurm_trace.analysis.exact import Ints

COLUMNS = ("array_job_id", "het_job_id", "name")
"""What it takes beside the columns of the question."""


def family_links(runs: pd.DataFrame, person: Ints) -> list[Links]:
    """Links between the rows of one job.

    Array tasks and het components share the job's id; a requeue and a resize keep the raw id. Ids start again when a
    controller loses its state, so the rows of another person are another job; those of the same person are taken
    together, since nothing tells a late requeue from a used-up id.

    Args:
        runs: Columns cluster, job_id_raw, array_job_id, het_job_id.
        person: Who each run belongs to.
    """
    cluster = runs["cluster"].astype("category").cat.codes.to_numpy()
    raw = runs["job_id_raw"].to_numpy(dtype=np.int64)
    array, het = (runs[name].fillna(-1).to_numpy(dtype=np.int64) for name in ("array_job_id", "het_job_id"))
    job = np.where(array >= 0, array, np.where(het >= 0, het, raw))
    links = linked(dense(cluster, person, job))
    if (job == raw).all():
        return [links]
    return [links, linked(dense(cluster, person, raw))]
