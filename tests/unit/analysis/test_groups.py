"""The question asked of groups: sums, what may be missing, capacity, the fewest that reach the threshold."""

import dataclasses
import io
from contextlib import suppress
from datetime import UTC
from fractions import Fraction
from pathlib import Path

import pytest

from slurm_trace.accounting.events import Event
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.text import read_text
from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.groups import people
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.verdicts import Question
from slurm_trace.assess import assess
from slurm_trace.store.engine import open_store
from slurm_trace.store.ingest import ImportInfo, begin_import
from slurm_trace.store.load import load_imports
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


def test_months_of_a_group_add_up_too(tmp_path):
    rows = [job(1, 3), job(2, 1, start=T0 + 5 * DAY)]
    _, whole = judge(tmp_path, sacct_text(rows))
    parts = []
    for n, (since, until) in enumerate([(T0 - DAY, T0 + DAY), (T0 + DAY, T0 + 10 * DAY)]):
        (tmp_path / str(n)).mkdir()
        (found,) = groups(tmp_path / str(n), rows, since=since, until=until)
        parts.append(found.gpu_seconds)
    assert parts == [8 * DAY, 8 * 3 * DAY]
    assert sum(parts) == whole.groups("all")[0].gpu_seconds


def test_a_count_beyond_every_machine_is_summed_exactly(tmp_path):
    tres = "billing=1,cpu=1,gres/gpu:a100=90000000000,gres/gpu:h100=90000000000,node=1"
    (everything,) = groups(tmp_path, [job(n, 1000, AllocTRES=tres) for n in range(1, 11)])
    assert everything.gpu_seconds == 10 * 180_000_000_000 * 1000 * DAY > 2**63
    assert everything.bound_flop > 10**35


# What may be missing


def test_runs_that_name_no_user_may_be_anybody_s(tmp_path):
    rows = [job(n, 4, start=T0 + n * 4 * DAY, user="u1" if n < 6 else "") for n in range(1, 13)]
    _, found = judge(tmp_path, sacct_text([*rows, job(20, 80, user="u2")]))
    verdicts = {g.key: (g.verdict, g.reasons) for g in found.groups("user")}
    assert verdicts["u1"] == ("INSUFFICIENT", ("7 runs name no single user, and may be its own",))
    assert verdicts["(none)"] == ("RULED_OUT", ())
    assert verdicts["u2"][0] == "NOT_RULED_OUT"


def test_a_run_without_an_end_that_names_no_user_may_be_anybody_s(tmp_path, inventory):
    """The nodes can have done it in the whole period, so nothing clears the users."""
    rows = [job(1), job(2, 0, Elapsed="00:00:00", Timelimit="", user=""), job(3, 1, start=T0 + 300 * DAY)]
    _, found = judge(tmp_path, sacct_text(rows), profile=inventory)
    assert {g.key: g.verdict for g in found.groups("user")} == {
        "u1": "INSUFFICIENT",
        "(none)": "INSUFFICIENT",
    }


def test_few_runs_that_name_no_user_change_nothing(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1), job(2, user="")]))
    assert {g.verdict for g in found.groups("user")} == {"RULED_OUT"}


def test_steps_without_their_run_leave_every_user_and_account_open(tmp_path):
    step = job(7, JobID="7.batch", JobIDRaw="7.batch", AllocTRES="cpu=1,mem=1G,node=1", User="", Account="")
    _, found = judge(tmp_path, sacct_text([job(1), step]))
    for by in ("all", "account", "user"):
        assert {g.verdict for g in found.groups(by)} == {"INSUFFICIENT"}


def test_a_cluster_of_which_every_row_was_rejected_leaves_all_open(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1)]))
    records = dataclasses.replace(found.records, rejected={"d": 3})
    assert found.groups("all")[0].verdict == "RULED_OUT"
    complete = records.complete | {"d": Completeness("assumed")}
    found = dataclasses.replace(found, records=dataclasses.replace(records, complete=complete))
    assert found.groups("all")[0].reasons == ("d: 3 rows could not be read",)
    assert found.groups("cluster")[0].verdict == "RULED_OUT"


