"""When did a run let go of its hardware? Each case was seen on a real Slurm."""

import pandas as pd
import pytest

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.release import KILLED, LIMIT, NODE_LOST, OPEN, QUERY, SETTLED, releases
from slurm_trace.site.profile import ClusterProfile, SiteProfile

NOW = 1_800_000_000
T0 = 1_700_000_000


def frame(**values):
    row = {
        "cluster": "c", "start": T0, "end": T0 + 100, "elapsed_s": 100, "suspended_s": 0, "limit_s": 3600,
        "step_end": None, "step_count": 0, "queried_at": None, "state": "COMPLETED", "node_list": "n1",
        "source": "sacct", "flags": "", "final": True, "started": True, "lease_end": None, "release_proven": False,
    } | values  # fmt: skip
    numbers = (
        "start", "end", "elapsed_s", "suspended_s", "limit_s", "step_end", "step_count", "queried_at", "lease_end",
    )  # fmt: skip
    return pd.DataFrame({k: pd.array([v], dtype="Int64") if k in numbers else [v] for k, v in row.items()})


def release(events=(), site=None, **values):
    return releases(frame(**values), site or SiteProfile(), events, NOW)


@pytest.mark.parametrize(
    ("values", "run_s", "held_s", "why"),
    [
        ({}, 100, 101, SETTLED),
        ({"elapsed_s": None}, 100, 101, SETTLED),
        # suspended: Elapsed leaves the pause out, the cards were held all along
        ({"end": T0 + 14400, "elapsed_s": 7200, "suspended_s": 7200}, 7200, 14401, SETTLED),
        # killed while suspended: End before Start + Elapsed + Suspended
        ({"end": T0 + 50, "elapsed_s": 40, "suspended_s": 60}, 40, 101, SETTLED),
        # the batch step outlived the job
        ({"state": "CANCELLED", "step_end": T0 + 131, "step_count": 2}, 100, 132, SETTLED),
        # killed, and nothing tells when its processes were gone
        ({"state": "CANCELLED"}, 100, 191, KILLED),
        ({"state": "TIMEOUT"}, 100, 191, KILLED),
        ({"state": "REQUEUED"}, 100, 191, KILLED),
        # a clock step or a repaired runaway: the end is unknown
        ({"end": T0, "elapsed_s": 0}, 0, 3691, LIMIT),
        ({"end": T0 - 5, "elapsed_s": 0, "state": "FAILED"}, 0, 3691, LIMIT),
        # the same with a finished step is an ordinary short run
        ({"end": T0, "elapsed_s": 0, "step_end": T0, "step_count": 1}, 0, 1, SETTLED),
        # a limit of nothing is no limit, and a pause does not tell when it ended
        ({"end": T0, "elapsed_s": 0, "suspended_s": 30}, 0, 3691, LIMIT),
        # the node was lost: what the steps say of the end came from the controller
        ({"state": "NODE_FAIL", "step_end": T0 + 100, "step_count": 1}, 100, 191, KILLED),
        # no Start in the export: Elapsed alone
        ({"start": None, "end": None}, 100, 101, SETTLED),
        # a zone that nobody named can hide an hour, unless Elapsed is there to tell
        ({"elapsed_s": None, "flags": "tz_assumed"}, 100, 3701, SETTLED),
        ({"flags": "tz_assumed"}, 100, 101, SETTLED),
        # running: up to the query
        ({"state": "RUNNING", "final": False, "end": None, "queried_at": T0 + 100}, 100, 101, QUERY),
        (
            {"state": "RUNNING", "final": False, "end": None, "elapsed_s": 10, "queried_at": T0 + 500},
            10,
            501,
            QUERY,
        ),
        # ended so shortly before the query that the row may still change
        ({"final": False, "flags": "settling", "queried_at": T0 + 105}, 100, 101, SETTLED),
        # no state, so it may have been killed
        ({"state": "UNKNOWN", "final": False, "flags": "state_unknown"}, 100, 191, KILLED),
        # a state that is not final wins over a filled End
        ({"state": "RUNNING", "final": False, "end": T0 + 5, "queried_at": T0 + 500}, 100, 501, QUERY),
    ],
)
def test_release(values, run_s, held_s, why):
    found = release(**values)
    assert (found.run_s[0], found.held_s[0], found.why[0], found.known[0]) == (run_s, held_s, why, True)


