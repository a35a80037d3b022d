"""Every shape of sacct output that was met in the field reads as it should (numbers as in the fixtures' names)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from slurm_trace.accounting.nodes import expand
from slurm_trace.accounting.tres import Gres, parse_tres
from slurm_trace.errors import EnvironmentProblem, InputProblem
from support.sacct import FIXTURES, Reading, columns, read_fixture

XDMOD = columns(
    "jobid jobidraw cluster partition qos account group gid user uid submit eligible start end",
    "elapsed exitcode state nnodes ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname",
)


def at(text: str, zone: timezone = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


def shape(name: str, **options: Any) -> Reading:
    reading = read_fixture(f"sacct/{name}", **options)
    assert reading.problem is None, reading.problem
    return reading


def gpus(reading: Reading) -> tuple[Gres, ...]:
    return parse_tres(reading.run.alloc_tres).gres


def test_02_cancelled_by_uid_ran_for_days() -> None:
    first, second = shape("02-cancelled-by-uid.txt", fields=XDMOD).runs
    assert (first.state, first.cancelled_by, first.final) == ("CANCELLED", 104001, True)
    assert (first.elapsed_s, first.node_count, first.cpu_count, first.flags) == (250_210, 2, 24, "")
    assert (first.start, first.end) == (at("2016-03-02T09:00:00"), at("2016-03-05T06:30:10"))
    assert (second.elapsed_s, second.uid, second.limit_s) == (50_420, 20202020, 54_000)
    assert parse_tres(first.alloc_tres).gres == ()


def test_03_allocation_of_no_nodes() -> None:
    reading = shape("03-no-nodes-two-listed.txt", fields=XDMOD)
    assert (reading.run.elapsed_s, reading.run.partition, reading.run.flags) == (0, None, "nodes_disagree")
    assert reading.run.node_count == 2
    assert gpus(reading) == (Gres("gpu", None, 2),)


def test_05_name_in_utf8() -> None:
    assert shape("05-utf8-name.txt", fields=XDMOD).run.name == "bèta"


def test_06_states_of_the_future() -> None:
    reading = shape("06-unknown-states.txt", fields=XDMOD)
    foo, bar = reading.runs
    assert (foo.state, foo.final, foo.started, foo.elapsed_s) == ("FOO", False, True, 72_910)
    assert foo.flags == "elapsed_disagrees state_unknown"
    assert (bar.state, bar.final, bar.started, bar.start, bar.elapsed_s) == ("BAR", False, False, None, 0)
    assert sorted("'FOO'" in warning for warning in reading.warnings) == [False, True]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("07-no-record.txt", "no header of sacct"),
        ("07-sacct-error.txt", "sacct reported a failure"),
        ("61-scontrol.txt", "no header of sacct"),
        ("63-trace.csv", "no header of sacct"),
        ("64-fixed-width.txt", "fixed-width"),
        ("65-fixed-width-no-header.txt", "fixed-width"),
        ("69-sonar.json", "no output of sacct --json"),
        ("70-key-value.csv", "no header of sacct"),
        ("55-mig-slice.txt", "--fields"),
    ],
)
def test_what_is_no_export_is_refused_with_a_remedy(name: str, words: str) -> None:
    reading = read_fixture(f"sacct/{name}")
    assert isinstance(reading.problem, InputProblem)
    assert reading.problem.exit_code == 3
    assert words in str(reading.problem)
    assert "export again" in str(reading.problem)
    assert str(reading.problem).startswith(f"sacct/{name}:")
    assert not reading.runs


def test_08_batch_step_outlives_the_job() -> None:
    reading = shape("08-batch-ends-after-job.txt")
    assert (reading.run.elapsed_s, reading.run.step_count, reading.steps_skipped) == (7805, 2, 2)
    assert reading.run.step_end == at("2020-02-10T22:10:37")
    assert (reading.run.alloc_tres, reading.run.user) == ("", "eva")


def test_10_running_with_steps() -> None:
    reading = shape("10-running-with-steps.txt")
    run = reading.run
    assert (run.state, run.final, run.end, run.elapsed_s, run.limit_s) == (
        "RUNNING",
        False,
        None,
        864_000,
        1_209_600,
    )
    assert run.queried_at == at("2025-10-12T08:00:00")
    assert (run.step_count, run.step_end) == (0, None)
    assert gpus(reading) == (Gres("gpu", "a100", 1), Gres("gpu", None, 1))
    assert shape("10-running-with-steps.txt", queried_at=1_760_300_000).run.queried_at == 1_760_300_000


def test_11_interactive_step() -> None:
    reading = shape("11-interactive-step.txt")
    assert (reading.steps_skipped, reading.orphans) == (1, [])
    assert gpus(reading)[0] == Gres("gpu", "a100_80", 4)


def test_12_pending() -> None:
    run = shape("12-pending-none-assigned.txt").run
    assert (run.state, run.final, run.started, run.start, run.node_list) == (
        "PENDING",
        False,
        False,
        None,
        None,
    )
    assert (run.limit_s, run.node_count, run.elapsed_s) == (172_740, 0, 0)


def test_14_steps_end_after_the_job() -> None:
    run = shape("14-steps-end-after-job.txt").run
    assert (run.elapsed_s, run.cancelled_by, run.step_end) == (1200, 2200001, at("2024-12-01T12:20:04"))
    assert run.step_count == 3


def test_15_longer_than_its_limit() -> None:
    run = shape("15-timeout-overrun.txt").run
    assert (run.state, run.elapsed_s, run.limit_s) == ("TIMEOUT", 207, 180)


def test_16_state_of_the_job_not_of_the_step() -> None:
    assert shape("16-failed-job-oom-step.txt").run.state == "FAILED"


def test_18_hyphen_before_the_bracket() -> None:
    run = shape("18-two-nodes-in-brackets.txt").run
    assert (run.node_count, run.flags) == (2, "")
    assert expand(run.node_list) == ("c1-9", "c1-10")


def test_19_step_without_its_job() -> None:
    reading = shape("19-step-alone-256-nodes.txt")
    assert (reading.runs, reading.steps_skipped) == ([], 1)
    (step,) = reading.orphans
    assert (step.job_id_raw, step.job_id, step.finished, step.cluster) == (30555, "30555.0", True, "cl3")
    assert (step.start, step.end) == (at("2023-02-01T01:00:00"), at("2023-02-01T09:00:05"))


def test_21_newline_and_backslash_n_in_submitline() -> None:
    run = shape("21-backslash-n-in-submitline.txt").run
    assert (run.state, run.final, run.elapsed_s, run.node_count) == ("REQUEUED", True, 87_356, 32)
    assert run.flags == "line_joined"
    assert b"|| \n \\n " in run.raw


def test_22_line_that_lost_its_beginning() -> None:
    reading = shape("22-first-line-cut.txt")
    (row,) = reading.rejected
    assert (row.line, reading.run.job_id_raw) == (2, 35002)
    assert "columns" in row.reason
    assert row.raw.startswith(b"pha-0.0|")


def test_23_invalid_utf8() -> None:
    reading = shape("23-invalid-utf8.txt")
    assert (reading.run.state, reading.run.step_count, reading.steps_skipped) == ("FAILED", 1, 4)
    assert [step.job_id for step in reading.orphans] == ["35570.extern", "35571.1", "35571.1"]
    assert b"\xfforted" in reading.orphans[2].raw


def test_25_steps_past_midnight_without_start() -> None:
    reading = shape("25-state-and-end-only.txt")
    first, second = reading.runs
    assert (first.end, first.step_end) == (at("2021-05-07T23:59:38"), at("2021-05-08T00:00:22"))
    assert (second.step_end, reading.orphans) == (at("2021-05-07T23:59:40"), [])
    assert (first.submit, first.start, first.flags) == (None, None, "identity_incomplete")
    assert first.run_key < 0
    assert second.run_key != first.run_key


def test_26_step_of_an_array_task() -> None:
    (step,) = shape("26-step-of-an-array-task.txt").orphans
    assert (step.job_id_raw, step.job_id) == (80849, "80129_240.0")


def test_27_running_extern_step() -> None:
    (step,) = shape("27-running-extern-only.txt").orphans
    assert (step.finished, step.end) == (False, None)


def test_28_offsets_and_na() -> None:
    fields = columns(
        "jobidraw partition qos account group gid user uid submit start end elapsed elapsedraw exitcode",
        "state alloctres nodelist jobname workdir",
    )
    cancelled, zero, running, pending = shape("28-offsets-and-na.txt", fields=fields, zone=None).runs
    assert (cancelled.start, cancelled.end, cancelled.elapsed_s) == (1_645_450_627, 1_645_453_589, 2962)
    assert cancelled.flags == "elapsed_disagrees"
    cet = timezone(timedelta(hours=1))
    assert (zero.start, zero.elapsed_s) == (at("2023-02-21T15:49:06", cet), 497)
    assert (zero.node_count, zero.flags) == (3, "elapsed_disagrees nodes_disagree")
    assert parse_tres(zero.alloc_tres).gres == (Gres("gpu", None, 0),)
    assert (running.elapsed_s, running.queried_at) == (17, at("2023-02-21T15:49:23", cet))
    assert (pending.started, pending.start, pending.elapsed_s) == (False, None, 0)


def test_30_last_task_of_an_array_in_json() -> None:
    reading = shape("30-json-array-task.json")
    run = reading.run
    assert (run.job_id, run.job_id_raw, run.array_job_id) == ("202470_100", 202470, 202470)
    assert (run.elapsed_s, run.node_count, run.cpu_count, run.limit_s) == (124_403, 4, 96, 172_800)
    assert gpus(reading) == (Gres("gpu", None, 16),)


def test_32_list_of_states_in_json() -> None:
    run = shape("32-json-state-list.json").run
    assert (run.state, run.final, run.end, run.elapsed_s) == ("RUNNING", False, None, 102_228_976)
    assert (run.submit, run.queried_at, run.limit_s) == (1_613_725_209, 1_715_954_185, 432_000)


def test_33_timeout_in_json() -> None:
    run = shape("33-json-timeout.json").run
    assert (run.state, run.elapsed_s, run.limit_s) == ("TIMEOUT", 83, 60)
    assert (run.step_end, run.step_count) == (1_747_754_550, 1)
    assert run.alloc_tres == "billing=1,cpu=1,mem=512M,node=1"


def test_35_no_gres_is_not_zero_gpus() -> None:
    run = shape("35-json-no-gres.json").run
    assert parse_tres(run.alloc_tres).gres == ()
    assert (run.node_count, run.step_count, run.step_end) == (2, 0, None)


@pytest.mark.parametrize("name", ["37-json-nothing-found.json", "38-json-nothing-found-error.json"])
def test_37_38_nothing_found_is_no_failure(name: str) -> None:
    reading = shape(name)
    assert (reading.runs, reading.rejected) == ([], [])


def test_38_another_error_is_an_outage() -> None:
    reading = read_fixture("sacct/38-json-outage.json")
    assert isinstance(reading.problem, EnvironmentProblem)
    assert "7000" in str(reading.problem)
    assert len(reading.runs) == 1


def test_39_elapsed_zero_although_it_ran() -> None:
    run = shape("39-json-elapsed-zero.json").run
    assert (run.elapsed_s, run.flags, run.step_end) == (32, "elapsed_disagrees", 1_710_516_635)


def test_41_components_of_a_het_job() -> None:
    reading = shape("41-het-components.txt")
    assert [(run.job_id, run.job_id_raw, run.het_job_id) for run in reading.runs] == [
        ("1853+0", 1853, 1853),
        ("1853+1", 1854, 1853),
        ("1853+2", 1855, 1853),
    ]
    assert [run.step_count for run in reading.runs] == [2, 1, 1]


def test_43_steps_without_user_and_a_delimiter_at_the_end() -> None:
    reading = shape("43-old-steps-without-user.txt")
    assert (reading.run.elapsed_s, reading.run.alloc_gres, reading.run.state) == (324_000, "", "COMPLETED")
    assert (reading.steps_skipped, reading.run.step_count) == (1, 1)


def test_47_usage_is_no_count() -> None:
    reading = shape("47-short-steps.txt")
    assert (reading.run.elapsed_s, reading.run.step_count) == (120, 2)
    assert gpus(reading) == (Gres("gpu", None, 1),)


def test_48_node_fail_and_its_next_run() -> None:
    failed, completed = shape(
        "48-node-fail-then-completed.txt", fields=("jobidraw", "state", "start", "elapsed")
    ).runs
    assert (failed.state, completed.state) == ("NODE_FAIL", "COMPLETED")
    assert (failed.elapsed_s or 0) + (completed.elapsed_s or 0) == 14_981
    assert (failed.run_key, completed.run_key) == (failed.start, completed.start)


def test_49_four_requeues_without_times() -> None:
    fields = columns(
        "AdminComment AllocCPUS Elapsed JobID JobIDRaw MaxRSS NNodes ReqMem State Timelimit TotalCPU",
    )
    reading = shape("49-requeued-four-times.txt", fields=fields)
    assert [run.elapsed_s for run in reading.runs] == [3889, 4473, 6122, 2153]
    assert len({run.run_key for run in reading.runs}) == 4
    assert [run.step_count for run in reading.runs] == [2, 2, 2, 2]


def test_50_cancelled_before_it_ran() -> None:
    fields = (
        "AllocCPUS",
        "Elapsed",
        "JobID",
        "JobIDRaw",
        "MaxRSS",
        "NNodes",
        "ReqMem",
        "State",
        "Timelimit",
        "TotalCPU",
    )
    run = shape("50-cancelled-array.txt", fields=fields).run
    assert (run.state, run.cancelled_by, run.elapsed_s, run.limit_s) == ("CANCELLED", 129319, 0, 518_400)
    assert run.started  # nothing in the row proves that it never was


def test_51_newlines_without_an_end_mark() -> None:
    fields = columns(
        "AdminComment AllocCPUS Elapsed JobID JobIDRaw MaxRSS NNodes NTasks ReqMem State SubmitLine",
        "Timelimit TotalCPU",
    )
    reading = shape("51-newline-in-submitline.txt", fields=fields)
    assert (reading.run.job_id, reading.run.elapsed_s, reading.run.line) == ("59300", 2, 1)
    assert (reading.steps_skipped, reading.run.step_count, reading.rejected) == (2, 2, [])


def test_52_usage_without_states() -> None:
    reading = shape("52-usage-only.txt")
    assert (reading.run.state, reading.run.final, reading.steps_skipped) == ("UNKNOWN", False, 2)
    assert "no State column" in reading.warnings[0]
    assert parse_tres("cpu=00:56:24,energy=0,gres/gpumem=38888M,gres/gpuutil=100").gres == ()


def test_55_mig_slice() -> None:
    fields = columns(
        "JobIDRaw JobName Partition State ExitCode ElapsedRaw AllocCPUS ReqMem NodeList Submit Start End",
        "AllocTRES QOS TimelimitRaw Restarts WorkDir StdOut StdErr SubmitLine",
    )
    reading = shape("55-mig-slice.txt", fields=fields)
    assert gpus(reading) == (Gres("gpu", "1g.10gb", 1), Gres("gpu", None, 1))
    assert (reading.run.elapsed_s, reading.run.limit_s, reading.run.work_dir) == (120, 1800, "/scratch/j")


@pytest.mark.parametrize(
    ("text", "nodes", "gres"),
    [
        (
            "billing=1,cpu=8,gres/gpu:nvidia_gh200_120gb=1,gres/gpu=1,mem=11672M,node=1",
            1,
            (Gres("gpu", "nvidia_gh200_120gb", 1), Gres("gpu", None, 1)),
        ),
        (
            "billing=2651,cpu=2,gres/gpu:nvidia_h100_80gb_hbm3=1,gres/gpu=1,mem=8G",
            None,
            (Gres("gpu", "nvidia_h100_80gb_hbm3", 1), Gres("gpu", None, 1)),
        ),
        (
            "billing=4000,cpu=4,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=4",
            4,
            (Gres("gpu", "a100", 4), Gres("gpu", None, 4)),
        ),
        ("(null)", None, ()),
    ],
    ids=["59", "60", "76", "61"],
)
def test_59_60_61_76_strings(text: str, nodes: int | None, gres: tuple[Gres, ...]) -> None:
    tres = parse_tres(text)
    assert (tres.nodes, tres.gres, tres.unreadable) == (nodes, gres, ())


def test_64_states_cut_short() -> None:
    reading = shape("64-cut-states.txt")
    assert [run.state for run in reading.runs] == ["OUT_OF_MEMORY", "RE+", "CANCELLED"]
    assert [run.final for run in reading.runs] == [True, False, True]
    assert reading.runs[0].step_end == at("2019-03-01T11:00:01")


def test_66_never_started() -> None:
    fields = columns(
        "JobID JobName NodeList NTasks Submit Start End State Elapsed NCPUS ReqTRES AllocTRES Partition",
        "QOS SubmitLine ElapsedRaw",
    )
    run = shape("66-never-started.txt", fields=fields).run
    assert (run.started, run.final, run.cancelled_by, run.end) == (
        False,
        True,
        640000000,
        at("2025-07-14T13:07:57"),
    )
    assert (run.start, run.node_count, run.node_list) == (None, 0, None)


def test_67_partition_limit() -> None:
    run = shape("67-partition-limit.txt").run
    assert (run.limit_s, run.account, run.node_count, run.started) == (None, None, 0, False)
    assert run.run_key == at("2022-04-21T14:31:02")


def test_71_epoch_start_and_a_blob() -> None:
    run = shape("71-epoch-start.txt", zone=None).run
    assert (run.start, run.end, run.elapsed_s, run.limit_s) == (1_730_212_549, None, None, 86_400)
    assert (run.cluster, run.queried_at, run.flags) == ("cl4", None, "identity_incomplete")


def test_73_one_id_two_jobs() -> None:
    old, new = shape("73-one-id-two-jobs.txt").runs
    assert old.job_id_raw == new.job_id_raw
    assert (old.run_key, new.run_key) == (at("2017-10-03T17:39:29"), at("2026-08-21T11:40:00"))


def test_74_cancelled_step_of_a_completed_job() -> None:
    run = shape("74-cancelled-step-only.txt").run
    assert (run.state, run.step_count, run.step_end) == ("COMPLETED", 2, None)


def test_d2_gap_in_spring() -> None:
    run, inside = shape("D2-spring-gap.txt", zone=ZoneInfo("Europe/Berlin")).runs
    assert (run.start, run.end, run.elapsed_s, run.flags) == (1_743_294_600, 1_743_298_200, 3600, "")
    assert inside.start is not None
    assert "dst_gap" in inside.flags


def test_d4_zero_is_no_time() -> None:
    first, second = shape("D4-epoch-zero.txt").runs
    assert (first.start, first.end, first.elapsed_s) == (
        at("2024-05-01T08:00:00"),
        at("2024-05-01T09:00:00"),
        None,
    )
    assert (second.start, second.end, second.elapsed_s) == (at("2024-05-01T08:00:00"), None, 0)
    assert first.flags == second.flags == "start_from_submit"


def test_d5_pipe_in_a_name() -> None:
    fields = columns(
        "JobID AllocNodes Cluster ExitCode Group Account JobName NodeList Partition AllocCPUS State",
        "Reason ElapsedRaw Submit Start End Suspended TimelimitRaw User WorkDir",
    )
    run = shape("D5-pipe-in-name.txt", fields=fields).run
    assert (run.name, run.flags, run.elapsed_s, run.submit) == (
        "crazy|name",
        "line_realigned",
        100,
        1_750_232_859,
    )


def test_every_fixture_is_used_here() -> None:
    source = (FIXTURES.parent / "unit/accounting/test_sacct_shapes.py").read_text()
    assert [path.name for path in (FIXTURES / "sacct").iterdir() if path.name not in source] == []
