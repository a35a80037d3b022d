"""The adapter against a stand-in with pyslurm's known faults, in a real child process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from slurm_trace.accounting.commands import Finished, SubprocessRunner
from slurm_trace.accounting.discovery import LiveCluster
from slurm_trace.accounting.live import LiveQuery, LiveWindow
from slurm_trace.accounting.pyslurm_source import LATEST_ONLY, read_pyslurm
from slurm_trace.accounting.records import RunRecord
from slurm_trace.accounting.sacct_command import DELIMITER, JOB_FIELDS
from slurm_trace.accounting.windows import DAY_S
from slurm_trace.errors import EnvironmentProblem

NOW = 1_800_000_000
T0 = "1700000000"
NO_VALUE = 2**32 - 2
LIVE = LiveCluster(name="lab", version="25.11.2", private_data=False)
FAKE = Path(__file__).parents[1] / "support" / "fake_pyslurm"


def job(number: int, **changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": number,
        "array_id": None,
        "array_task_id": None,
        "array_tasks_waiting": None,
        "heterogeneous_id": None,
        "heterogeneous_offset": NO_VALUE,
        "db_index": 14899746724583529472 + number,
        "cluster": "lab",
        "name": "train|a\nb",
        "user_name": "ada",
        "user_id": 7001,
        "account": "ml",
        "partition": "gpu",
        "state": "COMPLETED",
        "cancelled_by": None,
        "submit_time": NOW - 900,
        "start_time": NOW - 800,
        "end_time": NOW - 700,
        "elapsed_time": 100,
        "suspended_time": None,
        "time_limit": 60,
        "num_nodes": 2,
        "cpus": 64,
        "nodelist": "n[1-2]",
        "working_directory": "/w",
        "allocated_tres": {"cpu": 64, "node": 2, "gres": {"gpu": 12, "gpu:h100": 4}},
        "steps": {},
    }
    return plain | changes


class Host(SubprocessRunner):
    """Real child processes under the stand-in for pyslurm; sacct answers with one run, or fails."""

    def __init__(self, conf: Path, scenario: dict[str, Any] | None, sacct: int = 0) -> None:
        environment = {**os.environ, "SLURM_CONF": str(conf), "FAKE_PYSLURM": json.dumps(scenario)}
        if scenario is not None:
            environment["PYTHONPATH"] = str(FAKE)
        super().__init__(environment)
        self.sacct = sacct

    def run(self, argv: Sequence[str], stdout: IO[bytes], limit_s: float) -> Finished:
        if argv[0] != "sacct":
            return super().run(argv, stdout, limit_s)
        if self.sacct:
            return Finished(self.sacct, "sacct: error: down")
        if "--helpformat" in argv:
            stdout.write(" ".join(JOB_FIELDS).encode())
            return Finished(0, "")
        fields = next(a for a in argv if a.startswith("--format=")).removeprefix("--format=").split(",")
        row = {"JobIDRaw": "77", "JobID": "77", "State": "COMPLETED", "Submit": T0, "Start": T0, "End": T0}
        for cells in (fields, [row.get(f, "") for f in fields]):
            stdout.write("".join(c + DELIMITER for c in cells).encode() + b"\n")
        return Finished(0, "")

    def sleep(self, seconds: float) -> None: ...

    def now(self) -> int:
        return NOW


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=lab\n")
    return path


def read(host: Host, live: LiveCluster = LIVE, **query: Any) -> tuple[list[LiveWindow], list[RunRecord]]:
    found, runs = [], []
    for window in read_pyslurm(host, live, LiveQuery(**({"since": NOW - 1000, "steps": False} | query))):
        found.append(window)
        for block in window.blocks():
            assert not block.rejected
            runs += block.records()
    return found, runs


def test_a_job(conf: Path) -> None:
    (run,) = read(Host(conf, {"jobs": [job(5)]}))[1]
    assert (run.job_id, run.job_id_raw, run.run_key, run.source) == ("5", 5, NOW - 900, "pyslurm")
    assert (run.start, run.end, run.elapsed_s, run.suspended_s) == (NOW - 800, NOW - 700, 100, 0)
    assert run.alloc_tres == "cpu=64,gres/gpu:h100=4,gres/gpu=12,node=2"
    assert (run.node_list, run.node_count, run.cpu_count, run.limit_s) == ("n[1-2]", 2, 64, 3600)
    assert (run.name, run.user, run.uid, run.account) == ("train|a\nb", "ada", 7001, "ml")
    assert run.db_index == str(14899746724583529472 + 5)
    assert (run.final, run.started, run.flags) == (True, True, "")


def test_nothing_read_by_pyslurm_counts_as_complete(conf: Path) -> None:
    windows, _ = read(Host(conf, {"jobs": [job(5)]}), since=NOW - 5 * DAY_S)
    assert len(windows) == 3
    assert {w.covers for w in windows} == {w.watermark for w in windows} == {None}
    assert [w.warnings for w in windows] == [[LATEST_ONLY], [], []]
    assert windows[0].flags["duplicates"] is False


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"array_id": 5, "array_task_id": 3}, "5_3"),
        ({"array_id": 5, "array_task_id": None}, "5_0"),
        (
            {"array_id": 5, "array_tasks_waiting": "1-10%2", "state": "PENDING", "start_time": None},
            "5_[1-10%2]",
        ),
        ({"heterogeneous_id": 5, "heterogeneous_offset": None}, "5+0"),
        ({"heterogeneous_id": 5, "heterogeneous_offset": 2}, "5+2"),
        ({"heterogeneous_id": None, "heterogeneous_offset": NO_VALUE}, "6"),
        ({"heterogeneous_id": 0, "heterogeneous_offset": NO_VALUE}, "6"),
    ],
)
def test_task_zero_and_no_value(conf: Path, changes: dict[str, Any], shown: str) -> None:
    (run,) = read(Host(conf, {"jobs": [job(6, **changes)]}))[1]
    assert (run.job_id, run.job_id_raw) == (shown, 6)


def test_none_in_place_of_zero(conf: Path) -> None:
    short = job(7, end_time=NOW - 800, elapsed_time=None, suspended_time=None)
    (run,) = read(Host(conf, {"jobs": [short]}))[1]
    assert (run.elapsed_s, run.suspended_s, run.started) == (0, 0, True)


def test_pending_and_never_started(conf: Path) -> None:
    waiting = {"start_time": None, "end_time": None, "elapsed_time": None, "nodelist": "None assigned"}
    jobs = [
        job(8, state="PENDING", time_limit="PartitionLimit", **waiting),
        job(9, state="CANCELLED", cancelled_by=7001, **{**waiting, "end_time": NOW - 500}),
        job(10, state="CANCELLED", cancelled_by="root"),
        job(11, state="RUNNING", end_time=None, time_limit=None),
    ]
    pending, never, cancelled, running = read(Host(conf, {"jobs": jobs}))[1]
    assert (pending.started, pending.alloc_tres, pending.limit_s, pending.final) == (False, "", None, False)
    assert (never.started, never.cancelled_by, never.final) == (False, 7001, True)
    assert (cancelled.state, cancelled.cancelled_by, cancelled.started) == ("CANCELLED", None, True)
    assert (running.final, running.queried_at, running.end) == (False, NOW, None)


def test_steps_give_their_end(conf: Path) -> None:
    steps = {
        "batch": {"state": "CANCELLED", "start_time": NOW - 800, "end_time": NOW - 600},
        "0": {"state": "RUNNING", "start_time": NOW - 800, "end_time": None},
    }
    (run,) = read(Host(conf, {"jobs": [job(12, state="TIMEOUT", steps=steps)]}))[1]
    assert (run.step_end, run.step_count) == (NOW - 600, 1)


def test_without_allocated_tres_the_count_is_unknown(conf: Path) -> None:
    assert read(Host(conf, {"jobs": [job(13, allocated_tres=None)]}))[1][0].alloc_tres is None


def test_requeued_runs_are_missing_and_that_is_said(conf: Path) -> None:
    runs = [job(14, state="REQUEUED", submit_time=NOW - 950), job(14)]
    windows, read_runs = read(Host(conf, {"jobs": runs}))
    assert [r.run_key for r in read_runs] == [NOW - 900]
    assert "latest run" in windows[0].warnings[0]


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (None, "pyslurm is not installed"),
        ({"version": "25.5.0"}, "pyslurm 25.5.0 is for another Slurm than 25.11"),
        ({"version": "26.11.0"}, "is for another Slurm"),
        ({"index": True}, "step of a het job"),
        ({"rpc": "Unable to contact slurmdbd"}, "exit 1: pyslurm.RPCError: Unable to contact slurmdbd"),
        ({"fatal": True}, "exit 1"),
        ({"crash": True, "jobs": [job(1), job(2)]}, "its answer broke off"),
        ({"chatter": True, "jobs": [job(1)]}, "it printed"),
    ],
)
def test_any_fault_falls_back_to_sacct_with_the_reason(
    conf: Path, scenario: dict[str, Any] | None, reason: str
) -> None:
    windows, runs = read(Host(conf, scenario))
    assert {r.job_id_raw for r in runs} == {77}
    assert {r.source for r in runs} == {"sacct"}
    assert reason in windows[0].warnings[0]
    assert "read by sacct instead" in windows[0].warnings[0]
    assert "\n" not in windows[0].warnings[0]
    assert windows[0].covers is not None


def test_missing_configuration_is_noticed_before_libslurm_is_loaded(tmp_path: Path) -> None:
    windows, _ = read(Host(tmp_path / "none.conf", {"jobs": []}))
    assert "no slurm.conf at" in windows[0].warnings[0]


def test_fallback_from_the_beginning_starts_at_the_beginning(conf: Path) -> None:
    windows, _ = read(Host(conf, {"index": True}), since=None, first_seen=NOW - DAY_S)
    assert windows[0].asked is not None
    assert windows[0].asked.since == DAY_S
    assert windows[-1].watermark == NOW - 10


def test_when_sacct_fails_too_the_command_fails(conf: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="sacct"):
        read(Host(conf, {"index": True}, sacct=1))


def test_this_process_never_loads_pyslurm(conf: Path) -> None:
    read(Host(conf, {"jobs": [job(5)]}))
    assert "pyslurm" not in sys.modules
