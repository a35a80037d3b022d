"""Bounds of single runs: exact, and never below what the records leave open."""

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.envelope import _longest_s
from slurm_trace.analysis.rates import Rates
from tests.support.world import T0, Job, judge, sacct_text

LATE = Rates.load(None).complete_through


def row(number=1, start=T0, run_s=1000, **changes):
    made = Job(
        number=number, submit=start, start=start, end=start + run_s, stopped_s=run_s, suspended_s=0, state="COMPLETED",
        nodes=1, gpus=8, gpu_type="our_new_cards", cpus=64, flop=0,
    )  # fmt: skip
    return made.row(**changes)


def test_an_unknown_type_is_bounded_only_where_the_run_ended_before_the_registry(tmp_path):
    rows = [row(1), row(2, LATE - 1001), row(3, LATE - 1000), row(4, LATE)]
    _, found = judge(tmp_path, sacct_text(rows))
    bounds = {e["job_id_raw"]: e["bound_flop"] for e in found.jobs()}
    assert [bounds[n] is None for n in (1, 2, 3, 4)] == [False, False, True, True]


def test_a_run_that_may_have_ended_at_any_time_may_have_ended_after_the_registry(tmp_path):
    _, found = judge(tmp_path, sacct_text([row(1)], frozenset({"Start"})))
    (entry,) = found.jobs()
    assert (entry["start"], entry["held_s"], entry["bound_flop"]) == (None, 1001, None)


@settings(max_examples=300)
@given(st.integers(0, 10**40), st.integers(-1, 10**60), st.integers(0, 10**11))
def test_the_longest_time_below_a_limit_is_exact(flop_s, limit, held_s):
    assert (held_s <= _longest_s(flop_s, limit)) == (held_s * flop_s < limit)
