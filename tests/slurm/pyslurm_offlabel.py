"""pyslurm 25.11.2, built against Slurm 26.05, beside that Slurm's own sacct, over a recorded accounting database.

Off label: pyslurm's makers support no such pair, and this shows nothing of a matching one. Run by
pyslurm_offlabel.sh inside a chroot; not collected otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from slurm_trace.accounting.commands import SubprocessRunner
from slurm_trace.accounting.discovery import LiveCluster, discover
from slurm_trace.accounting.live import LiveQuery, read_live
from slurm_trace.accounting.pyslurm_source import read_pyslurm
from slurm_trace.accounting.records import RunRecord
from slurm_trace.accounting.tres import parse_tres
from support.slurmdbd import Accounting, slurmdbd

pytestmark = pytest.mark.pyslurm_offlabel

CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "2411"
QUERY = LiveQuery(since=1_796_050_000, until=1_796_060_000)
# Texts that differ by nature: where it was read, TRES without memory and billing, a canceller's name for his number,
# steps of all runs (sacct is asked for those of some).
OF_THE_SOURCE = {
    "source",
    "line",
    "raw",
    "flags",
    "alloc_tres",
    "cancelled_by",
    "queried_at",
    "step_end",
    "step_count",
}
# pyslurm says None for no limit and for a year alike, and has no SLUID.
NOT_IN_PYSLURM = {"limit_s", "sluid"}
# Names of users come from the passwd file of the host, which knows none of the recorded ones.
OF_THE_HOST = {"user"}
# A run that waits: sacct shows the nodes asked for, pyslurm none. One that runs is a second older in the second answer.
ASKED_FOR = {"node_count", "cpu_count"}
AS_OF_NOW = {"elapsed_s"}

Key = tuple[int, int]


@pytest.fixture(scope="module")
def accounting() -> Iterator[Accounting]:
    with slurmdbd(CAPTURE / "slurm_acct_db.sql") as running:
        yield running


@pytest.fixture(scope="module")
def live(accounting: Accounting) -> LiveCluster:
    return discover(SubprocessRunner(accounting.environment))


def by_key(runs: Iterator[RunRecord]) -> dict[Key, RunRecord]:
    return {(r.job_id_raw, r.run_key): r for r in runs}


@pytest.fixture(scope="module")
def from_sacct(accounting: Accounting, live: LiveCluster) -> dict[Key, RunRecord]:
    windows = read_live(SubprocessRunner(accounting.environment), live, QUERY)
    return by_key(r for w in windows for b in w.blocks() for r in b.records())


@pytest.fixture(scope="module")
def from_pyslurm(accounting: Accounting, live: LiveCluster) -> dict[Key, RunRecord]:
    off_label = replace(live, version="25.11.2")
    found: dict[Key, RunRecord] = {}
    for window in read_pyslurm(SubprocessRunner(accounting.environment), off_label, QUERY):
        assert window.flags["source"] == "pyslurm", window.warnings
        assert window.covers is None
        found |= by_key(r for b in window.blocks() for r in b.records())
    return found


def test_versions(live: LiveCluster) -> None:
    assert live.release == (26, 5)


def test_every_run_of_pyslurm_is_a_run_of_sacct_and_reads_the_same(
    from_sacct: dict[Key, RunRecord], from_pyslurm: dict[Key, RunRecord]
) -> None:
    assert len(from_pyslurm) > 50
    assert set(from_pyslurm) <= set(from_sacct)
    for key, run in from_pyslurm.items():
        other = from_sacct[key]
        leave = OF_THE_SOURCE | NOT_IN_PYSLURM | OF_THE_HOST
        leave = leave | (set() if run.started else ASKED_FOR) | (set() if run.final else AS_OF_NOW)
        names = [f.name for f in fields(RunRecord) if f.name not in leave]
        assert {n: getattr(run, n) for n in names} == {n: getattr(other, n) for n in names}, key
        assert parse_tres(run.alloc_tres).gres == parse_tres(other.alloc_tres).gres
        if run.cancelled_by is not None:
            assert run.cancelled_by == other.cancelled_by


def test_it_misses_the_earlier_runs_of_a_job_and_nothing_else(
    from_sacct: dict[Key, RunRecord], from_pyslurm: dict[Key, RunRecord]
) -> None:
    missing = set(from_sacct) - set(from_pyslurm)
    assert missing
    seen = {raw for raw, _ in from_pyslurm}
    assert {raw for raw, _ in missing} <= seen


def test_another_release_is_refused(accounting: Accounting, live: LiveCluster) -> None:
    window = next(answers := read_pyslurm(SubprocessRunner(accounting.environment), live, QUERY))
    assert "pyslurm 25.11.2 is for another Slurm than 26.5" in window.warnings[0]
    assert window.flags["source"] == "sacct"
    answers.close()
