"""How one run is named, so that `explain` takes the name back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, SupportsInt

if TYPE_CHECKING:
    import pandas as pd


def moment(epoch_s: object) -> str:
    """A time as `explain` takes it back after the @."""
    if not isinstance(epoch_s, SupportsInt):
        return "unknown"
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_name(runs: pd.DataFrame, i: int) -> str:
    """CLUSTER:ID@SUBMIT of the run at position i; some exports lack Submit, and the start tells their runs apart."""
    when: Any = runs["submit"].iat[i]
    if not isinstance(when, SupportsInt):
        when = runs["start"].iat[i]
    return f"{runs['cluster'].iat[i]}:{runs['job_id'].iat[i]}@{moment(when)}"
