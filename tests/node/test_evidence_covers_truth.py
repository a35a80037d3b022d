"""The golden property with samplers: whatever goes wrong on the nodes, no bound falls below what the cards did.

Histories of leases and faults are played by the real sampler over the fake driver; what it leaves behind is imported
with the accounting records and judged at every level of trust that the command line offers.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from fake_nvml.harness import EPOCH
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.text import read_text
from slurm_trace.analysis.rates import Rates
from slurm_trace.assess import Request, assess
from slurm_trace.cli.ranking import question_options
from slurm_trace.store.card_clocks import load_clocks
from slurm_trace.store.engine import Store, open_store
from slurm_trace.store.ingest import ImportInfo, begin_import
from slurm_trace.store.job_summary import CLOCK_S
from slurm_trace.store.spool_ingest import import_spools
from support.lease_history import FAST, MIG, Fault, History, Part, Played, Run, Work, play

# Operations of a kind of card at full speed, then ever less of it.
FULL = {
    "H100": "imma=1 int=1 precision=int8 sparse=1",
    FAST: "imma=1 int=1 precision=int8 sparse=1",
    "A100": "imma=1 int=1 precision=int4 sparse=1",
    "B200": "imma=1 int=1 precision=fp4 sparse=1",
    MIG: "imma=1 int=1 precision=int8 sparse=1",
}
DOINGS = (
    "hmma=0.9 fp32=0.4",
    "dmma=1 precision=fp64",
    "active=0.9 int=0.9",
    "busy=0.3 active=0.2 hmma=0.1",
    "clock=600 hmma=0.5",
    "active=0",
)
PROFILE = """
[[clusters.c.nodes]]
hosts = "n[1-2]"
gpus = {gpus}
sku = "{sku}"
cores = 1
threads_per_core = 1
devices_confined = true
cores_confined = true
basis = "proven"
"""


@cache
def trusts() -> tuple[str, ...]:
    """What `--trust` offers."""
    command = question_options(click.Command("any", params=[]))
    options: list[Any] = getattr(command, "__click_params__", None) or command.params
    (trust,) = (option for option in options if option.name == "trust")
    return tuple(trust.type.choices)


@cache
def _empty_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        open_store(str(path), create=True).close()
        return path.read_bytes()


@pytest.fixture(scope="module", autouse=True)
def _registry_read_once() -> Iterator[None]:
    """Five questions a history are put to one and the same registry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rates, "load", cache(Rates.load))
        yield


def import_sacct(store: Store, text: bytes) -> None:
    """As `import sacct FILE` does."""
    with begin_import(store, ImportInfo("file", "history", cluster="c")) as running:
        options = ReadOptions(cluster="c", zone=UTC, source_name="history")
        for block in read_text(io.BytesIO(text), options):
            running.add(block)
        assert not running.finish().rejected


def judged(played: Played, folder: Path, profile: str | None, spools_first: bool) -> dict[str, Any]:
    """Per level of trust the entries of all runs."""
    location = folder / "store.db"
    location.write_bytes(_empty_store())
    store = open_store(str(location))
    site = None
    if profile is not None:
        site = folder / "site.toml"
        site.write_text(profile)
    try:
        if not spools_first:
            import_sacct(store, played.sacct)
        summary = import_spools(store, played.spools, "c")
        assert not summary.rejected, summary.rejected
        if spools_first:
            import_sacct(store, played.sacct)
        found = {}
        for trust in trusts():
            request = Request("eu-gpai", None, Fraction(5, 100), profile=site and str(site), trust=trust)  # type: ignore[arg-type]
            found[trust] = list(assess(store, request).jobs())
        return found
    finally:
        store.close()


def covers_truth(
    history: History, folder: Path, profile: str | None = None, spools_first: bool = False
) -> Any:
    """Play and judge a history; no bound may be below the truth. What was found, for more questions."""
    played = play(history, folder)
    found = judged(played, folder, profile, spools_first)
    if any(kind == FAST for kind, _ in history.cards) and not _clocks_told(folder):
        return found  # nobody could know
    for trust, entries in found.items():
        assert len(entries) == len(history.runs)
        for entry in entries:
            key = (entry["job_id_raw"], entry["submit"] - EPOCH)
            run = next(run for run in history.runs if (run.number, run.submit) == key)
            last = run.start + entry["held_s"] if entry["held_s"] is not None else 0
            assumed = {one["id"] for one in entry["assumptions"] if one["status"] != "proven"}
            whole = played.truth[key](history.until if run.end is None else float("inf"))
            truth = played.truth[key](last) if "released_at_end" in assumed and run.end is not None else whole
            where = (trust, run, float(truth), entry)
            bound, strict = entry["bound_gpu_flop"], entry["bound_flop_strict"]
            assert bound is None or bound >= truth, where
            assert strict is None or strict >= whole, where
    return found


