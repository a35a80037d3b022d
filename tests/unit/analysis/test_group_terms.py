"""What besides the sum of its runs is said of a group: windows, a base model, use outside of runs, pruning."""

import pytest

from slurm_trace.analysis import groups as module
from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.groups import BY, NO_TERMS, Terms
from slurm_trace.analysis.people import NOBODY
from tests.support.grouped import T0, bounds, frame, grouping

DAY = 86_400


def bound(run):
    return bounds(frame(run)).bound_flop(0)


def test_the_worst_window_counts_whole_what_touches_it():
    runs = [
        {"held": 10 * DAY},
        {"at": 15 * DAY, "held": DAY},
        {"at": 17 * DAY, "held": DAY},
        {"at": 60 * DAY},
    ]
    (whole,) = grouping(*runs, terms=Terms(within_s=8 * DAY)).groups("all")
    assert whole.jobs == 3
    assert whole.bound_flop == sum(map(bound, runs[:3]))
    since, until = whole.worst_window["since"], whole.worst_window["until"]
    assert until - since == 8 * DAY
    assert since < T0 + 10 * DAY + 1
    assert until > T0 + 17 * DAY
    assert whole.gpu_seconds < 8 * 12 * DAY  # only what lies inside the window


def test_a_window_that_holds_all_is_the_whole():
    runs = [{"at": n * DAY} for n in range(5)]
    plain, within = (
        grouping(*runs, terms=t).groups("user")[0] for t in (NO_TERMS, Terms(within_s=900 * DAY))
    )
    assert (within.jobs, within.bound_flop, within.gpu_seconds) == (
        plain.jobs,
        plain.bound_flop,
        plain.gpu_seconds,
    )
    assert plain.worst_window is None


def test_a_run_without_a_time_touches_every_window_and_one_without_a_bound_leaves_the_group_whole():
    timeless = {"start": None, "end": None, "step_end": None}
    (whole,) = grouping({}, {"at": 50 * DAY}, timeless, terms=Terms(within_s=DAY)).groups("all")
    assert (whole.jobs, whole.verdict) == (2, "RULED_OUT")
    endless = {"end": None, "elapsed_s": None, "step_end": None, "state": "RUNNING", "final": False}
    (whole,) = grouping({}, {"at": 50 * DAY}, endless, terms=Terms(within_s=DAY)).groups("all")
    assert (whole.jobs, whole.worst_window, whole.verdict) == (3, None, "INSUFFICIENT")


def test_each_group_has_its_own_window():
    runs = [
        {"user": "a", "uid": 1},
        {"user": "b", "uid": 2, "at": 50 * DAY},
        {"user": "b", "uid": 2, "at": 51 * DAY},
    ]
    one, other = sorted(grouping(*runs, terms=Terms(within_s=2 * DAY)).groups("user"), key=lambda g: g.key)
    assert one.worst_window["since"] < T0 + DAY < other.worst_window["since"]
    assert (one.jobs, other.jobs) == (1, 2)


# A base model is a line of its own


def test_a_base_model_is_added_apart_from_the_own_contribution():
    own = bound({})
    asked = grouping({}, threshold=10 * own, terms=Terms(base_flop=9 * own))
    (whole,) = asked.groups("all")
    assert (whole.bound_flop, whole.verdict) == (own, "RULED_OUT")
    assert (whole.bound_with_base_flop, whole.verdict_with_base) == (10 * own, "NOT_RULED_OUT")
    assert asked.groups("all").tally_with_base()["NOT_RULED_OUT"] == 1
    (whole,) = grouping({}, threshold=10 * own).groups("all")
    assert (whole.bound_with_base_flop, whole.ratio_with_base, whole.verdict_with_base) == (None, None, None)


def test_what_has_no_bound_has_none_with_a_base_model_either():
    endless = {"end": None, "elapsed_s": None, "step_end": None, "state": "RUNNING", "final": False}
    (whole,) = grouping(endless, terms=Terms(base_flop=1)).groups("all")
    assert (whole.bound_with_base_flop, whole.verdict_with_base) == (None, "INSUFFICIENT")


# Use outside of runs


def test_use_outside_of_runs_is_part_of_all_and_of_its_cluster_and_may_be_anybody_s():
    runs = [{}, {"cluster": "d", "user": "bob", "uid": 7, "account": "other"}]
    own = bound({})
    asked = grouping(*runs, threshold=10 * own, unattributed={"c": 9 * own})
    (whole,) = asked.groups("all")
    assert (whole.bound_flop, whole.unattributed_flop, whole.verdict) == (11 * own, 9 * own, "NOT_RULED_OUT")
    c, d = sorted(asked.groups("cluster"), key=lambda g: g.key)
    assert (c.bound_flop, c.unattributed_flop, c.verdict) == (10 * own, 9 * own, "NOT_RULED_OUT")
    assert (d.bound_flop, d.unattributed_flop, d.verdict) == (own, 0, "RULED_OUT")
    for by in ("account", "user", "lineage", "family"):
        for group in asked.groups(by):
            assert group.verdict == "INSUFFICIENT", by
            assert group.reasons == (
                f"{9 * own} operations were seen while no run held the card, and may be its own",
            )