def test_clusters_are_those_of_runs_of_rejected_rows_and_of_the_profile(tmp_path):
    profile = tmp_path / "site.toml"
    profile.write_text("[clusters.d]\nkill_wait_s = 30\nunkillable_step_timeout_s = 60\n")
    rows = [job(1), job(2, Cluster="e", Start="yesterday", Submit="soon", End="later", State="")]
    _, found = judge(tmp_path, sacct_text(rows), profile=str(profile))
    assert set(found.records.complete) >= {"c", "d"}
    (everything,) = found.groups("all")
    assert everything.verdict == "INSUFFICIENT"
    assert "d: nothing of it was imported" in everything.reasons


def test_what_is_ruled_out_has_no_fewest(tmp_path, inventory):
    rows = [job(1), job(2, 0, Elapsed="00:00:00", Timelimit="", user="u2")]
    (everything,) = groups(tmp_path, rows, profile=inventory)
    assert (everything.verdict, everything.fewest_jobs, everything.fewest_users) == ("RULED_OUT", None, None)


# Capacity and caps are those of the time and the nodes that were used


def dated(tmp_path, since):
    path = tmp_path / "dated.toml"
    path.write_text(
        '[[clusters.c.nodes]]\nhosts = "n[1-4]"\ngpus = 8\nsku = "nvidia-h100-sxm5-80gb"\n'
        f'cpu_model = "AMD EPYC 7763 64-Core Processor"\ncores = 64\nfrom = {stamp(since)}Z\n'
    )
    return str(path)


def test_a_node_used_before_the_inventory_begins_leaves_no_capacity(tmp_path):
    rows = [job(1), job(2, 1, start=T0 + 50 * DAY)]
    (everything,) = groups(tmp_path, rows, profile=dated(tmp_path, T0 + 25 * DAY))
    assert everything.capacity_flop is None
    assert everything.bound_flop is not None


def test_capacity_reaches_to_the_last_release(tmp_path, inventory):
    """Four nodes that end in CANCELLED at the last moment of the records may go on for the grace."""
    rows = [job(1, state="CANCELLED by 7", NNodes="4", NodeList="n[1-4]",
                AllocTRES="billing=1,cpu=256,gres/gpu:h100=32,gres/gpu=32,node=4", AllocCPUS="256")]  # fmt: skip
    _, found = judge(tmp_path, sacct_text(rows), profile=inventory)
    (everything,) = found.groups("all")
    assert found.records.period == (T0, T0 + DAY + 91)
    assert everything.capacity_flop >= everything.bound_flop == next(found.jobs())["bound_flop"]


def test_a_run_without_a_start_lies_in_no_period(tmp_path, inventory):
    rows = [job(1), job(2, Elapsed="300-00:00:00", End="Unknown")]
    _, found = judge(tmp_path, sacct_text(rows, frozenset({"Start"})), profile=inventory)
    (everything,) = found.groups("all")
    assert everything.capacity_flop is None
    assert everything.bound_flop == sum(e["bound_flop"] for e in found.jobs())


def test_nodes_that_the_list_does_not_name_are_not_capped_away(tmp_path, inventory):
    rows = [
        job(1, NNodes="4", AllocTRES="billing=1,cpu=256,gres/gpu:h100=32,gres/gpu=32,node=4", NodeList="n1")
    ]
    _, found = judge(tmp_path, sacct_text(rows), profile=inventory)
    (everything,) = found.groups("all")
    assert everything.bound_flop == next(found.jobs())["bound_flop"]
    assert everything.capacity_flop is None


