"""The families by theme."""

from __future__ import annotations

from slurm_trace.analysis.corpus.families import (
    beyond,
    counts,
    kinds,
    records,
    rungs,
    splitting,
    thresholds,
    times,
)
from slurm_trace.analysis.corpus.site import Family

FAMILIES: tuple[Family, ...] = (
    *thresholds.FAMILIES,
    *times.FAMILIES,
    *counts.FAMILIES,
    *kinds.FAMILIES,
    *splitting.FAMILIES,
    *records.FAMILIES,
    *rungs.FAMILIES,
    *beyond.FAMILIES,
)