def test_little_use_outside_of_runs_changes_no_verdict():
    for by in BY:
        assert [
            g.verdict for g in grouping({}, {"user": "bob", "uid": 7}, unattributed={"c": 10**15}).groups(by)
        ].count("RULED_OUT") == len(grouping({}, {"user": "bob", "uid": 7}).groups(by))


def test_a_run_of_a_name_of_two_people_may_be_either_s():
    own = bound({})
    runs = [{"uid": 7}, {"uid": 8, "at": 99 * DAY}, {"uid": None, "at": 198 * DAY}]
    found = {g.key: (g.verdict, g.reasons) for g in grouping(*runs, threshold=2 * own).groups("user")}
    told = ("INSUFFICIENT", ("1 runs name no single user, and may be its own",))
    assert found == {"ada (7)": told, "ada (8)": told, "(none)": ("RULED_OUT", ())}
    assert {g.verdict for g in grouping(*runs, threshold=3 * own).groups("user")} == {"RULED_OUT"}


def test_runs_that_name_no_user_may_belong_to_any_lineage():
    own = bound({})
    nobody = {"user": None, "uid": None}
    asked = grouping({}, nobody, nobody | {"at": 99 * DAY}, threshold=3 * own)
    named, *others = sorted(asked.groups("lineage"), key=lambda g: NOBODY in g.label)
    assert (named.verdict, named.reasons) == (
        "INSUFFICIENT",
        ("2 runs name no single user, and may be its own",),
    )
    assert [g.verdict for g in others] == [
        "RULED_OUT",
        "RULED_OUT",
    ]  # without a name they are two of the same length
    asked = grouping({}, nobody, nobody | {"at": 99 * DAY}, threshold=2 * own)
    assert {g.verdict for g in asked.groups("lineage")} == {"INSUFFICIENT"}


# Top down


def test_where_all_is_ruled_out_nothing_is_worked_out_for_its_parts(monkeypatch):
    asked = grouping({}, {"user": "bob", "uid": 7})
    monkeypatch.setattr(module, "capped_flop", lambda *_: pytest.fail("no cap is needed"))
    assert asked.everything_ruled_out
    for by in BY:
        groups = asked.groups(by)
        assert groups.tally()["RULED_OUT"] == len(groups)
        assert all(g.fewest_jobs is None and g.fewest_jobs_list == () for g in groups)


def test_parts_of_what_its_capacity_rules_out_are_ruled_out_too(monkeypatch):
    """A row of cluster d could not be read; the hardware of all clusters can't have done that much."""
    monkeypatch.setattr(module, "total_capacity", lambda *_: 10**20)
    known = {"complete": {"c": Completeness("proven"), "d": Completeness("proven")}, "rejected": {"d": 1}}
    asked = grouping({}, {"user": "bob", "uid": 7, "held": 9}, **known)
    assert asked.everything_ruled_out
    assert {g.verdict for by in BY for g in asked.groups(by)} == {"RULED_OUT"}
    assert all(g.bound_flop <= 10**20 for by in BY for g in asked.groups(by))


# Lists


def test_the_fewest_are_named_as_explain_takes_them():
    own = bound({})
    runs = [{"user": f"u{n}", "uid": n, "held": 3600 * (1 + (n == 3))} for n in range(1, 5)]
    (whole,) = grouping(*runs, threshold=3 * own, terms=NO_TERMS).groups("all")
    assert whole.fewest_jobs == whole.fewest_users == 2
    assert whole.fewest_jobs_list[0].startswith("c:3@2023-11-14T")
    assert whole.fewest_users_list[0] == "u3 (3)"


def test_a_run_without_a_bound_is_enough_by_itself():
    endless = {
        "end": None,
        "elapsed_s": None,
        "step_end": None,
        "state": "RUNNING",
        "final": False,
        "user": "bob",
        "uid": 7,
    }
    (whole,) = grouping({}, endless, {}).groups("all")
    assert (whole.fewest_jobs, whole.fewest_users_list) == (1, ("bob (7)",))
    assert whole.fewest_jobs_list[0].startswith("c:2@")


def test_no_more_than_a_hundred_are_named():
    runs = [{"job_id_raw": n} for n in range(1, 151)]
    (whole,) = grouping(*runs, threshold=120 * bound({})).groups("all")
    assert (whole.fewest_jobs, len(whole.fewest_jobs_list)) == (115, 100)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("terms", [NO_TERMS, Terms(within_s=DAY, base_flop=7)])
def test_where_there_is_no_run_there_is_no_group(by, terms):
    asked = grouping({"started": False}, terms=terms)
    asked = module.Grouping(
        asked.envelope, asked.envelope.started, asked.question, asked.records, asked.inventory, terms
    )
    assert len(asked.groups(by)) == 0
    assert asked.groups(by).tally() == {"NOT_RULED_OUT": 0, "INSUFFICIENT": 0, "RULED_OUT": 0}
    assert not asked.everything_ruled_out
