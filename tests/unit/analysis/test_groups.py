"""The question asked of groups: sums, what may be missing, capacity, the fewest that reach the threshold."""

import dataclasses

import pytest

from tests.support.world import T0, Job, judge, sacct_text, stamp

DAY = 86400


def job(number, days=1.0, *, gpus=8, user="u1", account="a1", start=T0, state="COMPLETED", **changes):
    run_s = int(days * DAY)
    made = Job(
        number=number, submit=start - 60, start=start, end=start + run_s, stopped_s=run_s, suspended_s=0, state=state,
        nodes=1, gpus=gpus, gpu_type="h100", cpus=64, flop=0, user=user, account=account,
    )  # fmt: skip
    return made.row(**changes)


def groups(tmp_path, rows, by="all", **options):
    return judge(tmp_path, sacct_text(rows), **options)[1].groups(by)


@pytest.fixture
def inventory(tmp_path):
    """Four nodes of eight H100, so that there is a capacity."""
    path = tmp_path / "site.toml"
    path.write_text(
        '[[clusters.c.nodes]]\nhosts = "n[1-4]"\ngpus = 8\nsku = "nvidia-h100-sxm5-80gb"\n'
        'cpu_model = "AMD EPYC 7763 64-Core Processor"\ncores = 64\n'
    )
    return str(path)


def test_a_sum_is_the_sum_of_its_members(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1), job(2, 2.5), job(3, user="u2")]))
    entries = list(found.jobs())
    (everything,) = found.groups("all")
    assert everything.bound_flop == sum(e["bound_flop"] for e in entries)
    assert everything.gpu_seconds == sum(e["gpu_seconds"] for e in entries)
    by_user = found.groups("user")
    assert [(g.key, g.jobs) for g in by_user] == [("u1", 2), ("u2", 1)]
    assert sum(g.bound_flop for g in by_user) == everything.bound_flop


def test_runs_that_are_ruled_out_one_by_one_can_reach_it_together(tmp_path):
    rows = [job(n, 4, start=T0 + n * 4 * DAY) for n in range(1, 13)]
    _, found = judge(tmp_path, sacct_text(rows))
    assert found.tally() == {"NOT_RULED_OUT": 0, "INSUFFICIENT": 0, "RULED_OUT": 12}
    (everything,) = found.groups("all")
    assert everything.verdict == "NOT_RULED_OUT"
    assert everything.fewest_users == 1
    one = next(found.jobs())["bound_flop"]
    assert (everything.fewest_jobs - 1) * one < found.question.limit_flop <= everything.fewest_jobs * one


def test_fewest_are_none_where_all_together_do_not_reach_it(tmp_path):
    (everything,) = groups(tmp_path, [job(1), job(2)])
    assert (everything.verdict, everything.fewest_jobs, everything.fewest_users) == ("RULED_OUT", None, None)


