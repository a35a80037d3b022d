"""The real sacct and sacctmgr of Slurm 22.05 over a restored accounting database."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from slurm_trace.accounting.commands import SubprocessRunner
from slurm_trace.accounting.discovery import LiveCluster, discover, query_events
from slurm_trace.accounting.live import LiveQuery, LiveWindow, read_live
from slurm_trace.accounting.open_source import read_any
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunRecord, StepRecord
from slurm_trace.accounting.windows import DAY_S, OVERLAP_S, Window
from support.slurmdbd import Accounting

pytestmark = pytest.mark.slurm2205

CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "2205"
FIRST, LAST, RUNS = 1796050081, 1796050188, 69
# What a source does not carry, or says of itself.
OF_THE_SOURCE = (
    "line",
    "raw",
    "source",
    "flags",
    "queried_at",
    "step_end",
    "step_count",
    "elapsed_s",
    "final",
)
# The database was dumped with another working directory than the texts show.
MOVED = ("work_dir",)
NOT_IN_JSON = ("db_index", "uid", "cancelled_by")


class Host(SubprocessRunner):
    """The real commands, on a clock that can be set."""

    def __init__(self, accounting: Accounting, now: int = LAST + 2 * DAY_S, **environment: str) -> None:
        super().__init__(accounting.environment | environment)
        self.time = now

    def now(self) -> int:
        return self.time


def read(
    host: Host, live: LiveCluster, query: LiveQuery
) -> tuple[list[LiveWindow], list[RunRecord], list[StepRecord]]:
    found, runs, steps = [], [], []
    for window in read_live(host, live, query):
        for block in window.blocks():
            assert not block.rejected
            runs += block.records()
            steps += block.steps
        found.append(window)
    return found, runs, steps


def key(run: RunRecord) -> tuple[str | None, int, int]:
    return run.cluster, run.job_id_raw, run.run_key


def same(run: RunRecord, *leave: str) -> dict[str, object]:
    return {n: getattr(run, n) for n in RunRecord.__slots__ if n not in OF_THE_SOURCE and n not in leave}


@pytest.fixture
def live(accounting: Accounting) -> LiveCluster:
    return discover(Host(accounting), "lab")


def test_discovery_without_a_controller(accounting: Accounting) -> None:
    live = discover(Host(accounting))
    assert live == LiveCluster(name="lab", version="22.05.8", private_data=False)
    assert live.release == (22, 5)


def test_every_run_is_read_once(accounting: Accounting, live: LiveCluster) -> None:
    windows, runs, steps = read(Host(accounting), live, LiveQuery(since=FIRST - 60, until=LAST + 60))
    assert [w.asked for w in windows] == [Window(FIRST - 60, LAST + 60)]
    assert windows[0].covers == Window(FIRST - 60, LAST + 60)
    assert not windows[0].warnings
    assert len(runs) == len({key(r) for r in runs}) == RUNS
    assert {r.cluster for r in runs} == {"lab"}
    assert {r.flags for r in runs} == {"", "line_joined"}
    assert any("|" in (r.name or "") for r in runs)
    assert any("\n" in (r.name or "") for r in runs)
    assert steps


def test_agrees_with_the_text_and_json_captures(accounting: Accounting, live: LiveCluster) -> None:
    _, runs, _ = read(Host(accounting), live, LiveQuery(since=FIRST - 60, until=LAST + 60))
    for name, leave in (("sacct_all_us_delim.txt", MOVED), ("sacct.json", (*MOVED, *NOT_IN_JSON))):
        with (CAPTURE / name).open("rb") as stream:
            options = ReadOptions(cluster="lab", zone=UTC, source_name=name)
            captured = [r for b in read_any(stream, options) for r in b.records()]
        assert {key(r): same(r, *leave) for r in captured} == {key(r): same(r, *leave) for r in runs}


def test_agrees_with_the_epoch_capture(accounting: Accounting, live: LiveCluster) -> None:
    _, runs, _ = read(Host(accounting), live, LiveQuery(since=FIRST - 60, until=LAST + 60))
    with (CAPTURE / "sacct_epoch.txt").open("rb") as stream:
        options = ReadOptions(cluster="lab", zone=UTC, source_name="sacct_epoch.txt")
        captured = [r for b in read_any(stream, options) for r in b.records()]
    times = {key(r): (r.submit, r.start, r.end, r.state) for r in captured}
    assert times == {key(r): (r.submit, r.start, r.end, r.state) for r in runs}


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_zone_of_the_host_changes_nothing(accounting: Accounting, live: LiveCluster, zone: str) -> None:
    query = LiveQuery(since=FIRST - 60, until=LAST + 60)
    here = read(Host(accounting, TZ="UTC"), live, query)[1]
    there = read(Host(accounting, TZ=zone), live, query)[1]
    assert list(map(same, there)) == list(map(same, here))


def test_defaults_of_the_user_change_nothing(accounting: Accounting, live: LiveCluster) -> None:
    query = LiveQuery(since=FIRST - 60, until=LAST + 60)
    here = read(Host(accounting), live, query)[1]
    there = read(
        Host(accounting, SACCT_FORMAT="JobID", SLURM_TIME_FORMAT="relative", LANG="de_DE"), live, query
    )[1]
    assert list(map(same, there)) == list(map(same, here))


def test_small_windows_give_the_same_runs(accounting: Accounting, live: LiveCluster) -> None:
    whole = read(Host(accounting), live, LiveQuery(since=FIRST - 60, until=LAST + 60))[1]
    narrow = LiveCluster(name="lab", version=live.version, private_data=False, widest_s=1)
    # Windows of ten minutes, offset so that the recorded minute lies across a border.
    windows, runs, _ = read(Host(accounting), narrow, LiveQuery(since=FIRST + 50 - 1200, until=LAST + 1200))
    assert len(windows) > 2
    assert [w.covers for w in windows] == [w.asked for w in windows]
    assert {key(r): same(r) for r in runs} == {key(r): same(r) for r in whole}
    assert len(runs) > len(whole)


def test_from_the_beginning(accounting: Accounting, live: LiveCluster) -> None:
    host = Host(accounting, now=LAST + 3600)
    events = query_events(host, "lab")
    windows, runs, _ = read(host, live, LiveQuery(first_seen=events.first_seen))
    # The time before the first registration holds nothing, and comes with the window after it.
    assert [w.asked for w in windows] == [Window(DAY_S, LAST + 3601)]
    assert windows[-1].watermark == LAST + 3600 - 10
    # One more: a job cancelled before it was eligible, an hour after its submission.
    assert len({key(r) for r in runs}) == RUNS + 1


def test_watermark_and_overlap(accounting: Accounting, live: LiveCluster) -> None:
    first = read(Host(accounting, now=LAST + 60), live, LiveQuery(since=FIRST - 60))
    mark = first[0][-1].watermark
    assert mark == LAST + 50
    later = Host(accounting, now=LAST + 3600)
    windows, runs, _ = read(later, live, LiveQuery(watermark=mark))
    assert windows[0].asked is not None
    assert windows[0].asked.since == mark - OVERLAP_S
    assert windows[-1].watermark == LAST + 3590
    assert {key(r) for r in runs} == {key(r) for r in first[1]}


def test_a_gap_does_not_move_the_watermark(accounting: Accounting, live: LiveCluster) -> None:
    windows, _, _ = read(Host(accounting), live, LiveQuery(since=FIRST, until=LAST, watermark=FIRST - 1))
    assert [w.watermark for w in windows] == [None]
    windows, _, _ = read(Host(accounting), live, LiveQuery(since=FIRST, until=LAST, watermark=LAST + 5))
    assert [w.watermark for w in windows] == [LAST + 5]


def test_nothing_in_a_window_is_an_answer(accounting: Accounting, live: LiveCluster) -> None:
    windows, runs, _ = read(
        Host(accounting), live, LiveQuery(since=FIRST - 9 * DAY_S, until=FIRST - 8 * DAY_S)
    )
    assert (len(windows), runs) == (1, [])
    assert windows[0].covers is not None


def test_steps_of_runs_that_did_not_complete(accounting: Accounting, live: LiveCluster) -> None:
    _, runs, steps = read(Host(accounting), live, LiveQuery(since=FIRST - 60, until=LAST + 60))
    odd = {r.job_id_raw for r in runs if r.started and r.final and r.state != "COMPLETED"}
    assert {s.job_id_raw for s in steps} >= odd - {50, 54, 55}
    assert all(s.finished and s.end is not None and s.cluster == "lab" for s in steps)
    ends = {(s.job_id_raw, s.start, s.end) for s in steps}
    assert {(62, 1796050171, 1796050173), (62, 1796050182, 1796050186)} <= ends
    assert read(Host(accounting), live, LiveQuery(since=FIRST, until=LAST, steps=False))[2] == []


def test_runs_by_id(accounting: Accounting, live: LiveCluster) -> None:
    query = LiveQuery(since=LAST + DAY_S, until=LAST + DAY_S + 60, refresh=[1, 62, 999_999_999])
    answers = read_live(Host(accounting), live, query)
    window = next(answers)
    assert window.asked is window.covers is window.watermark is None
    assert sorted(r.job_id_raw for b in window.blocks() for r in b.records()) == [1, 62, 62, 62]
    # By id come also those that were never eligible, and so never ran.
    many = LiveQuery(since=LAST + DAY_S, until=LAST + DAY_S + 60, refresh=range(1, 50_001))
    assert len({key(r) for r in read(Host(accounting), live, many)[1]}) == RUNS + 5


def test_events(accounting: Accounting) -> None:
    found = query_events(Host(accounting, TZ="America/New_York"), "lab")
    registered, down = found.events
    assert (registered.node, registered.start, registered.end) == ("", FIRST, None)
    assert "gres/gpu=32" in (registered.tres or "").split(",")
    assert (down.node, down.start, down.end, down.state) == ("n3", 1796050182, 1796050182, "DOWN")
    assert (down.reason, down.user) == ("lab: test failure", "root(0)")
    assert found.first_seen == FIRST
    assert not found.rejected


def test_event_reason_may_hold_anything(accounting: Accounting) -> None:
    accounting.sql("update lab_event_table set reason='a|b\\nc|' where node_name='n3'")
    try:
        down = query_events(Host(accounting), "lab").events[1]
        assert down.node == "n3"
        assert down.reason.startswith("a|b")
    finally:
        accounting.sql("update lab_event_table set reason='lab: test failure' where node_name='n3'")


def test_cluster_that_is_not_there(accounting: Accounting) -> None:
    assert query_events(Host(accounting), "nowhere").events == []