def _clocks_told(folder: Path) -> bool:
    """Whether any sampler left a clock behind."""
    store = open_store(str(folder / "store.db"))
    try:
        return bool(load_clocks(store))
    finally:
        store.close()


KINDS = (
    "kill", "stop", "hang", "lost", "driver_gone", "wall_step", "disk_full", "lease_file_lost", "ring_hole",
    "counter_reset", "counters_stand", "unit_slip", "spool_lost", "reboot", "open_lost", "open_damaged",
)  # fmt: skip


@st.composite
def faults(draw: st.DrawFn, node: int, count: int, until: int) -> Fault:
    kind = draw(st.sampled_from(KINDS))
    card = draw(st.integers(0, count - 1))
    amount: Any = {
        "hang": draw(st.sampled_from((None, card))),
        "wall_step": draw(st.sampled_from((-3600, -60, -10, -2, -1, 1, 2, 10, 60, 3600))),
        "unit_slip": draw(st.sampled_from((1 / 132, 1 / 1000, 0.5, 2, 132, 1000))),
        "spool_lost": draw(st.integers(0, 2)),
        "reboot": draw(st.booleans()),
        "open_damaged": draw(st.integers(0, 9)),
    }.get(kind, card)
    for_s = draw(st.sampled_from((0.5, 3, 8, 20, 45)))
    return Fault(
        kind, draw(st.integers(2, until)) + draw(st.sampled_from((0, 0.25, 0.7))), node, for_s, amount
    )


@st.composite
def works(draw: st.DrawFn, kind: str, card: int, start: float, end: float) -> Iterator[Work]:
    edges = sorted({start, end, *(start + (end - start) * draw(st.integers(0, 8)) / 8 for _ in range(3))})
    doings = [
        None,
        FULL[kind],
        FULL[kind],
        f"{FULL[kind]} power=60",
        *(one for one in DOINGS if kind != MIG or "clock" not in one),
    ]
    found = []
    for first, last in pairwise(edges):
        doing = draw(st.sampled_from(doings))
        if doing is not None:
            found.append(Work(card, first, last, doing))
    return found  # type: ignore[return-value]


STATES = ("COMPLETED", "COMPLETED", "TIMEOUT", "FAILED", "CANCELLED by 1000", "NODE_FAIL", "RUNNING")


@st.composite
def histories(draw: st.DrawFn) -> History:
    kind = draw(st.sampled_from(("H100", "H100", "H100", "A100", "B200", MIG, FAST)))
    nodes = draw(st.sampled_from((1, 1, 1, 2)))
    count = draw(st.integers(1, 2))
    until = draw(st.sampled_from((90, 150, 260)))
    broken = [one for n in range(nodes) for one in draw(st.lists(faults(n, count, until), max_size=3))]
    # CLOCK_S is all that a node's clock may be behind before anybody can see it.
    late = [one for one in broken if one.kind == "wall_step" and -CLOCK_S <= one.amount < 0]
    while sum(one.amount for one in late) < -CLOCK_S:
        broken.remove(late.pop())
    reboots = {n: [f for f in broken if f.kind == "reboot" and f.node == n][:1] for n in range(nodes)}
    broken = [f for f in broken if f.kind != "reboot" or f in reboots[f.node]]
    runs: list[Run] = []
    work: list[list[Work]] = [[] for _ in range(nodes)]
    free = 1
    again = draw(st.booleans())
    for number in range(draw(st.integers(1, 2))):
        start = free + draw(st.integers(1, 5))
        length = draw(st.integers(3, max(4, (until - start) // 2)))
        end = start + length
        state = draw(st.sampled_from(STATES))
        begun = start + draw(st.sampled_from((0.0, 0.3, 0.99)))
        used = draw(st.sampled_from([range(nodes), [0]]))
        cards = tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1))))
        parts = []
        for node in used:
            over = draw(st.sampled_from((-2.0, 0.0, 0.0, 0.9, 3.0, 25.0, 80.0, 130.0)))
            release = max(end + over, begun + 1)
            prolog = begun + draw(st.sampled_from((0.0, 0.2, 1.0)))
            closed = max(release, end) + draw(st.sampled_from((0.02, 0.5, 2.0)))
            for fault in reboots[node]:
                if fault.at >= begun:
                    release = min(release, fault.at)
            epilog = None if draw(st.integers(0, 5)) == 0 else closed
            parts.append(Part(node, cards, prolog, release, epilog))
            free = max(free, int(closed) + 1)
            for card in cards:
                work[node] += draw(works(kind, card, begun, release))
        if state == "RUNNING":
            free = until
        identity = (1, number) if again else (number + 1, 0)
        runs.append(
            Run(
                identity[0],
                identity[1],
                start,
                None if state == "RUNNING" else end,
                state,
                tuple(parts),
                names_cards=draw(st.integers(0, 3)) > 0,
                has_start=draw(st.booleans()),
            )
        )
        if free >= until - 15:
            break
    header = [draw(st.sampled_from(("cycles mean", "cycles sum")))]
    header.append(draw(st.sampled_from(("boot -3600", "boot -1"))))
    return History(
        cards=((kind, count),) * nodes,
        work=tuple(map(tuple, work)),
        runs=tuple(runs),
        faults=tuple(broken),
        until=max(until, free + 5) if runs[-1].end is not None else until,
        header=tuple(header),
        skew_s=tuple(draw(st.sampled_from((0.0, 0.0, 0.0, 0.0, -30.0, 20.0))) for _ in range(nodes)),
        counters_s=draw(st.sampled_from((7.0, 20.0, 60.0))),
        part_s=draw(st.sampled_from((40.0, 86_400.0))),
        stops=draw(st.booleans()),
    )


