"""Faults of other tools that read sacct, as reported in public; the number names the report.

A: wrong counts and hours. B: parse failures. C: identities, requeues, zones.
"""

import pytest

from slurm_trace.accounting.states import FINAL_STATES
from slurm_trace.accounting.tres import Gres, parse_gres, parse_tres
from support.sacct import read_fixture, read_lines

NAMES = "JobID|JobIDRaw|State|Submit|Start|End|Elapsed|AllocTRES|NodeList"


def line(
    job: str, raw: str, state: str, start: int, seconds: int, tres: str = "cpu=4,node=1", submit: int = 0
) -> str:
    elapsed = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{job}|{raw}|{state}|{submit or start}|{start}|{start + seconds}|{elapsed}|{tres}|n1"


T = 1_751_364_000


class TestCounts:
    def test_b01_typed_request_alone(self) -> None:
        tres = "cpu=4,gres/gpu:nvidia_geforce_rtx_2080_ti=1,mem=8G,node=1"
        run = read_lines(NAMES, line("7", "7", "COMPLETED", T, 3600, tres)).run
        assert parse_tres(run.alloc_tres).gres == (Gres("gpu", "nvidia_geforce_rtx_2080_ti", 1),)
        assert run.elapsed_s == 3600

    def test_b02_allocation_not_request(self) -> None:
        run = read_lines(
            "JobIDRaw|State|TresPerNode|ReqTRES|AllocTRES|ReqGRES",
            "7|RUNNING|N/A|cpu=4,gres/gpu=64|cpu=4,mem=32G,node=1,gres/gpu=1|gpu:64",
        ).run
        assert parse_tres(run.alloc_tres).gres == (Gres("gpu", None, 1),)
        assert run.alloc_gres is None

    def test_b05_per_node_grammar(self) -> None:
        row = read_lines("JobIDRaw|State|AllocGRES|NNodes", "7|COMPLETED|gpu:v100:4|2").run
        assert parse_gres(row.alloc_gres, row.node_count or 0) == (Gres("gpu", "v100", 8),)
        assert parse_gres("gpu:2(IDX:0-1)", 1) == (Gres("gpu", None, 2),)
        assert parse_gres("gpu:tesla:2(IDX:0,3)", 1) == (Gres("gpu", "tesla", 2),)

    def test_b06_memory_and_use_of_a_gpu_are_no_gpus(self) -> None:
        tres = parse_tres("billing=1,gres/gpu=4,gres/gpu:a100=2,gres/gpumem=80G,gres/gpuutil=50")
        assert (tres.gres, tres.unreadable) == ((Gres("gpu", None, 4), Gres("gpu", "a100", 2)), ())

    def test_b08_duration_with_the_queue_in_it(self) -> None:
        run = read_lines(
            "JobIDRaw|State|Submit|Start|End|Elapsed", f"7|COMPLETED|{T}|{T + 10}|{T + 18}|00:00:18"
        ).run
        assert (run.elapsed_s, run.flags) == (8, "elapsed_disagrees")

    def test_b09_steps_are_never_summed(self) -> None:
        rows = (
            line("7", "7", "COMPLETED", T, 100),
            *(line(f"7.{s}", f"7.{s}", "COMPLETED", T, 100) for s in ("extern", "0")),
        )
        reading = read_lines(NAMES, *rows)
        assert (reading.run.elapsed_s, reading.run.cpu_count, reading.run.step_count) == (100, 4, 2)

    def test_b10_limit_is_no_run_time(self) -> None:
        run = read_lines(NAMES + "|Timelimit", line("7", "7", "COMPLETED", T, 7200) + "|3-00:00:00").run
        assert (run.elapsed_s, run.limit_s) == (7200, 259_200)

    def test_b11_cpu_time_is_no_time(self) -> None:
        run = read_lines(NAMES + "|CPUTimeRAW", line("7", "7", "COMPLETED", T, 60) + "|723292160").run
        assert run.elapsed_s == 60

    def test_b12_suspended(self) -> None:
        for names, more in ((NAMES + "|Suspended", "|02:00:00"), (NAMES, "")):
            row = f"7|7|COMPLETED|{T}|{T}|{T + 14_400}|02:00:00|cpu=1,gres/gpu=1,node=1|n1{more}"
            run = read_lines(names, row).run
            assert (run.elapsed_s, run.end, run.flags) == (7200, T + 14_400, "")

    def test_b14_one_bad_record_stops_nothing(self) -> None:
        bad = line("8", "8", "COMPLETED", T, 5).replace(str(T), "unknown user", 1)
        reading = read_lines(NAMES, line("7", "7", "COMPLETED", T, 5), bad, line("9", "9", "COMPLETED", T, 5))
        assert [run.job_id for run in reading.runs] == ["7", "9"]
        assert [row.line for row in reading.rejected] == [3]


