"""What `rank`, `groups` and `explain` print for people and for spreadsheets."""

import csv
import io
import json
import os

import click
import pytest
from click.testing import CliRunner
from sqlalchemy import select

from slurm_trace.analysis.names import moment
from slurm_trace.cli.footnotes import Footnotes
from slurm_trace.cli.main import app
from slurm_trace.cli.output import each_warning_once, print_table, warn
from slurm_trace.cli.tables import _print_runs, hours
from slurm_trace.errors import CheckFailed, UsageProblem
from slurm_trace.store.engine import open_store
from slurm_trace.store.models import verdict
from tests.support.world import T0, Job, sacct_text


def row(number, **changes):
    return Job(
        number=number, submit=T0, start=T0, end=T0 + 60, stopped_s=60, suspended_s=0, state="COMPLETED",
        nodes=1, gpus=8, gpu_type="h100", cpus=64, flop=0, user="u1",
    ).row(**changes)  # fmt: skip


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rows = [
        row(7),
        row(12, JobID="9_1"),
        row(9, JobID="9_2"),
        row(20, JobID="20+0"),
        row(21, JobID="20+1"),
        row(25, Submit="Unknown"),
        row(25, Submit="Unknown", Start=str(T0 + 3600), End=str(T0 + 3660)),
        row(30, End="Unknown", Elapsed="", Timelimit=""),
    ]
    (folder / "export").write_bytes(sacct_text(rows))

    def command(*arguments):
        return CliRunner().invoke(
            app, ["--store", str(folder / "store.db"), *arguments], catch_exceptions=False
        )

    command.store = str(folder / "store.db")
    assert command("import", "sacct", str(folder / "export"), "--tz", "UTC").exit_code == 0
    return command


def test_a_list_in_csv_is_json(call):
    (line,) = csv.DictReader(io.StringIO(call("groups", "--format", "csv").stdout))
    assert json.loads(line["reasons"]) == ["1 of its runs have no bound"]


@pytest.mark.parametrize(("job", "parts"), [("9", ("9_1", "9_2")), ("20", ("20+0", "20+1"))])
def test_the_number_of_an_array_or_a_het_job_names_all_its_parts(call, job, parts):
    with pytest.raises(UsageProblem) as problem:
        call("explain", job)
    assert all(f"{part}@{moment(T0)}" in str(problem.value) for part in parts)
    assert call("explain", parts[1]).exit_code == 0
    assert call("explain", f"{parts[1]}@{moment(T0)}").exit_code == 0


def test_without_a_submit_time_the_start_tells_runs_apart(call):
    with pytest.raises(UsageProblem, match=f"25@{moment(T0)}, c:25@{moment(T0 + 3600)}"):
        call("explain", "25")
    assert call("explain", f"25@{moment(T0 + 3600)}").exit_code == 0


def test_strict_lists_what_it_does_not_grant(call):
    lines = call("explain", "7", "--strict").stdout.splitlines()
    (rests,) = [line for line in lines if line.startswith("  rests on: ")]
    (refused,) = [line for line in lines if line.startswith("  not granted: ")]
    assert "units_left_out (assumed)" in rests
    assert "confined" in refused
    assert "confined" not in rests
    assert "not granted" not in call("explain", "7").stdout


def test_a_run_without_a_bound_has_no_table(call):
    assert "ceiling" not in call("explain", "30").stdout
    assert "ceiling" in call("explain", "7").stdout


@pytest.mark.parametrize("command", [("rank",), ("explain", "7")])
def test_an_estimate_says_why_it_rules_nothing_out(call, command):
    assert "bf16_dense is an estimate" in call(*command, "--basis", "bf16_dense").stdout


def test_a_narrow_terminal_loses_columns_and_breaks_no_cell(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((20, 24)))
    monkeypatch.setenv("COLUMNS", "20")
    print_table(("job", "user", "verdict"), [("lab:1", "somebody", "RULED_OUT")], spare=("user",))
    shown = capsys.readouterr().out
    assert "RULED_OUT" in shown
    assert "somebody" not in shown
    assert "too narrow for: user;" in shown


