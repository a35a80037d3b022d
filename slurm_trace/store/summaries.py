"""What the samples of runs come to, as far as it is kept run by run."""

from __future__ import annotations

import numpy as np
import pandas as pd

from slurm_trace.store.bulk import NO_INTEGER
from slurm_trace.store.engine import Store
from slurm_trace.store.models import job_summary
from slurm_trace.store.numbers import load_numbers

COLUMNS = (
    "run_id", "gpus", "covered_ms", "utilization_ms", "utilization_pct_ms", "utilization_max_pct", "power_max_mw",
    "energy_mj", "energy_resets", "memory_used_max_bytes", "sm_clock_top_mhz", "sm_clock_max_mhz",
    "process_max",
)  # fmt: skip


def load_summaries(store: Store) -> pd.DataFrame:
    """One row a run that has leases: COLUMNS as floats, NaN for NULL, with `run_id` as the index."""
    with store.reading() as connection:
        numbers = load_numbers(connection, [job_summary.c[name] for name in COLUMNS])
    table = np.where(numbers == NO_INTEGER, np.nan, numbers)
    frame = pd.DataFrame(table, columns=list(COLUMNS))
    return frame.set_index(frame.pop("run_id").astype(np.int64))