def test_a_cap_counts_the_time_in_which_runs_overlap_once_and_the_rest_whole(tmp_path, inventory):
    rows = [job(1, 2), job(2, 1, start=T0 + DAY // 2), job(3, 1, start=T0 + 5 * DAY)]
    _, found = judge(tmp_path, sacct_text(rows), profile=inventory)
    (everything,) = found.groups("all")
    whole_node = next(e["bound_flop"] // e["held_s"] for e in found.jobs())
    assert everything.bound_flop == whole_node * (2 * DAY + 1 + DAY + 1)


@pytest.mark.parametrize("left_out", ["gpus = 8\n", "cores = 64\n"])
def test_half_an_inventory_has_no_capacity_and_caps_nothing(tmp_path, inventory, left_out):
    half = tmp_path / "half.toml"
    half.write_text(Path(inventory).read_text().replace(left_out, ""))
    _, found = judge(tmp_path, sacct_text([job(1), job(2)]), profile=str(half))
    (everything,) = found.groups("all")
    assert everything.capacity_flop is None
    assert everything.bound_flop == sum(e["bound_flop"] for e in found.jobs())


def test_capacity_is_every_card_and_core_of_the_inventory_for_the_whole_period(tmp_path, inventory):
    _, found = judge(tmp_path, sacct_text([job(1), job(2, 1, start=T0 + 9 * DAY)]), profile=inventory)
    (everything,) = found.groups("all")
    entry = next(found.jobs())
    assert found.records.period == (T0, T0 + 10 * DAY + 1)
    assert everything.capacity_flop == 4 * (entry["bound_flop"] // entry["held_s"]) * (10 * DAY + 1)


def test_an_unknown_card_after_the_registry_has_no_capacity(tmp_path, inventory):
    unknown = tmp_path / "unknown.toml"
    unknown.write_text(Path(inventory).read_text().replace("nvidia-h100-sxm5-80gb", "our new cards"))
    for start, known in ((T0, True), (Rates.load(None).complete_through, False)):
        folder = tmp_path / str(start)
        folder.mkdir()
        (everything,) = groups(folder, [job(1, start=start)], profile=str(unknown))
        assert (everything.capacity_flop is not None) == known


def test_one_cluster_without_an_inventory_leaves_no_capacity_of_all(tmp_path, inventory):
    rows = [job(1), job(2, Cluster="d")]
    (everything,) = groups(tmp_path, rows, profile=inventory)
    assert everything.capacity_flop is None
    (tmp_path / "by").mkdir()
    by_cluster = {
        g.key: g.capacity_flop for g in groups(tmp_path / "by", rows, by="cluster", profile=inventory)
    }
    assert by_cluster["c"] is not None
    assert by_cluster["d"] is None


def test_a_cap_is_not_taken_where_a_member_names_no_node(tmp_path, inventory):
    rows = [job(1), job(2), job(3, NodeList="", NNodes="1")]
    _, found = judge(tmp_path, sacct_text(rows), profile=inventory)
    (everything,) = found.groups("all")
    assert everything.bound_flop == sum(e["bound_flop"] for e in found.jobs())


def test_a_short_run_inside_a_long_one_does_not_hide_the_rest_of_it(tmp_path, inventory):
    """The node is busy until the end of the longest run, whatever began or ended meanwhile."""
    rows = [job(1, 10), job(2, 1, start=T0 + DAY), job(3, 1, start=T0 + 9 * DAY)]
    _, found = judge(tmp_path, sacct_text(rows), profile=inventory)
    (everything,) = found.groups("all")
    longest = max(e["bound_flop"] for e in found.jobs())
    assert everything.bound_flop == longest


def test_a_run_that_touches_the_window_counts_whole_in_the_capacity_too(tmp_path, inventory):
    rows = [job(1, 40, NNodes="4", NodeList="n[1-4]", AllocCPUS="256",
                AllocTRES="billing=1,cpu=256,gres/gpu:h100=32,gres/gpu=32,node=4")]  # fmt: skip
    _, found = judge(
        tmp_path, sacct_text(rows), profile=inventory, since=T0 + 39 * DAY, until=T0 + 39 * DAY + 1
    )
    (everything,) = found.groups("all")
    assert everything.bound_flop == next(found.jobs())["bound_flop"]


def test_many_runs_beside_two_records_of_one_allocation(tmp_path):
    """More runs than are worked out exactly at once, the smallest of them needed to reach the threshold."""
    rows = [job(n, 0.1, start=T0 + n * DAY) for n in range(2, 302)]
    rows += [job(1, 1, state="RESIZING", Submit=stamp(T0 - 60)), job(1, 3, gpus=4, Submit=stamp(T0 + DAY))]
    _, found = judge(tmp_path, sacct_text(rows), threshold="1e21")
    (everything,) = found.groups("all")
    assert everything.verdict == "NOT_RULED_OUT"
    limit = everything.bound_flop - next(e["bound_flop"] for e in found.jobs() if e["job_id_raw"] == 300) // 2
    found = dataclasses.replace(found, question=Question(limit, "max_any_op", Fraction(0)))
    assert found.groups("all")[0].fewest_jobs == 301
    found = dataclasses.replace(
        found, question=Question(everything.bound_flop + 1, "max_any_op", Fraction(0))
    )
    assert found.groups("all")[0].fewest_jobs is None


def test_two_records_of_one_allocation_take_the_larger_of_what_is_left(tmp_path):
    """A job that grew: the smaller record is the first to end."""
    rows = [
        job(1, 1, gpus=2, state="RESIZING", Submit=stamp(T0 - 60)),
        job(1, 3, gpus=8, Submit=stamp(T0 + DAY)),
    ]
    _, found = judge(tmp_path, sacct_text(rows))
    (everything,) = found.groups("all")
    assert everything.bound_flop == max(e["bound_flop"] for e in found.jobs())


def test_strict_sums_take_no_merging_for_proven(tmp_path):
    rows = [job(1, 1, state="RESIZING", Submit=stamp(T0 - 60)), job(1, 3, Submit=stamp(T0 + DAY))]
    _, found = judge(tmp_path, sacct_text(rows))
    proven = {name: Completeness("proven") for name in found.records.complete}
    found = dataclasses.replace(found, records=dataclasses.replace(found.records, complete=proven))
    assert found.groups("all")[0].verdict_strict == "INSUFFICIENT"


def test_rows_that_name_no_cluster_and_gaps_of_any_cluster_leave_accounts_open(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1)]))
    for change in (
        {"rejected": {None: 1}},
        {"complete": found.records.complete | {"d": Completeness("assumed", ("a gap",))}},
    ):
        changed = dataclasses.replace(found, records=dataclasses.replace(found.records, **change))
        for by in ("all", "account", "user"):
            assert {g.verdict for g in changed.groups(by)} == {"INSUFFICIENT"}


def test_a_strict_group_needs_records_that_are_proven_complete(tmp_path, inventory):
    sure = tmp_path / "sure.toml"
    words = 'devices_confined = true\ncores_confined = true\nbasis = "proven"\n'
    sure.write_text(Path(inventory).read_text() + words)
    _, found = judge(tmp_path, sacct_text([job(1, state="CANCELLED by 7")]), profile=str(sure))
    for status, verdict in (
        ("assumed", "INSUFFICIENT"),
        ("declared", "INSUFFICIENT"),
        ("proven", "RULED_OUT"),
    ):
        records = dataclasses.replace(found.records, complete={"c": Completeness(status)})
        assert dataclasses.replace(found, records=records).groups("all")[0].verdict_strict == verdict


# Windows


def test_what_touches_a_window(tmp_path):
    rows = [
        job(1),
        job(2, start=T0 + 5 * DAY),
        job(3, 0, Elapsed="00:00:00", Timelimit=""),  # nothing tells when it ended
        job(4, 0, start=T0 + 5 * DAY, Elapsed="00:00:00", Timelimit=""),
    ]
    for n, (since, until, jobs) in enumerate(
        [
            (T0 + DAY, None, {1, 2, 3, 4}),  # its last second may be in it
            (T0 + DAY + 1, None, {2, 3, 4}),
            (None, T0, set()),
            (None, T0 + 1, {1, 3}),
            (T0 + DAY + 1, T0 + 5 * DAY, {3}),
        ]
    ):
        (tmp_path / str(n)).mkdir()
        _, found = judge(tmp_path / str(n), sacct_text(rows), since=since, until=until)
        assert {e["job_id_raw"] for e in found.jobs()} == jobs, (since, until)


def test_a_run_without_a_start_touches_every_window(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1)], frozenset({"Start"})), since=1, until=2)
    assert found.groups("all")[0].jobs == 1