def test_few_hours_are_not_shown_as_none():
    assert [hours(s) for s in (0, 284, 35_999, 36_000, 9_000_000)] == ["0", "0.079", "10", "10", "2,500"]


def test_a_time_that_is_not_known_is_said_so():
    assert moment(None) == "unknown"


def test_an_empty_store_rules_out_nothing(tmp_path):
    store = str(tmp_path / "empty.db")
    assert CliRunner().invoke(app, ["--store", store, "store", "init"]).exit_code == 0
    for command in ("rank", "groups"):
        result = CliRunner().invoke(app, ["--store", store, command, "--check"])
        assert isinstance(result.exception, CheckFailed), command


def test_time_that_an_import_covers_without_a_run_is_ruled_out(tmp_path):
    store, export = str(tmp_path / "none.db"), tmp_path / "none"
    export.write_bytes(sacct_text([]))
    arguments = [
        "import",
        "sacct",
        str(export),
        "--cluster",
        "c",
        "--covers",
        "2025-01-01..2025-02-01",
        "--tz",
        "UTC",
    ]
    assert CliRunner().invoke(app, ["--store", store, *arguments]).exit_code == 0
    assert CliRunner().invoke(app, ["--store", store, "rank", "--check"]).exit_code == 0


def test_what_a_file_covers_is_said_once(tmp_path):
    store, export = str(tmp_path / "twice.db"), tmp_path / "twice"
    export.write_bytes(sacct_text([row(1)]))
    for extra in (["--covers", "2023-11-01..2023-12-01"], []):
        arguments = ["import", "sacct", str(export), "--tz", "UTC", *extra]
        assert CliRunner().invoke(app, ["--store", store, *arguments]).exit_code == 0
    result = CliRunner().invoke(app, ["--store", store, "rank", "--json"])
    assert json.loads(result.stdout)["records_complete"] == {"c": {"status": "declared", "gaps": []}}


def test_explain_says_where_the_fastest_of_several_devices_counts(call):
    printed = call("explain", "7").stdout
    assert "'h100' may be any of" in printed
    assert "no CPU model" in printed


def test_an_unknown_sku_is_named(call, tmp_path):
    profile = tmp_path / "site.toml"
    profile.write_text('[[clusters.c.nodes]]\nhosts = "n1"\ngpus = 8\ncores = 64\nsku = "FooBar 9000"\n')
    assert "'FooBar 9000' is no card" in call("--config", str(profile), "rank").stderr


def test_verdicts_are_kept_with_what_they_were_given_on(call, tmp_path):
    for _ in range(2):
        assert call("rank", "--save", "--top", "1").exit_code == 0
    store = open_store(call.store)
    with store.reading() as connection:
        kept = connection.execute(select(verdict)).mappings().all()
    ranked = json.loads(call("rank", "--json").stdout)
    assert sorted((v["verdict"], v["bound"]) for v in kept) == sorted(
        (j["verdict"], None if j["bound_flop"] is None else str(j["bound_flop"])) for j in ranked["jobs"]
    )
    assert {(v["threshold"], v["basis"], v["rates"]) for v in kept} == {
        ("eu-gpai", "max_any_op", ranked["inputs"]["rates"])
    }
    inputs = ranked["inputs"]
    (evaluator,) = {v["evaluator"] for v in kept}
    version, rules = evaluator.split(" rules ")
    generation, digest = rules.split(":")
    assert (version, int(generation)) == (inputs["evaluator"], inputs["rules_generation"])
    assert inputs["rules"].startswith(digest)
    assert len(digest) == 32
    assert len(evaluator) <= verdict.c.evaluator.type.length


def test_groups_say_first_what_came_out_and_from_what(call):
    lines = call("groups", "--by", "user").stdout.splitlines()
    assert "1 INSUFFICIENT" in lines[1]
    assert lines[2].startswith("  granting nothing")
    assert "rows rejected" in lines[3]


@pytest.mark.parametrize("command", ["rank", "groups"])
def test_an_open_window_after_all_records_is_refused_and_not_ruled_out(call, command):
    with pytest.raises(UsageProblem, match="speak of nothing from epoch 4000000000 on"):
        call(command, "--since", "4000000000", "--check")


