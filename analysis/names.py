"""How one run is named, so that `explain` takes the name back."""

from __future__ import annotations

from datetime import UTC, datetime
from numbers import Integral
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def moment(epoch_s: object) -> str:
    """A time as `explain` takes it back after the @."""
    if not isinstance(epoch_s, Integral):
        return "unknown"
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class RunNames:
    """CLUSTER:ID@SUBMIT of the run at a position; some exports lack Submit, and the start tells their runs apart.

    Args:
        runs: Columns cluster, job_id, submit, start.
    """

    def __init__(self, runs: pd.DataFrame) -> None:
        self._cluster, self._job_id = runs["cluster"].array, runs["job_id"].array
        self._submit, self._start = runs["submit"].array, runs["start"].array

    def __getitem__(self, i: int) -> str:
        when: Any = self._submit[i]
        if not isinstance(when, Integral):
            when = self._start[i]
        return f"{self._cluster[i]}:{self._job_id[i]}@{moment(when)}"