def test_the_records_of_a_resized_job_count_their_common_time_once(tmp_path):
    """Slurm 22.05 gives the second record the original Start; a plain sum would count the first day twice."""
    rows = [
        job(1, 1, state="RESIZING", Submit=stamp(T0 - 60)),
        job(1, 3, gpus=4, Submit=stamp(T0 + DAY)),
    ]
    _, found = judge(tmp_path, sacct_text(rows))
    by_state = {e["state"]: e for e in found.jobs()}
    (everything,) = found.groups("all")
    first, second = by_state["RESIZING"], by_state["COMPLETED"]
    rate = {s: e["bound_flop"] // e["held_s"] for s, e in by_state.items()}
    expected = first["held_s"] * rate["RESIZING"] + (second["held_s"] - first["held_s"]) * rate["COMPLETED"]
    assert everything.bound_flop == expected < first["bound_flop"] + second["bound_flop"]


def test_a_member_without_a_bound_leaves_the_group_open(tmp_path):
    rows = [job(1), job(2, 0, Elapsed="00:00:00", Timelimit="", user="u2")]
    _, found = judge(tmp_path, sacct_text(rows))
    (everything,) = found.groups("all")
    assert (everything.verdict, everything.bound_flop, everything.fewest_jobs) == ("INSUFFICIENT", None, 1)
    verdicts = {g.key: g.verdict for g in found.groups("user")}
    assert verdicts == {"u1": "RULED_OUT", "u2": "INSUFFICIENT"}


def test_capacity_clears_what_a_member_leaves_open(tmp_path, inventory):
    rows = [job(1), job(2, 0, Elapsed="00:00:00", Timelimit="", user="u2")]
    (everything,) = groups(tmp_path, rows, profile=inventory)
    assert everything.verdict == "RULED_OUT"
    assert everything.bound_flop == everything.capacity_flop


def test_capacity_that_does_not_clear_it_changes_nothing(tmp_path, inventory):
    rows = [job(1), job(2, 0, Elapsed="00:00:00", Timelimit=""), job(3, 1, start=T0 + 300 * DAY)]
    (everything,) = groups(tmp_path, rows, profile=inventory)
    assert everything.verdict == "INSUFFICIENT"


def test_a_node_outside_the_inventory_leaves_no_capacity(tmp_path, inventory):
    (everything,) = groups(tmp_path, [job(1, NodeList="x9")], profile=inventory)
    assert everything.capacity_flop is None


def test_runs_on_one_node_can_not_do_more_than_the_node(tmp_path, inventory):
    """Two records of the same eight cards at the same time: one of them is wrong, the node is not larger for it."""
    _, found = judge(tmp_path, sacct_text([job(1), job(2)]), profile=inventory)
    (everything,) = found.groups("all")
    one, other = (e["bound_flop"] for e in found.jobs())
    assert everything.bound_flop < one + other


def test_a_rejected_row_leaves_every_group_open(tmp_path):
    rows = [job(1), job(2, user="u2", Start="yesterday", Submit="soon", End="later", State="")]
    summary, found = judge(tmp_path, sacct_text(rows))
    assert len(summary.rejected) == 1
    assert {g.verdict for by in ("all", "cluster", "account", "user") for g in found.groups(by)} == {
        "INSUFFICIENT"
    }


def test_a_runaway_is_not_ranked_but_counts(tmp_path):
    rows = [job(1), job(2, 100, state="RUNNING", End="Unknown", Timelimit="1-00:00:00")]
    _, found = judge(tmp_path, sacct_text(rows))
    assert [e["job_id_raw"] for e in found.jobs()] == [1]
    assert [e["job_id_raw"] for e in found.jobs(runaway=True)] == [2]
    (everything,) = found.groups("all")
    assert everything.jobs == 2


def test_months_of_gpu_seconds_add_up_and_runs_that_touch_a_window_count_whole(tmp_path):
    rows = [job(1, 3), job(2, 1, start=T0 + 5 * DAY)]
    _, whole = judge(tmp_path, sacct_text(rows))
    total = sum(e["gpu_seconds"] for e in whole.jobs())
    parts = 0
    for n, (since, until) in enumerate([(T0 - DAY, T0 + DAY), (T0 + DAY, T0 + 10 * DAY)]):
        folder = tmp_path / str(n)
        folder.mkdir()
        _, found = judge(folder, sacct_text(rows), since=since, until=until)
        entries = list(found.jobs())
        parts += sum(e["gpu_seconds"] for e in entries)
        touched = {e["job_id_raw"]: e["bound_flop"] for e in entries}
        assert touched[1] == next(e["bound_flop"] for e in whole.jobs() if e["job_id_raw"] == 1)
    assert parts == total


def test_users_are_people_not_names(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1), job(2, user="u2"), job(3, user="")]))
    runs = found.envelope.runs.assign(uid=found.envelope.runs["uid"].astype("Int64"))
    runs["uid"] = runs["uid"].mask(runs["job_id_raw"].isin([1, 2]), 7)
    envelope = dataclasses.replace(found.envelope, runs=runs)
    keys = {g.key: g.jobs for g in dataclasses.replace(found, envelope=envelope).groups("user")}
    assert keys == {"u1 (7)": 2, "(none)": 1}
