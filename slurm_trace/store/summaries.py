"""What the samples of runs come to, as far as it is kept run by run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from sqlalchemy import select

from slurm_trace.store.bulk import NO_INTEGER, in_chunks
from slurm_trace.store.engine import Store
from slurm_trace.store.models import job_summary
from slurm_trace.store.numbers import load_numbers

COLUMNS = (
    "run_id", "gpus", "covered_ms", "utilization_ms", "utilization_pct_ms", "utilization_max_pct", "power_max_mw",
    "energy_mj", "energy_resets", "memory_used_max_bytes", "sm_clock_top_mhz", "sm_clock_max_mhz",
    "process_max",
)  # fmt: skip


def load_summaries(store: Store, run_ids: Iterable[int] | None = None) -> pd.DataFrame:
    """One row a run that has leases: COLUMNS as floats, NaN for NULL, with `run_id` as the index.

    Args:
        store: The store.
        run_ids: Of these runs, of which there are few; None for all.
    """
    columns = [job_summary.c[name] for name in COLUMNS]
    with store.reading() as connection:
        if run_ids is None:
            numbers = load_numbers(connection, columns)
            table = np.where(numbers == NO_INTEGER, np.nan, numbers)
        else:
            chosen = (select(*columns).where(job_summary.c.run_id.in_(ids)) for ids in in_chunks(run_ids))
            rows = [tuple(row) for query in chosen for row in connection.execute(query)]
            table = np.array(rows, dtype=np.float64).reshape(len(rows), len(COLUMNS))
    frame = pd.DataFrame(table, columns=list(COLUMNS))
    return frame.set_index(frame.pop("run_id").astype(np.int64))