# What the store tells


def test_an_import_that_broke_off_leaves_all_open(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1)]))
    store = open_store(str(tmp_path / "store.db"), create=False)
    blocks = list(
        read_text(io.BytesIO(sacct_text([job(2)])), ReadOptions(cluster="c", zone=UTC, source_name="x"))
    )
    with suppress(KeyboardInterrupt), begin_import(store, ImportInfo("file", "x", cluster="c")) as run:
        run.add(blocks[0])
        raise KeyboardInterrupt
    again = assess(store, found.request)
    store.close()
    (everything,) = again.groups("all")
    assert everything.verdict == "INSUFFICIENT"
    assert "was not finished" in everything.reasons[0]


def test_rows_of_another_cluster_that_could_not_be_read_leave_all_open(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1)]))
    store = open_store(str(tmp_path / "store.db"), create=False)
    bad = job(2, Cluster="d", Start="yesterday", Submit="soon", End="later", State="")
    blocks = read_text(io.BytesIO(sacct_text([bad])), ReadOptions(cluster="d", zone=UTC, source_name="x"))
    with begin_import(store, ImportInfo("file", "x", cluster="d")) as run:
        for block in blocks:
            run.add(block)
        run.finish()
    again = assess(store, found.request)
    store.close()
    assert {g.verdict for g in again.groups("all")} == {"INSUFFICIENT"}


