"""Whatever a scenario says, the library and the replay read the same of it, and its counters never fall short of it."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

from fake_nvml.harness import EPOCH, FakeNvml
from fake_nvml.truth import operations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_trace.node.devices.base import CounterRead
from slurm_trace.node.devices.replay import replay
from slurm_trace.node.devices.scenario import load
from slurm_trace.node.errors import DeviceProblem

FUNCTIONS = (
    "*",
    "DeviceGetFieldValues",
    "DeviceGetUtilizationRates",
    "field:83",
    "gpm:250",
    "DeviceGetClockInfo",
    "samples:1",
)
CODES = ("not_supported", "no_permission", "unknown_error", "lost", "timeout", "27")
READINGS = ("utilization", "temperature", "energy", "power_average", "memory_used", "gpm:252")
NUMBERS = ("0", "55", "101", "65535", "4294967295", "18446744073709551615", "-1")
SECONDS = st.integers(0, 80).map(lambda quarter: quarter / 4)


@st.composite
def _scenarios(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(("A100", "H100", "B200", "GH200", "VGPU")))
    lines = [f"cycles {draw(st.sampled_from(('mean', 'sum')))}", f"gpu {kind} GPU-0"]
    units = ["0"]
    if kind in ("A100", "H100") and draw(st.booleans()):
        lines += [f"mig 0 MIG-{i} 1g.10gb gi={7 + i} ci=0 sms=14 memory=10737418240" for i in range(2)]
        units = ["0.0", "0.1"]
    for unit in units:
        edges = sorted(set(draw(st.lists(SECONDS, max_size=5))))
        for start, end in pairwise(edges):
            tensor, vector = (draw(st.integers(0, 50)) / 100 for _ in range(2))
            clock = "" if "." in unit else f" clock={draw(st.integers(200, 1400))}"
            lines.append(
                f"work {unit} {start} {end} busy=0.9 active=0.6 hmma={tensor} fp32={vector} tx=1000{clock}"
            )
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted((draw(SECONDS), draw(SECONDS)))
        lines.append(
            f"fault 0 {draw(st.sampled_from(FUNCTIONS))} {start} {end} {draw(st.sampled_from(CODES))}"
        )
    for _ in range(draw(st.integers(0, 2))):
        start, end = sorted((draw(SECONDS), draw(SECONDS)))
        lines.append(
            f"set 0 {draw(st.sampled_from(READINGS))} {start} {end} {draw(st.sampled_from(NUMBERS))}"
        )
    lines += [f"reset 0 {at}" for at in draw(st.lists(SECONDS, max_size=2))]
    return "\n".join(lines) + "\n"


def _ask(method: Any, *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except DeviceProblem as problem:
        return type(problem), problem.reason


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_scenarios(), moments=st.lists(SECONDS, min_size=1, max_size=6).map(sorted))
def test_both_ways_agree(fake: FakeNvml, text: str, moments: list[float]) -> None:
    fake.end()
    path = fake.load(text, at=-1)
    ours, theirs = fake.source(), replay(path, lambda: EPOCH + fake.now)
    ours.open()
    theirs.open()
    uuids = [info.uuid for info in ours.devices()]
    assert uuids == [info.uuid for info in theirs.devices()]
    for uuid in uuids:
        _ask(ours.counters, uuid)
    for at in moments:
        fake.set(at)
        for uuid in uuids:
            assert _ask(ours.read, uuid) == _ask(theirs.read, uuid)
            assert _ask(ours.counters, uuid) == _ask(theirs.counters, uuid)
            assert _ask(ours.ring, uuid, "utilization_pct", 0) == _ask(
                theirs.ring, uuid, "utilization_pct", 0
            )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_scenarios(), moments=st.lists(SECONDS, min_size=3, max_size=12, unique=True).map(sorted))
def test_a_reading_taken_as_a_whole_is_the_one_taken_call_by_call(
    fake: FakeNvml, text: str, moments: list[float]
) -> None:
    fake.end()
    fake.load(text, at=-1)
    quick, slow = fake.source(), fake.source()
    quick.open()
    slow.open()
    uuids = [info.uuid for info in quick.devices()]
    for at in moments:
        fake.set(at)
        for uuid in uuids:
            slow._devices[uuid]._quick = None
            assert _ask(quick.read, uuid) == _ask(slow.read, uuid)
    assert quick.faults == slow.faults


def test_readings_are_taken_as_a_whole(fake: FakeNvml) -> None:
    """Or else the property above compares the long way with itself."""
    fake.load(
        "gpu H100 GPU-0\ngpu A100 GPU-1\nmig 1 MIG-0 1g.10gb gi=7 ci=0 sms=14 memory=10737418240\n", at=1
    )
    source = fake.source()
    source.open()
    for at in (2, 3, 4):
        fake.set(at)
        for uuid in ("GPU-0", "MIG-0"):
            source.read(uuid)
    for uuid in ("GPU-0", "MIG-0"):
        device = source._devices[uuid]
        assert device._quick is not None
        assert device._quick.take({}) is not None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_scenarios(), first=SECONDS, second=SECONDS)
def test_a_counter_that_was_read_twice_and_did_not_restart_covers_the_truth(
    fake: FakeNvml, text: str, first: float, second: float
) -> None:
    """Cycles of the pipes by the most that a cycle of theirs can do, against what was done."""
    fake.end()
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("set"))
    scenario = load(fake.load(kept, at=min(first, second)))
    source = fake.source()
    source.open()
    for info in source.devices():
        fake.set(min(first, second))
        before, start = _ask(source.counters, info.uuid), fake.now
        fake.set(max(fake.now, max(first, second)))
        after, end = _ask(source.counters, info.uuid), fake.now
        reads = [
            read.get(f"gpm_{pipe}_cycles_active") if isinstance(read, CounterRead) else None
            for read in (before, after)
            for pipe in ("hmma", "fp32")
        ]
        restarted = any(start < reset <= end for gpu in scenario.gpus for reset in gpu.resets)
        if None in reads or restarted:
            continue
        sms = info.sm_count or scenario.gpus[0].profile.sms
        per_sm = sms if scenario.cycles == "mean" else 1
        tensor = {"B200": 8192}.get(text.split("gpu ", 1)[1].split()[0], 4096)
        # Two floors of a counter may hide one cycle each.
        bound = ((reads[2] - reads[0] + 1) * tensor + (reads[3] - reads[1] + 1) * 256) * per_sm
        truth = operations(scenario, Fraction(start), Fraction(end))[info.uuid]
        assert bound * (1 + Fraction(1, 10**9)) >= truth