@st.composite
def profiles(draw: st.DrawFn, history: History) -> str | None:
    kind, count = history.cards[0]
    return draw(st.sampled_from((None, PROFILE.format(gpus=count, sku=SKUS[kind]))))


SKUS = {
    "H100": "NVIDIA H100 80GB HBM3",
    FAST: "NVIDIA H100 80GB HBM3",
    "A100": "NVIDIA A100-SXM4-80GB",
    "B200": "NVIDIA B200",
    MIG: "NVIDIA H100 80GB HBM3",
}


QUIET = f"{FULL['A100']} power=60"
"""So little power that only the ring buffer tells of it."""


def one_run(kind: str, work: tuple[Work, ...], *broken: Fault, release: float = 60, **more: Any) -> History:
    """A run of one card that Slurm says to have lasted from 5 to 60."""
    part = Part(0, (0,), 5.5, release, release + 0.5)
    run = Run(1, 0, 5, 60, "COMPLETED", (part,))
    return History(((kind, 1),), (work,), (run,), broken, until=int(release) + 20, **more)


def bounds(history: History, folder: Path) -> dict[str, tuple[str, int, int]]:
    """Per level of trust the rung, the bound of the GPUs and the strict one of all, of a history with one run."""
    kind, count = history.cards[0]
    found = covers_truth(history, folder, PROFILE.format(gpus=count, sku=SKUS[kind]))
    entries = {trust: entries[0] for trust, entries in found.items()}
    return {
        trust: (entry["rung"], entry["bound_gpu_flop"], entry["bound_flop_strict"])
        for trust, entry in entries.items()
    }


def test_without_faults_every_counter_lowers_the_bound(tmp_path: Path) -> None:
    slow = (Work(0, 6, 30, "clock=600 active=0.5 hmma=0.4"), Work(0, 30, 40, FULL["H100"]))
    found = bounds(one_run("H100", slow), tmp_path)
    ladder = ("allocation", "cycles_elapsed", "cycles_active", "pipe_cycles")
    assert set(ladder) <= set(found)
    assert [found[trust][0] for trust in ladder] == list(ladder)
    for above, below in pairwise(ladder):
        assert found[below][1] < found[above][1]
        assert found[below][2] < found[above][2]


def test_without_faults_the_ring_buffer_lowers_the_bound(tmp_path: Path) -> None:
    found = bounds(one_run("A100", (Work(0, 6, 30, FULL["A100"]),)), tmp_path)
    assert (found["pipe_cycles"][0], found["busy"][0]) == ("allocation", "busy")
    assert found["busy"][1] < found["allocation"][1] * 3 // 5


@pytest.mark.parametrize("step_s", [-30, -20, -2, 20])
def test_a_clock_that_was_set_does_not_bring_the_release_forward(tmp_path: Path, step_s: int) -> None:
    work = (Work(0, 5.5, 90, FULL["H100"]),)
    history = one_run("H100", work, Fault("wall_step", 30, amount=step_s), release=90)
    found = bounds(history, tmp_path)
    assert found["allocation"][2] is not None, "the lease proves the release"


@pytest.mark.parametrize("at", [29.7, 31.9])
@pytest.mark.parametrize("step_s", [-10, -1, 10])
def test_a_clock_that_was_set_moves_no_idle_time_over_busy_time(
    tmp_path: Path, step_s: float, at: float
) -> None:
    """The ring buffer still holds entries whose stamps are of the old clock."""
    for number, work in enumerate(
        ([(5.5, 30)], [(30, 60)], [(first, first + 1) for first in range(6, 58, 3)])
    ):
        busy = tuple(Work(0, first, last, QUIET) for first, last in work)
        history = one_run("A100", busy, Fault("wall_step", at, amount=step_s))
        found = bounds(history, tmp_path / str(number))
        assert found["busy"][1] <= found["allocation"][1]