def test_rules_are_those_of_the_default_reading(call):
    assert "  rule " in call("explain", "7").stdout
    assert "  rule " not in call("explain", "7", "--strict").stdout


def test_why_a_group_cannot_be_told_is_printed(call):
    lines = call("groups", "--by", "user").stdout.splitlines()
    assert any(line.startswith("  not enough to tell") and "no bound" in line for line in lines)


def test_a_footnote_names_the_rule_behind_each_warning(call):
    lines = call("rank").stdout.splitlines()
    (open_run,) = [line for line in lines if "INSUFFICIENT   INSUFFICIENT" in line]
    letter = open_run.split()[-1]
    (note,) = [line for line in lines if line.startswith(f"  {letter}: ")]
    assert note.startswith(f"  {letter}: WARN: ")
    assert "(rule unbounded-for-long)" in note
    job = next(j for j in json.loads(call("rank", "--json").stdout)["jobs"] if j["job_id"] == "30")
    assert "unbounded-for-long" in {route["rule"] for route in job["routes"]}


def test_a_group_table_has_footnotes_and_the_verdict_is_none(call):
    lines = call("groups", "--by", "user").stdout.splitlines()
    assert any("(rule few-runs-reach-threshold)" in line for line in lines)
    assert not any("rule no-bound" in line for line in lines)


def test_marks_are_letters_in_the_order_of_the_rules_met():
    notes = Footnotes()
    warns = [{"route": "WARN", "group": None, "rule": f"r{n}"} for n in range(28)]
    other = [{"route": "RULED_OUT", "rule": "v"}, {"route": None, "rule": "note"}]
    assert notes.mark(other) == ""
    assert notes.mark([*other, warns[0], warns[1]]) == "a b"
    assert notes.mark([warns[1], warns[2]]) == "b c"
    assert notes.mark(warns).split()[-3:] == ["z", "aa", "ab"]


def test_the_ranking_keeps_its_verdicts_and_marks_in_100_columns(call, monkeypatch, capsys):
    entry = json.loads(call("rank", "--json").stdout)["jobs"][0] | {
        "job_id": "1021998",
        "cluster": "meridian",
    }
    entry |= {"verdict": "NOT_RULED_OUT", "verdict_strict": "NOT_RULED_OUT", "held_s": 25_747_123}
    routes = [{"route": "WARN", "group": None, "rule": name} for name in ("runaway", "count-unknown")]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    notes = Footnotes()
    _print_runs([entry | {"routes": routes}], notes)
    shown = [click.unstyle(line) for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, shown[:-1])) <= 100
    assert shown[1].split()[-2:] == ["strict", "see"]
    assert shown[3].split()[-4:] == ["NOT_RULED_OUT", "NOT_RULED_OUT", "a", "b"]


def test_a_run_that_was_over_at_once_says_that_nothing_bears_it_out(tmp_path):
    path, export = str(tmp_path / "store.db"), tmp_path / "export"
    at_once = {"End": str(T0), "Elapsed": "00:00:00"}
    rows = [row(1, **at_once, Timelimit=""), row(2, **at_once, Timelimit="01:00:00"), row(3)]
    export.write_bytes(sacct_text(rows))
    assert (
        CliRunner().invoke(app, ["--store", path, "import", "sacct", str(export), "--tz", "UTC"]).exit_code
        == 0
    )
    jobs = json.loads(CliRunner().invoke(app, ["--store", path, "rank", "--json"]).stdout)["jobs"]
    said = {job["job_id"]: job["reasons"] for job in jobs}
    odd = "; by its record it was over at once, and nothing bears that out"
    assert "release: the end is unknown" + odd in said["1"]
    assert "release: the end is unknown: until the time limit" + odd in said["2"]
    assert not any("at once" in reason for reason in said["3"])
    printed = CliRunner().invoke(app, ["--store", path, "explain", "1"]).stdout
    assert "why it is not lower: release: the end is unknown" + odd in printed


def test_a_warning_may_be_given_once_only(capsys):
    with each_warning_once():
        for message in ("one", "two", "one"):
            warn(message)
    warn("one")
    assert capsys.readouterr().err.split() == ["warning:", "one", "warning:", "two", "warning:", "one"]
