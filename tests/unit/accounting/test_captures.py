"""What two real clusters left behind reads the same through every reader."""

from collections import Counter

import pytest

from slurm_trace.accounting.records import RunRecord
from support.sacct import Reading, read_fixture

#: Asked a second later than the other captures, of a run that was under way.
LATER = {"elapsed_s", "queried_at"}
OF_THE_SOURCE = {"line", "raw", "flags"}
#: JSON has no numbers for users, and no number of the database's row.
NOT_IN_JSON = {"uid", "cancelled_by", "db_index", "sluid"}
#: The recorded text of 22.05 had its working directories renamed afterwards.
MOVED = {"work_dir"}

RUNS = {"2205": 69, "2411": 68}
STEPS = 71


@pytest.fixture(params=["2205", "2411"])
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def capture(release: str, name: str) -> Reading:
    reading = read_fixture(f"captures/{release}/{name}")
    assert (reading.problem, reading.warnings, reading.orphans) == (None, [], [])
    assert reading.steps_skipped == STEPS
    return reading


def compare(left: Reading, right: Reading, leave: set[str]) -> None:
    names = [name for name in RunRecord.__slots__ if name not in OF_THE_SOURCE | leave]
    others = {(run.job_id_raw, run.submit): run for run in right.runs}
    assert len(others) == len(left.runs)
    for run in left.runs:
        other = others[run.job_id_raw, run.submit]
        known = [name for name in names if run.final or name not in LATER]
        assert {n: getattr(run, n) for n in known} == {n: getattr(other, n) for n in known}


def test_rare_delimiter_loses_nothing(release: str) -> None:
    reading = capture(release, "sacct_all_us_delim.txt")
    assert (len(reading.runs), reading.rejected) == (RUNS[release], [])
    assert Counter(flag for run in reading.runs for flag in run.flags.split()) == {"line_joined": 1}
    assert {run.name for run in reading.runs} >= {
        "pipe|name",
        "new\nline",
        "tab\tname",
        "cr\rname",
        "esc\x1b[31mred",
    }


def test_json_gives_the_same_runs(release: str) -> None:
    text, document = capture(release, "sacct_all_us_delim.txt"), capture(release, "sacct.json")
    compare(text, document, NOT_IN_JSON | (MOVED if release == "2205" else set()))
    assert document.rejected == []


def test_epoch_times_give_the_same_runs(release: str) -> None:
    text, epoch = capture(release, "sacct_all_us_delim.txt"), capture(release, "sacct_epoch.txt")
    assert (len(epoch.runs), epoch.rejected) == (RUNS[release], [])
    names = ("job_id_raw", "run_key", "submit", "start", "end", "state", "final", "step_end", "step_count")
    times = [
        {tuple(getattr(run, name) for name in names) for run in reading.runs} for reading in (text, epoch)
    ]
    assert times[0] == times[1]


def test_pipes_in_names_are_found_again(release: str) -> None:
    rare, pipes = capture(release, "sacct_all_us_delim.txt"), capture(release, "sacct_all.txt")
    compare(rare, pipes, set())
    assert pipes.rejected == []
    assert Counter(flag for run in pipes.runs for flag in run.flags.split()) == {
        "line_realigned": 12,
        "line_joined": 1,
    }


def test_requeues_resizes_arrays_and_components(release: str) -> None:
    reading = capture(release, "sacct_all_us_delim.txt")
    words = {run.state for run in reading.runs}
    assert words >= {
        "REQUEUED",
        "PREEMPTED",
        "RESIZING",
        "NODE_FAIL",
        "TIMEOUT",
        "RUNNING",
        "PENDING",
        "COMPLETED",
    }
    assert {run.state for run in reading.runs if not run.final} == {"RUNNING", "PENDING"}
    rows = Counter(run.job_id_raw for run in reading.runs)
    assert max(rows.values()) == 3
    assert len({(run.job_id_raw, run.run_key) for run in reading.runs}) == RUNS[release]
    last_task = next(run for run in reading.runs if run.array_job_id == run.job_id_raw)
    assert last_task.job_id == f"{last_task.job_id_raw}_5"
    assert {run.job_id_raw - (run.het_job_id or 0) for run in reading.runs if run.het_job_id} == {0, 1, 2}
    waiting = [run for run in reading.runs if not run.started]
    assert all(run.start in (None, run.end) for run in waiting)
    assert {(run.node_count, run.cpu_count) for run in waiting} == {(0, 0)}


def test_steps_find_their_incarnation(release: str) -> None:
    reading = capture(release, "sacct_all_us_delim.txt")
    under_way = next(run for run in reading.runs if run.state == "RUNNING")
    assert (under_way.step_count, under_way.step_end) == (0, None)
    assert sum(run.step_count or 0 for run in reading.runs) == STEPS - 2
    for run in reading.runs:
        if run.step_end is not None and run.start is not None and run.end is not None:
            assert run.start <= run.step_end <= run.end + 5
