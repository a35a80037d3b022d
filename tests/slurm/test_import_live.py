"""The whole way: a real slurmdbd, the real sacct, the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from slurm_trace.accounting.commands import Finished, SubprocessRunner
from slurm_trace.accounting.lock import only_one
from slurm_trace.cli.import_live import LiveRequest, import_live
from slurm_trace.errors import EnvironmentProblem
from slurm_trace.store.engine import Store, open_store
from slurm_trace.store.ingest import ImportSummary
from slurm_trace.store.load import load_events, load_imports, load_runs
from support.slurmdbd import Accounting

pytestmark = pytest.mark.slurm2205

FIRST, LAST, RUNS = 1796050081, 1796050188, 69


class Host(SubprocessRunner):
    """The real commands on a clock that can be set; `broken` makes the n-th sacct fail as slurmdbd does."""

    def __init__(self, accounting: Accounting, now: int, *broken: int, **environment: str) -> None:
        super().__init__(accounting.environment | environment)
        self.time = now
        self.broken = broken
        self.calls = 0

    def run(self, argv: Sequence[str], stdout: IO[bytes], limit_s: float) -> Finished:
        if argv[0] == "sacct" and len(argv) > 2:
            self.calls += 1
            if self.calls in self.broken:
                super().run(argv, stdout, limit_s)
                return Finished(1, "sacct: error: Problem talking to the database: Connection refused")
        return super().run(argv, stdout, limit_s)

    def sleep(self, seconds: float) -> None: ...

    def now(self) -> int:
        return self.time


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr("slurm_trace.accounting.lock.lock_directory", lambda: tmp_path)
    opened = open_store(str(tmp_path / "store.db"), create=True)
    yield opened
    opened.close()


def bring(store: Store, host: Host, **request: object) -> ImportSummary:
    return import_live(store, LiveRequest(**request), lambda seen, whole: None, host)  # type: ignore[arg-type]


def test_import_and_again(store: Store, accounting: Accounting) -> None:
    first = bring(store, Host(accounting, LAST + 60), since=FIRST - 60)
    assert (first.jobs, first.inserted, first.rejected) == (RUNS, RUNS, [])
    runs = load_runs(store)
    assert len(runs) == RUNS
    assert {e.node for e in load_events(store)} == {"", "n3"}
    odd = runs[(runs.state == "NODE_FAIL") | (runs.state == "TIMEOUT")]
    assert odd.step_end.notna().all()

    again = bring(store, Host(accounting, LAST + 60), since=FIRST - 60)
    # Only the run that still runs has grown older.
    assert (again.jobs, again.inserted) == (RUNS, 0)
    assert again.updated <= 1
    after = load_runs(store)
    assert after[after.final].equals(runs[runs.final])


def test_covers_and_watermark_go_on(store: Store, accounting: Accounting) -> None:
    bring(store, Host(accounting, LAST + 60), since=FIRST - 60)
    bring(store, Host(accounting, LAST + 7200))
    covered = [(i.covers_from, i.covers_to) for i in load_imports(store) if i.kind == "sacct" and i.covers_to]
    assert covered[0] == (FIRST - 60, LAST + 50)
    assert covered[-1][1] == LAST + 7190
    assert len(load_runs(store)) == RUNS


def test_refused_twice_loses_nothing(store: Store, accounting: Accounting) -> None:
    summary = bring(store, Host(accounting, LAST + 60, 1, 2), since=FIRST - 60)
    assert summary.inserted == RUNS


def test_failure_leaves_the_watermark_and_the_next_import_catches_up(
    store: Store, accounting: Accounting
) -> None:
    bring(store, Host(accounting, FIRST + 30), since=FIRST - 60)
    seen = len(load_runs(store))
    with pytest.raises(EnvironmentProblem, match="Connection refused"):
        bring(store, Host(accounting, LAST + 60, *range(1, 30)))
    assert len(load_runs(store)) == seen
    bring(store, Host(accounting, LAST + 60))
    runs = load_runs(store)
    assert len(runs) == RUNS
    assert set(runs[~runs.final].state) == {"RUNNING", "PENDING"}


def test_one_import_at_a_time(store: Store, accounting: Accounting, tmp_path: Path) -> None:
    with only_one("sacct-lab", tmp_path), pytest.raises(EnvironmentProblem, match=f"process {os.getpid()}"):
        bring(store, Host(accounting, LAST + 60))
    assert len(load_runs(store)) == 0


def test_pyslurm_that_is_not_there_is_replaced_by_sacct(store: Store, accounting: Accounting) -> None:
    summary = bring(store, Host(accounting, LAST + 60), since=FIRST - 60, source="pyslurm")
    assert summary.inserted == RUNS
    assert any("pyslurm" in warning and "sacct instead" in warning for warning in summary.warnings)
