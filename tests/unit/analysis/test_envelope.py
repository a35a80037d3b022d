"""Bounds of single runs: exact, and never below what the records leave open."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.envelope import _longest_s
from slurm_trace.analysis.rates import Rates
from tests.support.world import T0, Job, judge, sacct_text

LATE = Rates.load(None).complete_through


def row(number=1, run_s=1000, start=T0, **changes):
    made = Job(
        number=number, submit=start, start=start, end=start + run_s, stopped_s=run_s, suspended_s=0, state="COMPLETED",
        nodes=1, gpus=8, gpu_type="our_new_cards", cpus=64, flop=0,
    )  # fmt: skip
    return made.row(**changes)


def test_an_unknown_type_is_bounded_only_where_the_run_ended_before_the_registry(tmp_path):
    rows = [row(1), row(2, start=LATE - 1001), row(3, start=LATE - 1000), row(4, start=LATE)]
    _, found = judge(tmp_path, sacct_text(rows))
    bounds = {e["job_id_raw"]: e["bound_flop"] for e in found.jobs()}
    assert [bounds[n] is None for n in (1, 2, 3, 4)] == [False, False, True, True]


def test_a_run_that_may_have_ended_at_any_time_may_have_ended_after_the_registry(tmp_path):
    _, found = judge(tmp_path, sacct_text([row(1)], frozenset({"Start"})))
    (entry,) = found.jobs()
    assert (entry["start"], entry["held_s"], entry["bound_flop"]) == (None, 1001, None)


NODES = """[[clusters.c.nodes]]
hosts = "n1"
gpus = 8
sku = "nvidia-h100-sxm5-80gb"
cpu_model = "AMD EPYC 7763 64-Core Processor"
cores = 64
devices_confined = true
cores_confined = true
basis = "proven"

[[clusters.c.nodes]]
hosts = "n2"
gpus = 8
sku = "nvidia-t4"
cpu_model = "AMD EPYC 7763 64-Core Processor"
cores = 64
devices_confined = true
cores_confined = true
basis = "proven"
"""


@pytest.fixture
def proven(tmp_path):
    """Two nodes of which all is proven, with different cards."""
    path = tmp_path / "site.toml"
    path.write_text(NODES)
    return str(path)


UNTYPED = "billing=1,cpu=64,gres/gpu=8,mem=1G,node=1"


def test_equal_allocations_on_different_nodes_have_the_cards_of_their_nodes(tmp_path, proven):
    rows = [row(1, AllocTRES=UNTYPED), row(2, AllocTRES=UNTYPED, NodeList="n2")]
    _, found = judge(tmp_path, sacct_text(rows), profile=proven)
    assert {e["job_id_raw"]: e["gpus"][0]["sku"] for e in found.jobs()} == {
        1: "nvidia-h100-sxm5-80gb",
        2: "nvidia-t4",
    }


def test_strict_takes_a_release_that_is_proven(tmp_path, proven):
    """A run that was killed has its grace; of one that completed nothing tells that it let go."""
    rows = [row(1, AllocTRES=UNTYPED, State="CANCELLED by 7"), row(2, AllocTRES=UNTYPED)]
    rows.append(row(3, 200 * 86_400, AllocTRES=UNTYPED, State="TIMEOUT"))
    _, found = judge(tmp_path, sacct_text(rows), profile=proven)
    entries = {e["job_id_raw"]: e for e in found.jobs()}
    assert entries[1]["bound_flop_strict"] == entries[1]["bound_flop"]
    assert entries[2]["bound_flop_strict"] is None
    assert [entries[n]["verdict_strict"] for n in (1, 2, 3)] == ["RULED_OUT", "INSUFFICIENT", "NOT_RULED_OUT"]
    (everything,) = found.groups("all")
    assert everything.verdict_strict == "INSUFFICIENT"


@settings(max_examples=300)
@given(st.integers(0, 10**40), st.integers(-1, 10**60), st.integers(0, 10**11))
@example(7, 21, 3)
@example(0, 1, 10**11)
def test_the_longest_time_below_a_limit_is_exact(flop_s, limit, held_s):
    assert (held_s <= _longest_s(flop_s, limit)) == (held_s * flop_s < limit)


def test_below_is_exact_to_the_last_operation(tmp_path, proven):
    rows = [row(1, AllocTRES=UNTYPED, State="CANCELLED by 7")]
    envelope = judge(tmp_path, sacct_text(rows), profile=proven)[1].envelope
    for strict, bound in ((False, envelope.bound_flop(0)), (True, envelope.strict_flop(0))):
        assert [bool(envelope.below(bound + n, strict=strict)[0]) for n in (0, 1)] == [False, True]


def test_without_a_bound_nothing_is_below(tmp_path, proven):
    rows = [row(1, AllocTRES=UNTYPED), row(2, 0, AllocTRES=UNTYPED, Timelimit="")]
    envelope = judge(tmp_path, sacct_text(rows), profile=proven)[1].envelope
    assert envelope.below(10**60).tolist() == [True, False]
    assert envelope.below(10**60, strict=True).tolist() == [False, False]
    assert envelope.below(0).tolist() == [False, False]