@pytest.mark.parametrize(
    "values",
    [
        {"end": T0, "elapsed_s": 0, "limit_s": None},
        {"state": "PENDING", "final": False, "end": None},
        {"source": "step"},
        {"start": None, "end": None, "elapsed_s": None},
        {"state": "RUNNING", "final": False, "end": None, "elapsed_s": None},
        {"elapsed_s": 10**17},
        {"end": T0, "elapsed_s": 0, "limit_s": 0},
        # Elapsed leaves pauses out: without End or Suspended nothing tells how long it was held
        {"end": None, "suspended_s": None},
        {"start": None, "suspended_s": None},
        {"state": "RUNNING", "final": False, "end": None, "suspended_s": None},
        {"state": "SUSPENDED", "final": False, "end": None, "suspended_s": None, "queried_at": T0 + 100},
        # a run goes on after its last finished step, and after an End that its state denies
        {
            "state": "RUNNING",
            "final": False,
            "end": None,
            "elapsed_s": None,
            "step_end": T0 + 50,
            "step_count": 1,
        },
        {"state": "RUNNING", "final": False, "elapsed_s": None},
        {"end": T0, "elapsed_s": 0, "limit_s": 2**62},
    ],
)
def test_unknown_release_is_not_zero(values):
    found = release(**values)
    assert not found.known[0]
    assert found.held_s[0] == -1
    assert found.why[0] == OPEN
    assert not found.proven[0]


def test_a_query_tells_how_long_a_run_was_held_without_its_pauses():
    found = release(state="RUNNING", final=False, end=None, suspended_s=None, queried_at=T0 + 500)
    assert (found.held_s[0], found.known[0]) == (501, True)


def test_without_its_pauses_the_end_of_a_killed_run_is_not_proven():
    assert release(state="CANCELLED").proven[0]
    found = release(state="CANCELLED", suspended_s=None)
    assert (found.held_s[0], found.proven[0]) == (191, False)
    assert release(suspended_s=None, step_end=T0 + 99, step_count=1).proven[0]


def test_never_started_held_nothing():
    found = release(started=False, start=None, end=T0, elapsed_s=0, state="CANCELLED")
    assert (found.held_s[0], found.known[0]) == (0, True)


def test_completed_without_steps_is_an_assumption_and_with_steps_is_not():
    assert not release().proven[0]
    assert release(step_end=T0 + 99, step_count=1).proven[0]


def test_grace_comes_from_the_profile():
    site = SiteProfile({"c": ClusterProfile(kill_wait_s=60, unkillable_step_timeout_s=600)})
    assert release(site=site, state="CANCELLED").held_s[0] == 101 + 660


def test_half_a_grace_in_the_profile_never_shortens_it():
    site = SiteProfile({"c": ClusterProfile(kill_wait_s=2)})
    assert release(site=site, state="CANCELLED").held_s[0] == 191


def down(start, end, node="n1"):
    return Event("c", node, start, end, "DOWN*", "Not responding", None, "slurm")


@pytest.mark.parametrize(
    ("event", "held_s", "why", "proven"),
    [
        (down(T0 + 100, T0 + 1000), 1031, NODE_LOST, True),
        (down(T0 + 40, T0 + 1000), 1031, NODE_LOST, True),
        (down(T0 + 190, T0 + 1000), 1031, NODE_LOST, True),  # noticed a little later
        (down(T0 + 100, None), NOW - T0 + 31, NODE_LOST, True),  # still down, as far as the records go
        (down(T0 + 100, T0 + 1000, "n2"), 191, KILLED, False),
        (down(T0 + 90_000, T0 + 91_000), 191, KILLED, False),
        (down(T0 + 40, T0 + 99), 191, KILLED, False),  # up again before the run ended
    ],
)
def test_node_fail_lasts_until_the_node_is_back(event, held_s, why, proven):
    found = release([event], state="NODE_FAIL")
    assert (found.held_s[0], found.why[0], found.proven[0]) == (held_s, why, proven)