def test_a_node_that_is_still_down_was_down_until_its_events_were_read(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1, state="NODE_FAIL")]))
    store = open_store(str(tmp_path / "store.db"), create=False)
    with begin_import(store, ImportInfo("events", "e", cluster="c")) as run:
        run.add_events([Event("c", "n1", T0 + DAY, None, "DOWN*", "Not responding", None, "slurm")], [])
        run.finish()
    (entry,) = assess(store, found.request).jobs()
    read_at = max(i.finished_at for i in load_imports(store))
    store.close()
    assert entry["held_s"] >= read_at - T0


def test_users_are_people_not_names(tmp_path):
    _, found = judge(tmp_path, sacct_text([job(1), job(2, user="u2"), job(3, user="")]))
    runs = found.envelope.runs.assign(uid=found.envelope.runs["uid"].astype("Int64"))
    runs["uid"] = runs["uid"].mask(runs["job_id_raw"].isin([1, 2]), 7)
    envelope = dataclasses.replace(found.envelope, runs=runs)
    keys = {g.key: g.jobs for g in dataclasses.replace(found, envelope=envelope).groups("user")}
    assert keys == {"u1 (7)": 2, "(none)": 1}


def test_a_name_without_a_uid_is_the_person_it_names_elsewhere(tmp_path):
    rows = [
        job(1),
        job(2, Cluster="d"),
        job(3, user="u2"),
        job(4, user="u2", Cluster="d"),
        job(5, user="u2", Cluster="e"),
    ]
    _, found = judge(tmp_path, sacct_text(rows))
    runs = found.envelope.runs.assign(uid=found.envelope.runs["uid"].astype("Int64"))
    uids = runs["job_id_raw"].map({1: 7, 3: 8, 4: 9})
    people_codes, labels = people(runs.assign(uid=uids.astype("Int64")))
    by_job = dict(zip(runs["job_id_raw"], (labels[c] for c in people_codes), strict=True))
    assert by_job == {1: "u1 (7)", 2: "u1 (7)", 3: "u2 (8)", 4: "u2 (9)", 5: "(none)"}


def test_a_run_without_gpus_that_was_over_at_once_is_an_ordinary_short_run(tmp_path):
    rows = [job(1), job(2, 0, gpus=0, Timelimit=""), job(3, 0, gpus=0, Timelimit="", state="FAILED")]
    _, found = judge(tmp_path, sacct_text(rows))
    held = {
        e["job_id_raw"]: (e["held_s"], e["bound_flop"] is not None, e["verdict_strict"]) for e in found.jobs()
    }
    assert held[2] == (1, True, "INSUFFICIENT")
    assert held[3] == (91, True, "INSUFFICIENT")
    assert found.groups("all")[0].verdict == "RULED_OUT"
    for entry in found.jobs():
        terms = found.envelope.terms([e["job_id_raw"] for e in found.jobs()].index(entry["job_id_raw"]))
        assert all(t.seconds >= 0 for t in terms)
