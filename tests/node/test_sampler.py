"""A sampler turned by hand: what is credited to whom, and what is said of the time that nobody saw."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from slurm_trace.node.devices.base import XidEvent
from slurm_trace.node.errors import SourceGone
from slurm_trace.node.lease import LeaseReader, LeaseScan
from slurm_trace.node.spool import MS, Gap, Spool
from slurm_trace.node.watchdog import Hung
from support.sampling import BOOT, NEXT_BOOT, FakeClock, FakeSource, Node, S, adds_up, card, lost


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def only(node: Node) -> Spool:
    (spool,) = node.sealed()
    return spool


def gaps(spool: Spool, uuid: str = "GPU-0") -> list[tuple[float, float, str]]:
    """Gaps in seconds since the begin of the part."""
    return [
        ((gap.from_ns - spool.from_ns) / S, (gap.to_ns - spool.from_ns) / S, gap.reason)
        for gap in spool.coverage(uuid).gaps
        if gap.to_ns is not None
    ]


def times(spool: Spool, uuid: str = "GPU-0") -> list[int]:
    return [ms for series in spool.samples() if series.uuid == uuid for ms in series.columns["mono_ms"]]  # type: ignore[misc]


def column(spool: Spool, name: str, uuid: str = "GPU-0") -> list[int | None]:
    return [value for series in spool.samples() if series.uuid == uuid for value in series.columns[name]]


def test_a_lease_is_sampled_from_prolog_to_epilog(node: Node) -> None:
    node.run_s(2)
    stem = node.lease(11, gpus="0,1", cuda="GPU-0,GPU-3")
    node.run_s(100)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert (spool.closed, spool.attribution, spool.part) == ("end", "uuid", 0)
    assert [device.uuid for device in spool.devices] == ["GPU-0", "GPU-3"]
    assert spool.devices[1] == card(3)
    assert 99 <= len(times(spool)) <= 102
    adds_up(spool)
    ((start, end, reason),) = gaps(spool)
    assert (start, reason) == (0, "before_first_read")
    assert end < 0.3
    moments = [(read.moment, read.uuid) for read in spool.counters]
    assert moments == [("start", "GPU-0"), ("start", "GPU-3"), ("end", "GPU-0"), ("end", "GPU-3")]
    assert spool.to_ns is not None
    assert spool.counters[-1].mono_ns > spool.to_ns, (
        "the last read is after the end: a counter never reads too low"
    )
    assert spool.lease["user"] == "ada"
    assert spool.end["exit_code"] == "0"
    assert node.lines == []


def test_the_driver_is_held_only_while_a_lease_holds_a_device(node: Node) -> None:
    node.run_s(2)
    assert node.source.opened == 0
    without = node.lease(1, gpus=None, cuda="NoDevFiles")
    node.run_s(2)
    assert node.source.opened == 0
    first, second = node.lease(2), node.lease(3, cuda="GPU-1")
    node.run_s(2)
    assert node.source.is_open
    node.end(first)
    node.run_s(1)
    assert node.source.is_open
    node.end(second)
    node.run_s(1)
    assert (node.source.is_open, node.source.opened) == (False, 1)
    node.end(without)
    node.run_s(1)
    assert [spool.attribution for spool in node.sealed()] == ["none", "uuid", "uuid"]


def test_real_intervals_are_kept_and_a_slow_reader_is_never_overtaken(tmp_path: Path) -> None:
    source = FakeSource(FakeClock(), read_takes_s=4.0)
    node = Node(tmp_path, source=source)
    stem = node.lease(1)
    node.run_s(60)
    node.end(stem)
    node.run_s(5)
    spool = only(node)
    steps = [after - before for before, after in zip(times(spool), times(spool)[1:], strict=False)]
    assert all(4000 <= step <= 5100 for step in steps)
    assert [reason for *_, reason in gaps(spool)] == ["before_first_read"]
    adds_up(spool)


def test_wall_clock_steps_are_events_and_no_gaps(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(20)
    node.clock.wall -= 3600 * S
    node.run_s(20)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert [(event.kind, event.detail) for event in spool.events] == [("clock_step", "-3600000")]
    assert len(gaps(spool)) == 1
    offsets = column(spool, "wall_offset_ms")
    assert {offsets[0] - offset for offset in offsets} == {0, 3_600_000}  # type: ignore[operator]
    assert len(spool.clock) == 3
    windows = [
        series.columns for chunk in spool.chunks("ring:utilization_pct") for series in spool.series(chunk)
    ]
    lengths = [
        int(to) - int(start)  # type: ignore[arg-type]
        for columns in windows
        for start, to in zip(columns["from_ms"], columns["to_ms"], strict=True)
    ]
    assert max(lengths) <= 8250
    adds_up(spool)


def test_a_lost_card_is_a_gap_others_go_on_and_it_is_found_again(node: Node) -> None:
    stem = node.lease(1, gpus="0,1", cuda="GPU-0,GPU-1")
    node.run_s(10)
    node.source.broken["GPU-0"] = lost("GPU-0")
    node.run_s(30)
    del node.source.broken["GPU-0"]
    node.source.cards = list(reversed(node.source.cards))
    node.run_s(60)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    (_, (start, end, reason)) = gaps(spool)
    assert (reason, math.ceil(start)) == ("lost", 10)
    assert 30 < end - start < 75
    assert [reason for *_, reason in gaps(spool, "GPU-1")] == ["before_first_read"]
    assert len(times(spool, "GPU-1")) > 95
    assert len([line for line in node.lines if "lost" in line]) == 1
    assert "resume" in [read.moment for read in spool.counters if read.uuid == "GPU-0"]
    adds_up(spool)


def test_a_card_that_never_comes_back_leaves_a_gap_to_the_end(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(10)
    node.source.broken["GPU-0"] = lost("GPU-0")
    node.source.cards = node.source.cards[1:]
    node.run_s(600)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert [reason for *_, reason in gaps(spool)] == ["before_first_read", "lost"]
    assert node.source.opened < 12, "looked for less and less often"
    adds_up(spool)


class Hangs:
    """A caller for which some devices do not come back."""

    def __init__(self) -> None:
        self.stuck: tuple[str, ...] = ()

    def run(self, calls, limit_s):  # type: ignore[no-untyped-def]
        return [Hung(name) if name in self.stuck else _tried(call) for name, call in calls]


def _tried(call):  # type: ignore[no-untyped-def]
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        return error


def test_a_card_that_hangs_is_a_gap_and_the_driver_is_not_closed_under_it(tmp_path: Path) -> None:
    caller = Hangs()
    node = Node(tmp_path, caller=caller)
    stem = node.lease(1, gpus="0,1", cuda="GPU-0,GPU-1")
    node.run_s(10)
    caller.stuck = ("GPU-0",)
    node.run_s(20)
    node.end(stem)
    node.run_s(1)
    assert node.source.is_open, "the library would wait for the call that hangs, and the sampler with it"
    spool = only(node)
    assert [reason for *_, reason in gaps(spool)] == ["before_first_read", "hung"]
    assert [reason for *_, reason in gaps(spool, "GPU-1")] == ["before_first_read"]
    adds_up(spool)

    second = node.lease(2)
    node.run_s(10)
    caller.stuck = ()
    node.run_s(20)
    node.end(second)
    node.run_s(1)
    assert not node.source.is_open
    spool = node.sealed()[1]
    assert gaps(spool)[0][1] > 10
    assert len(times(spool)) > 15
    adds_up(spool)


def test_without_a_driver_a_lease_is_one_gap_and_the_log_is_short(node: Node) -> None:
    node.source.unreachable = SourceGone("library and driver differ", "driver_mismatch")
    stem = node.lease(1)
    node.run_s(1800)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert spool.attribution == "unknown"
    assert spool.gaps == (Gap(None, spool.from_ns, spool.to_ns, "driver_mismatch"),)
    assert len(node.lines) == 1


def test_a_driver_that_comes_late_is_used_from_then_on(node: Node) -> None:
    node.source.unreachable = SourceGone("not loaded", "driver_not_loaded")
    stem = node.lease(1)
    node.run_s(20)
    node.source.unreachable = None
    node.run_s(60)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert spool.attribution == "uuid"
    ((start, end, _),) = gaps(spool)
    assert start == 0
    assert 20 < end < 60
    adds_up(spool)


def test_a_driver_that_goes_away_is_a_gap_for_all(node: Node) -> None:
    stem = node.lease(1, gpus="0,1", cuda="GPU-0,GPU-1")
    node.run_s(10)
    gone = SourceGone("unloaded", "driver_not_loaded")
    node.source.broken = {"GPU-0": gone, "GPU-1": gone}
    node.source.unreachable = gone
    node.run_s(20)
    node.source.broken, node.source.unreachable = {}, None
    node.run_s(60)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    for uuid in ("GPU-0", "GPU-1"):
        assert [reason for *_, reason in gaps(spool, uuid)] == ["before_first_read", "driver_not_loaded"]
    adds_up(spool)


def test_two_owners_of_one_card_are_flagged_in_both_files(node: Node) -> None:
    first = node.lease(1)
    node.run_s(10)
    second = node.lease(2)
    node.run_s(10)
    reads = node.source.reads["GPU-0"]
    node.run_s(10)
    assert node.source.reads["GPU-0"] - reads <= 11, "read once for both"
    node.end(first)
    node.run_s(10)
    node.end(second)
    node.run_s(1)
    one, two = node.sealed()
    assert [(e.kind, e.uuid, e.detail) for e in one.events] == [("shared", "GPU-0", second)]
    assert [(e.kind, e.uuid, e.detail) for e in two.events] == [
        ("shared", "GPU-0", first),
        ("shared_no_more", "GPU-0", ""),
    ]
    adds_up(one)
    adds_up(two)


def test_the_next_job_begins_where_the_last_one_ended(node: Node) -> None:
    """Epilog and the next prolog between two looks: each has its own samples."""
    first = node.lease(1)
    node.run_s(10)
    node.end(first)
    node.clock.pass_s(0.05)
    second = node.lease(2)
    node.run_s(10)
    node.end(second)
    node.run_s(1)
    one, two = node.sealed()
    assert one.events == two.events == ()
    assert min(times(two)) * MS >= two.from_ns
    assert sum(ms * MS > one.to_ns for ms in times(one)) <= 1  # type: ignore[operator]
    adds_up(one)
    adds_up(two)


def test_hundreds_of_short_leases_at_once(node: Node) -> None:
    stems = [node.lease(job, gpus=str(job % 8), cuda=f"GPU-{job % 8}") for job in range(1, 301)]
    node.run_s(3)
    for stem in stems:
        node.end(stem)
    node.run_s(2)
    spools = node.sealed()
    assert len(spools) == 300
    assert {spool.closed for spool in spools} == {"end"}
    for spool in spools[::50]:
        adds_up(spool)
    assert not node.source.is_open
    assert {path.suffix for path in node.config.sampler_folder.iterdir() if path.name != "status"} == {
        ".done"
    }


def test_leases_that_were_over_before_anybody_looked(node: Node) -> None:
    node.run_s(1)
    with_card = node.lease(1)
    without = node.lease(2, gpus=None, cuda=None)
    node.clock.pass_s(0.1)
    node.end(with_card)
    node.end(without)
    orphan = node.orphan(3)
    node.run_s(1)
    one, two, three = node.sealed()
    assert (one.closed, one.attribution, two.closed, two.attribution) == ("end", "unknown", "end", "none")
    assert one.gaps == (Gap(None, one.from_ns, one.to_ns, "never_seen"),)
    assert (three.closed, three.lease["job_id"], three.gaps) == ("orphan", orphan.split(".")[0], ())
    assert node.source.opened == 0


def test_what_is_sealed_is_not_sealed_again(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(2)
    node.end(stem)
    node.orphan(2)
    node.run_s(2)
    assert len(node.sealed()) == 2
    node.new_sampler().resume()
    node.lease(3)
    node.run_s(2)
    assert len(node.sealed()) == 2
    assert node.sampler.leases == tuple(path.stem for path in node.config.leases_folder.glob("3.*"))


def test_what_the_hooks_have_removed_is_forgotten(node: Node) -> None:
    """A node runs for months: what is kept of a lease must go with its files, and not a moment earlier."""
    stems = [node.lease(job) for job in range(1, 21)]
    node.run_s(2)
    for stem in stems:
        node.end(stem)
    node.run_s(2)
    assert node.sampler.sealed == set(stems)
    for stem in stems[:19]:
        (node.config.leases_folder / f"{stem}.end").unlink()
    node.run_s(2)
    assert node.sampler.sealed == set(stems), "their lease files alone would be taken for open leases"
    assert node.sampler.leases == ()
    for stem in stems[:19]:
        (node.config.leases_folder / f"{stem}.lease").unlink()
    node.run_s(2)
    assert node.sampler.sealed == {stems[19]}
    node.config.leases_folder.rename(node.folder / "away")
    node.run_s(2)
    (node.folder / "away").rename(node.config.leases_folder)
    node.run_s(2)
    assert len(node.sealed()) == 20, "a directory that could not be read says nothing"


def test_what_is_sealed_is_swept_while_a_new_sampler_looks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = node.lease(1)
    node.run_s(2)
    node.end(stem)
    node.run_s(2)
    mark = node.config.sampler_folder / f"{stem}.done"
    assert mark.exists()
    sampler = node.new_sampler()
    sampler.resume()
    # As the reader sees it that has read the lease just before an epilog removes lease, end and mark.
    (node.config.leases_folder / f"{stem}.end").unlink()
    scan = LeaseReader.scan

    def sweep(reader: LeaseReader) -> LeaseScan:
        found = scan(reader)
        mark.unlink(missing_ok=True)
        (node.config.leases_folder / f"{stem}.lease").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(LeaseReader, "scan", sweep)
    node.run_s(2)
    assert node.sampler.leases == ()
    assert len(node.sealed()) == 1


def test_a_lease_whose_file_is_gone_is_lost_and_the_driver_let_go(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(5)
    path = node.config.leases_folder / f"{stem}.lease"
    text = path.read_text()
    path.unlink()
    node.run_s(30)
    assert node.sampler.leases == (stem,)
    # It was only for a moment.
    path.write_text(text)
    node.run_s(60)
    assert node.sampler.leases == (stem,)
    path.unlink()
    node.run_s(70)
    assert node.sampler.leases == ()
    assert not node.source.is_open
    (spool,) = node.sealed()
    assert spool.closed == "lost"
    adds_up(spool)


def test_a_killed_sampler_is_a_gap_in_the_same_file(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(130)
    node.kill()
    node.clock.pass_s(30)
    node.new_sampler().resume()
    node.run_s(100)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    (_, (start, end, reason)) = gaps(spool)
    assert reason == "sampler_down"
    assert 119 <= start <= 130, "lost at most one chunk"
    assert 160 <= end <= 161.5
    assert [r.moment for r in spool.counters] == ["start", "resume", "end"]
    adds_up(spool)


def test_a_stopped_sampler_seals_and_the_next_goes_on_in_another_part(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(30)
    node.sampler.shut()
    assert not node.source.is_open
    assert [spool.closed for spool in node.sealed()] == ["stop"]
    node.clock.pass_s(40)
    node.new_sampler().resume()
    node.run_s(30)
    node.end(stem)
    node.run_s(1)
    first, second = node.sealed()
    assert (first.part, second.part, second.closed) == (0, 1, "end")
    assert first.to_ns == second.from_ns
    assert first.counters[-1].moment == "stop"
    ((start, end, reason),) = gaps(second)
    assert (start, reason) == (0, "sampler_stopped")
    assert 40 <= end < 41.5
    adds_up(first)
    adds_up(second)


def test_after_a_reboot_leases_end_at_an_unknown_time(node: Node) -> None:
    node.lease(1)
    node.run_s(70)
    node.kill()
    node.clock = node.source.clock = FakeClock(20)
    node.boot_id = NEXT_BOOT
    node.new_sampler().resume()
    node.run_s(2)
    spool = only(node)
    assert (spool.closed, spool.to_ns, spool.lease["boot_id"]) == ("boot", None, BOOT)
    assert spool.gaps[-1] == Gap("GPU-0", times(spool)[-1] * MS, None, "boot")
    assert node.sampler.leases == ()


def test_a_lease_whose_end_never_comes_is_closed_as_lost(tmp_path: Path) -> None:
    node = Node(tmp_path, lost_s=100.0)
    node.lease(1)
    node.run_s(110)
    spool = only(node)
    assert spool.closed == "lost"
    adds_up(spool)
    assert not node.source.is_open
    node.run_s(10)
    assert len(node.sealed()) == 1


def test_a_lease_whose_files_vanish_is_kept_until_its_end(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(10)
    (node.config.leases_folder / f"{stem}.lease").unlink()
    node.run_s(10)
    assert node.sampler.leases == (stem,)
    node.end(stem)
    node.run_s(1)
    assert only(node).closed == "end"


def test_long_leases_are_sealed_in_parts_that_meet(tmp_path: Path) -> None:
    node = Node(tmp_path, part_s=50.0)
    stem = node.lease(1)
    node.run_s(120)
    node.end(stem)
    node.run_s(1)
    parts = node.sealed()
    assert [(spool.part, spool.closed) for spool in parts] == [(0, "part"), (1, "part"), (2, "end")]
    assert all(a.to_ns == b.from_ns for a, b in itertools.pairwise(parts))
    assert all(gap[1] < 1.1 for spool in parts for gap in gaps(spool))
    for spool in parts:
        adds_up(spool)


def test_an_unknown_card_means_all_of_them_and_says_so(node: Node) -> None:
    stem = node.lease(1, gpus="0", cuda="0")
    node.run_s(3)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert spool.attribution == "ambiguous"
    assert len(spool.devices) == 8
    assert len(node.lines) == 1


def test_invalid_values_are_null_and_counted(node: Node) -> None:
    stem = node.lease(1)
    node.run_s(5)
    node.source.values = {"utilization_pct": None, "power_mw": 0}
    node.source.fault_counts["GPU-0", "utilization_pct", "out_of_range"] += 5
    node.run_s(5)
    node.end(stem)
    node.run_s(1)
    spool = only(node)
    assert set(column(spool, "utilization_pct")) == {1, None}
    assert set(column(spool, "power_mw")) == {100, 0}
    assert [(t.uuid, t.field, t.reason, t.n) for t in spool.tallies] == [
        ("GPU-0", "utilization_pct", "out_of_range", 5)
    ]


def test_errors_and_slowdowns_of_a_card_are_events_of_its_lease(node: Node) -> None:
    stem, other = node.lease(1), node.lease(2, cuda="GPU-1")
    node.run_s(5)
    node.source.xids = [XidEvent("GPU-0", 79)]
    node.source.values = {"throttle_reasons": 4 | 64}
    node.run_s(5)
    node.end(stem)
    node.end(other)
    node.run_s(1)
    one, two = node.sealed()
    assert [(e.kind, e.detail) for e in one.events] == [("slowdown", "64"), ("xid", "79")]
    assert [(e.kind, e.detail) for e in two.events] == [("slowdown", "64")]


def test_equal_errors_are_logged_once_an_hour(node: Node) -> None:
    node.lease(1)
    node.run_s(2)
    node.source.broken["GPU-0"] = RuntimeError("odd")
    node.run_s(3700)
    assert len(node.lines) == 2
    assert "more like this in the last hour" in node.lines[1]


def test_lease_files_that_are_none_are_refused_once(node: Node) -> None:
    (node.config.leases_folder / "x.lease").write_text("version=1\n")
    node.run_s(10)
    assert len(node.lines) == 1
    assert "x.lease" in node.lines[0]


def test_another_versions_open_file_ends_and_the_lease_goes_on_in_the_next_part(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = node.lease(1)
    node.run_s(10)
    node.kill()
    monkeypatch.setitem(
        __import__("slurm_trace.node.spool_writer", fromlist=["_RECOGNISED"])._RECOGNISED,
        "counters",
        "others",
    )
    node.new_sampler().resume()
    node.run_s(10)
    node.end(stem)
    node.run_s(1)
    first, second = node.sealed()
    assert (first.closed, second.closed, first.to_ns) == ("part", "end", second.from_ns)
    adds_up(first)
    adds_up(second)