def test_a_node_is_down_through_all_events_that_follow_each_other():
    """slurmdbd closes an event and opens the next one when an admin drains a node that is down."""
    events = [down(T0 + 1000, T0 + 5000), down(T0 + 100, T0 + 1000), down(T0 + 6000, T0 + 7000)]
    assert release(events, state="NODE_FAIL").held_s[0] == 5031


def test_the_longest_outage_of_its_nodes_counts():
    events = [down(T0 + 100, T0 + 1000), down(T0 + 100, T0 + 2000, "n2")]
    assert release(events, state="NODE_FAIL", node_list="n[1-2]").held_s[0] == 2031


def test_node_fail_with_steps_but_without_events_is_not_proven():
    found = release(state="NODE_FAIL", step_end=T0 + 100, step_count=1)
    assert not found.proven[0]


@pytest.mark.parametrize(
    ("values", "runaway"),
    [
        ({"queried_at": T0 + 7201}, True),
        ({"queried_at": T0 + 7000}, False),
        ({"queried_at": T0 + 7201, "limit_s": None}, False),
        ({"queried_at": T0 + 7201, "state": "SUSPENDED"}, True),
        ({"queried_at": T0 + 7201, "end": T0 + 7201}, False),
    ],
)
def test_runaway(values, runaway):
    found = release(**({"state": "RUNNING", "final": False, "end": None, "elapsed_s": None} | values))
    assert found.runaway[0] == runaway
    assert found.known[0]


def test_recorded_part_never_exceeds_the_whole():
    for values in ({}, {"state": "CANCELLED"}, {"end": T0, "elapsed_s": 0}, {"elapsed_s": None}):
        found = release(**values)
        assert 0 <= found.recorded_s[0] <= found.held_s[0]


ENDED = {"lease_end": T0 + 130, "release_proven": True}


@pytest.mark.parametrize(
    ("values", "held_s", "why", "proven"),
    [
        # a process outlived the job: its nodes say until when, whatever the state
        ({**ENDED}, 131, SETTLED, True),
        ({"state": "CANCELLED", **ENDED}, 131, SETTLED, True),
        ({"state": "NODE_FAIL", **ENDED}, 131, SETTLED, True),
        ({"state": "UNKNOWN", "final": False, "flags": "state_unknown", **ENDED}, 131, QUERY, True),
        # the last node closes as the job ends: no grace, and what is latest counts
        ({"state": "TIMEOUT", "lease_end": T0 + 100, "release_proven": True}, 101, SETTLED, True),
        ({"state": "TIMEOUT", "step_end": T0 + 140, "step_count": 1, **ENDED}, 141, SETTLED, True),
        # some node has no lease, or one that did not close: later it may be, earlier never
        ({"state": "CANCELLED", "lease_end": T0 + 130}, 221, KILLED, True),
        ({"state": "CANCELLED", "lease_end": T0 + 50}, 191, KILLED, True),
        ({"state": "CANCELLED", "suspended_s": None, "lease_end": T0 + 130}, 221, KILLED, False),
        ({"lease_end": T0 + 130}, 131, SETTLED, False),
        # the record has come to end later than the leases say
        ({"state": "CANCELLED", "end": T0 + 200, "elapsed_s": 200, **ENDED}, 291, KILLED, True),
        # a repaired runaway: the leases know the end, but only if all of them do
        ({"end": T0, "elapsed_s": 0, **ENDED}, 131, SETTLED, True),
        ({"end": T0, "elapsed_s": 0, "lease_end": T0 + 130}, 3691, LIMIT, False),
        # running as far as the record knows
        (
            {"state": "RUNNING", "final": False, "end": None, "queried_at": T0 + 100, **ENDED},
            131,
            QUERY,
            True,
        ),
    ],
)
def test_release_by_the_leases(values, held_s, why, proven):
    found = release(**values)
    assert (found.held_s[0], found.why[0], found.proven[0], found.known[0]) == (held_s, why, proven, True)


def test_node_events_do_not_stretch_what_the_leases_prove():
    down = Event("c", "n1", T0 + 90, T0 + 900, "DOWN", "", None, "")
    assert release([down], state="NODE_FAIL", **ENDED).held_s[0] == 131
    assert release([down], state="NODE_FAIL", lease_end=T0 + 130).held_s[0] == 931


def test_a_lease_that_closes_in_the_year_5000_is_no_record_of_a_time():
    assert not release(lease_end=10**12).known[0]
