"""Runs for tests of the store."""

from __future__ import annotations

from typing import Any

from slurm_trace.accounting.records import RunBlock, RunRecord, StepRecord, block_of
from slurm_trace.store.engine import Store
from slurm_trace.store.ingest import ImportInfo, ImportSummary, begin_import

T0 = 1_700_000_000


def run(job: int = 1, **changes: Any) -> RunRecord:
    """A run that completed."""
    submit = changes.get("submit", T0)
    values: dict[str, Any] = {
        "cluster": "c",
        "job_id_raw": job,
        "run_key": T0 if submit is None else submit,
        "submit": submit,
        "job_id": str(job),
        "state": "COMPLETED",
        "final": True,
        "started": True,
        "start": T0 + 10,
        "end": T0 + 110,
        "elapsed_s": 100,
        "alloc_tres": "billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,node=1",
        "user": "ada",
        "account": "lab",
        "source": "text",
        "line": job + 1,
    } | changes
    values.setdefault("raw", repr(sorted(values.items())).encode("utf-8", "surrogatepass"))
    return RunRecord(**values)


def running(job: int = 1, queried_at: int = T0 + 50, **changes: Any) -> RunRecord:
    """The same run while it ran."""
    told: dict[str, Any] = {
        "state": "RUNNING",
        "final": False,
        "end": None,
        "elapsed_s": queried_at - T0 - 10,
        "queried_at": queried_at,
    }
    return run(job, **(told | changes))


def step(
    job: int, start: int | None, end: int | None, name: str = "batch", finished: bool = True, **changes: Any
) -> StepRecord:
    """A step that came without its run."""
    values: dict[str, Any] = {
        "cluster": "c",
        "job_id_raw": job,
        "job_id": f"{job}.{name}",
        "start": start,
        "end": end,
        "finished": finished,
        "line": 1,
        "raw": f"{job}.{name}|{start}|{end}".encode(),
    }
    return StepRecord(**(values | changes))


def ingest(
    store: Store, *blocks: RunBlock | RunRecord, name: str = "test", cluster: str | None = None, **finish: Any
) -> ImportSummary:
    """Import blocks, or single runs as a block each."""
    with begin_import(store, ImportInfo("file", name, cluster=cluster)) as importing:
        for block in blocks:
            importing.add(block_of([block]) if isinstance(block, RunRecord) else block)
        return importing.finish(**finish)


def counts(summary: ImportSummary) -> tuple[int, int, int]:
    """Inserted, updated, unchanged."""
    assert summary.read == summary.jobs + summary.steps_skipped + len(summary.rejected)
    return summary.inserted, summary.updated, summary.unchanged