class TestParsing:
    def test_b15_pipe_in_a_name(self) -> None:
        reading = read_lines("JobID|JobName|JobIDRaw|State|Start", f"3|crazy|name|3|COMPLETED|{T}")
        assert (reading.run.name, reading.rejected) == ("crazy|name", [])
        reading = read_lines("JobID|User|Account|State", "3|a|b|c|COMPLETED")
        assert (reading.runs, len(reading.rejected)) == ([], 1)

    def test_b16_newline_in_submitline(self) -> None:
        row = f"3|srun bash -c 'a &&\nb'|COMPLETED|{T}"
        reading = read_lines("JobIDRaw|SubmitLine|State|Start", row, row.replace("3|", "4|", 1))
        assert [(run.job_id, run.flags) for run in reading.runs] == [
            ("3", "identity_incomplete line_joined"),
            ("4", "identity_incomplete line_joined"),
        ]

    def test_b17_delimiter_at_the_end(self) -> None:
        runs = [
            read_lines(f"JobIDRaw|State|JobName{end}", f"3|COMPLETED|mail_test{end}").run for end in ("", "|")
        ]
        assert [run.name for run in runs] == ["mail_test", "mail_test"]

    @pytest.mark.parametrize("name", ["30-json-array-task.json", "32-json-state-list.json"])
    def test_b19_b20_json_of_two_ages(self, name: str) -> None:
        assert read_fixture(f"sacct/{name}").run.state in ("FAILED", "RUNNING")

    def test_b22_cancelled_before_it_started(self) -> None:
        row = f"7|7|CANCELLED by 5|{T}|Unknown|{T + 5}|00:00:00||None assigned"
        run = read_lines(NAMES, row).run
        assert (run.started, run.final, run.start, run.elapsed_s) == (False, True, None, 0)

    def test_b24_every_final_state_is_final(self) -> None:
        rows = [
            line(str(i), str(i), word, T, 5) for i, word in enumerate([*sorted(FINAL_STATES), "FOO"], start=1)
        ]
        reading = read_lines(NAMES, *rows)
        assert [run.final for run in reading.runs] == [True] * len(FINAL_STATES) + [False]
        assert len([warning for warning in reading.warnings if "FOO" in warning]) == 1

    @pytest.mark.parametrize(("text", "uid"), [("CANCELLED by 1234", 1234), ("CANCELLED+", None)])
    def test_b25_who_cancelled(self, text: str, uid: int | None) -> None:
        run = read_lines(NAMES, line("7", "7", text, T, 5)).run
        assert (run.state, run.cancelled_by) == ("CANCELLED", uid)


class TestIdentity:
    def test_b29_requeues_share_the_id(self) -> None:
        rows = [line("7", "7", "REQUEUED", T + i * 1000, 10) for i in range(3)]
        runs = read_lines(NAMES, *rows, line("7", "7", "COMPLETED", T + 9000, 10)).runs
        assert len({run.run_key for run in runs}) == 4

    def test_b31_b33_array_tasks(self) -> None:
        rows = [
            line("1672169_1", "1672171", "COMPLETED", T, 5),
            line("1672169_10", "1672169", "COMPLETED", T, 5),
        ]
        waiting = f"1672169_[11-20%2]|1672169|PENDING|{T + 1}|Unknown|Unknown|00:00:00||None assigned"
        runs = read_lines(NAMES, *rows, waiting).runs
        assert [(run.job_id, run.job_id_raw, run.array_job_id) for run in runs] == [
            ("1672169_1", 1672171, 1672169),
            ("1672169_10", 1672169, 1672169),
            ("1672169_[11-20%2]", 1672169, 1672169),
        ]

    def test_b36_the_same_rows_have_the_same_keys(self) -> None:
        names = ("JobID|State", NAMES)
        rows = (("7|COMPLETED", "7|COMPLETED"), (line("7", "7", "COMPLETED", T, 5),))
        for header, lines in zip(names, rows, strict=True):
            once, again = (read_lines(header, *lines).runs for _ in range(2))
            assert once == again

    def test_b37_times_without_an_offset(self) -> None:
        row = "7|7|COMPLETED|2023-02-21T15:49:06|2023-02-21T15:49:06|2023-02-21T15:49:16|00:00:10|cpu=1,node=1|n1"
        assert read_lines(NAMES, row).run.start == 1_676_994_546
        assert read_lines(NAMES, row, zone=None).run.flags == "tz_assumed"

    def test_b40_components(self) -> None:
        assert [run.job_id_raw for run in read_lines("JobID|State", "123+0|FAILED", "123+1|FAILED").runs] == [
            123,
            124,
        ]

    def test_b42_state_of_a_step_is_not_that_of_the_job(self) -> None:
        rows = line("7", "7", "TIMEOUT", T, 60), line("7.batch", "7.batch", "CANCELLED", T, 61)
        assert read_lines(NAMES, *rows).run.state == "TIMEOUT"

    def test_b43_a_record_that_stays_running(self) -> None:
        older, newer = (read_fixture("sacct/32-json-state-list.json", queried_at=at).run for at in (T, T + 5))
        assert (older.job_id_raw, older.run_key) == (newer.job_id_raw, newer.run_key)
        assert (older.queried_at, newer.queried_at) == (T, T + 5)