@pytest.mark.parametrize("kind", ["open_lost", "open_damaged"])
@pytest.mark.parametrize("at", [8, 33, 59.7])
def test_an_open_file_that_is_no_more_lowers_nothing_before(tmp_path: Path, kind: str, at: float) -> None:
    work = (Work(0, 6, at, FULL["A100"]),)
    found = bounds(one_run("A100", work, Fault(kind, at, amount=3)), tmp_path / "broken")
    whole = bounds(one_run("A100", work), tmp_path / "whole")
    for trust, (_, bound, strict) in found.items():
        assert bound >= whole[trust][1]
        assert strict >= whole[trust][2]


def test_a_missing_entry_is_not_spoken_for_by_the_next(tmp_path: Path) -> None:
    seconds = range(6, 58, 4)
    busy = tuple(Work(0, second, second + 1, QUIET) for second in seconds)
    holes = tuple(Fault("ring_hole", second + 0.1, for_s=0.95, amount=0) for second in seconds)
    bounds(one_run("A100", busy, *holes), tmp_path)


def test_a_clock_beyond_the_datasheet_raises_every_rung(tmp_path: Path) -> None:
    """The run counts at the clock that its driver allows, whether its own sampler lived or another's told of it."""
    work = (Work(0, 5.5, 60, FULL[FAST]), Work(0, 70, 125, FULL[FAST]))
    history = one_run(FAST, work)
    found = bounds(history, tmp_path / "sampled")
    usual = bounds(one_run("H100", work), tmp_path / "usual")
    assert {trust: one[0] for trust, one in found.items()} == {trust: one[0] for trust, one in usual.items()}
    assert found["allocation"][1] * 1980 == usual["allocation"][1] * 2115
    later = replace(history.runs[0], number=2, start=70, end=125, parts=(Part(0, (0,), 70.5, 125, 125.5),))
    both = replace(history, runs=(*history.runs, later), until=150)
    for silent in (0, 1):
        told = replace(both, faults=(Fault("spool_lost", 0, amount=silent),))
        entries = covers_truth(told, tmp_path / f"silent-{silent}")["allocation"]
        assert all("clock_raised" in entry["flags"] for entry in entries)
        assert any(entry["coverage"] is None for entry in entries)


@pytest.mark.parametrize("at", [12, 14])
def test_counters_that_began_anew_unnoticed_lower_nothing(tmp_path: Path, at: float) -> None:
    """By the next read they have passed what they were at the last one."""
    work = (Work(0, 5.3, 60, f"{FULL['H100']} power=60"),)
    bounds(one_run("H100", work, Fault("counter_reset", at, amount=0), header=("boot 5.3",)), tmp_path)


@pytest.mark.parametrize("doing", [FULL["H100"], f"{FULL['H100']} power=60"])
def test_counters_of_work_that_stand_still_lower_nothing(tmp_path: Path, doing: str) -> None:
    """Elapsed cycles go on: github.com/NVIDIA/DCGM/issues/303."""
    still = Fault("work_counters_stand", 0, for_s=200, amount=0)
    found = bounds(one_run("H100", (Work(0, 5.3, 60, doing),), still), tmp_path)
    assert found["pipe_cycles"][1] == found["allocation"][1]


def test_a_clock_that_is_behind_unnoticed_takes_nothing_off_the_end(tmp_path: Path) -> None:
    work = (Work(0, 5.01, 90.47, FULL["H100"]),)
    found = bounds(one_run("H100", work, release=90.47, skew_s=(-CLOCK_S, 0)), tmp_path)
    assert found["allocation"][2] is not None, "the lease proves the release"


def test_a_clock_that_is_behind_proves_no_release(tmp_path: Path) -> None:
    work = (Work(0, 5.3, 90, FULL["H100"]),)
    found = bounds(one_run("H100", work, release=90, skew_s=(-30, 0)), tmp_path)
    assert found["allocation"][2] is None


def test_a_node_that_tells_nothing_proves_no_release(tmp_path: Path) -> None:
    part = Part(0, (0,), 5.5, 60, 60.5)
    run = Run(1, 0, 5, 60, "COMPLETED", (part, replace(part, node=1, release=90, epilog=90.5)))
    work = ((Work(0, 5.5, 60, FULL["H100"]),), (Work(0, 5.5, 90, FULL["H100"]),))
    history = History((("H100", 1),) * 2, work, (run,), (Fault("spool_lost", 0, 1, amount=0),), until=110)
    assert bounds(history, tmp_path)["allocation"][2] is None
    assert bounds(replace(history, faults=()), tmp_path / "told")["allocation"][2] is not None


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_fault_on_a_node_brings_a_bound_below_the_truth(data: st.DataObject) -> None:
    history = data.draw(histories())
    profile = data.draw(profiles(history))
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        covers_truth(history, Path(folder), profile, data.draw(st.booleans()))


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 1 << 28 else None
