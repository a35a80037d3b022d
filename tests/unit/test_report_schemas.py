"""What the commands print as JSON is what their schemas say, in the order that the contract names."""

import csv
import io
import json
from importlib.resources import files

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.analysis.figures import ratio
from slurm_trace.cli.main import app
from slurm_trace.cli.ranking import JOB_COLUMNS, TERM_COLUMNS
from slurm_trace.cli.tables import flop
from tests.support.world import T0, Job, sacct_text

DAY = 86_400
ORDER = ("NOT_RULED_OUT", "INSUFFICIENT", "RULED_OUT")


def row(number, days=1, *, gpus=8, user="u1", **changes):
    run_s = int(days * DAY)
    return Job(
        number=number, submit=T0 - 60, start=T0, end=T0 + run_s, stopped_s=run_s, suspended_s=0, state="COMPLETED",
        nodes=1, gpus=gpus, gpu_type="h100", cpus=64, flop=0, user=user,
    ).row(**changes)  # fmt: skip


ROWS = [
    row(1),
    row(2, 300, NNodes="9", NodeList="n[1-9]"),
    row(3, 200),
    row(4, 0.5, AllocTRES=""),
    row(5, 0, Elapsed="00:00:00", Timelimit=""),
    row(6, 2, AllocTRES="", NNodes="", NodeList=""),
    row(7, 3, AllocTRES="", NNodes="", NodeList="", user=""),
    row(8, State="RUNNING", End="Unknown", Timelimit="01:00:00"),
    row(9, State="RUNNING", End="Unknown"),
    row(10, State="CANCELLED by 7"),
    row(
        11,
        State="PENDING",
        Start="Unknown",
        End="Unknown",
        Elapsed="00:00:00",
        AllocTRES="",
        NodeList="None assigned",
    ),
    row(12, gpus=0),
    row(13, 1e-4, AllocTRES="cpu=1,gres/gpu:1g.10gb=1,gres/shard=3,gres/wunderkarte=1,node=1"),
    row(14, Start="yesterday", Submit="soon", End="later", State=""),
    row(15, JobID="15.batch", JobIDRaw="15.batch"),
]
RAW_IDS = [n for n in range(1, 16) if n != 14]


def schema(name):
    document = json.loads(files("slurm_trace.schema.json").joinpath(f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return document


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "export").write_bytes(sacct_text(ROWS))

    def command(*arguments):
        return CliRunner().invoke(
            app, ["--store", str(folder / "store.db"), *arguments], catch_exceptions=False
        )

    command.imported = command("import", "sacct", str(folder / "export"), "--tz", "UTC", "--json")
    return command


@pytest.fixture(scope="module")
def validated(call):
    def command(name, *arguments):
        document = json.loads(call(name, *arguments, "--json").stdout)
        jsonschema.validate(document, schema(name))
        return document

    return command


def test_import(call):
    assert call.imported.exit_code == 3
    document = json.loads(call.imported.stdout)
    jsonschema.validate(document, schema("import"))
    assert document["read"] == document["jobs"] + document["steps_skipped"] + len(document["rejected"])
    assert document["jobs"] == document["inserted"] + document["updated"] + document["unchanged"]


@pytest.mark.parametrize("basis", ["max_any_op", "bf16_dense"])
@pytest.mark.parametrize("window", [(), ("--since", str(T0 + DAY // 2), "--until", str(T0 + 2 * DAY))])
def test_rank(validated, basis, window):
    document = validated("rank", "--basis", basis, *window)
    jobs = document["jobs"]
    assert [j["rank"] for j in jobs] == list(range(1, len(jobs) + 1))
    assert [ORDER.index(j["verdict"]) for j in jobs] == sorted(ORDER.index(j["verdict"]) for j in jobs)
    for verdict in ("NOT_RULED_OUT", "RULED_OUT"):
        ratios = [j["ratio"] for j in jobs if j["verdict"] == verdict]
        assert ratios == sorted(ratios, reverse=True)
    if basis == "bf16_dense":
        assert document["verdicts"]["RULED_OUT"] == document["verdicts_strict"]["RULED_OUT"] == 0
    else:
        open_ended = [j for j in jobs if j["verdict"] == "INSUFFICIENT"]
        sizes = [
            j["held_s"] * (j["nodes"] or 1) if j["held_s"] is not None else float("inf") for j in open_ended
        ]
        assert sizes == sorted(sizes, reverse=True)
        assert all(j["bound_flop"] is None and j["ratio"] is None for j in open_ended)
    assert document["inputs"]["jobs"] == (
        len(jobs) + len(document["runaway_jobs"]) + document["inputs"]["never_started"]
    )
    for entry in [*jobs, *document["runaway_jobs"]]:
        if entry["bound_flop"] is not None:
            assert entry["bound_flop"] == entry["bound_gpu_flop"] + entry["bound_cpu_flop"]
            assert entry["bound_flop_strict"] is None or entry["bound_flop_strict"] >= entry["bound_flop"]


def test_rank_lists_every_run_once(validated):
    document = validated("rank")
    listed = [j["job_id_raw"] for j in [*document["jobs"], *document["runaway_jobs"]]]
    assert sorted([*listed, 11]) == RAW_IDS
    assert [j["job_id_raw"] for j in document["runaway_jobs"]] == [8]
    assert max(j["bound_flop"] or 0 for j in document["jobs"]) > 2**64


@pytest.mark.parametrize("by", ["all", "cluster", "account", "user"])
def test_groups(validated, by):
    document = validated("groups", "--by", by)
    assert sum(g["jobs"] for g in document["groups"]) == len(RAW_IDS) - 1
    verdicts = [ORDER.index(g["verdict"]) for g in document["groups"]]
    assert verdicts == sorted(verdicts)


@pytest.mark.parametrize("strict", [(), ("--strict",)])
@pytest.mark.parametrize("job", RAW_IDS)
def test_explain(validated, job, strict):
    document = validated("explain", str(job), *strict)
    bound = document["job"]["bound_flop_strict" if strict else "bound_flop"]
    terms = document["terms"]
    assert all(t["flop"] == t["count"] * t["ceiling_flop_s"] * t["seconds"] for t in terms)
    assert all(t["from"] is None or t["to"] - t["from"] == t["seconds"] for t in terms)
    if bound is None:
        assert not terms
    else:
        assert sum(t["flop"] for t in terms) == bound


def test_csv_has_the_columns_of_the_json(call, validated):
    cells = list(csv.reader(io.StringIO(call("rank", "--format", "csv").stdout)))
    assert tuple(cells[0]) == JOB_COLUMNS == tuple(validated("rank")["jobs"][0])
    assert len(cells) == 1 + len(validated("rank")["jobs"])
    terms = list(csv.reader(io.StringIO(call("explain", "1", "--format", "csv").stdout)))
    assert tuple(terms[0]) == TERM_COLUMNS == tuple(validated("explain", "1")["terms"][0])
    groups = list(csv.reader(io.StringIO(call("groups", "--format", "csv").stdout)))
    assert groups[0] == list(validated("groups")["groups"][0])


def test_flop_values_are_said_to_pass_64_bits():
    for name in ("rank", "groups", "explain"):
        assert "2^64" in schema(name)["description"]


@pytest.mark.parametrize(
    ("rows", "rank_code", "groups_code"),
    [
        ([row(1)], 0, 0),
        ([row(1), row(3, 200)], 1, 1),
        # a record that was never closed is not ranked, and not ruled out either
        ([row(1), row(8, 400, State="RUNNING", End="Unknown", Timelimit="01:00:00")], 1, 1),
        ([row(1), row(14, Start="yesterday", Submit="soon", End="later", State="")], 1, 1),
        ([row(14, Start="yesterday", Submit="soon", End="later", State="")], 1, 1),
    ],
)
def test_check_holds_only_where_all_is_ruled_out(tmp_path, rows, rank_code, groups_code):
    (tmp_path / "export").write_bytes(sacct_text(rows))
    store = ["--store", str(tmp_path / "store.db")]
    CliRunner().invoke(app, [*store, "import", "sacct", str(tmp_path / "export"), "--tz", "UTC"])
    for command, code in (("rank", rank_code), ("groups", groups_code)):
        answer = CliRunner().invoke(app, [*store, command, "--check"]).exception
        assert getattr(answer, "exit_code", 0) == code, command


def test_figures_for_people_are_rounded_up():
    assert [ratio(v) for v in (None, 0.0, 0.9521, 0.952, 0.99901, 1234.1)] == [
        "-", "0", "0.953", "0.952", "1", "1.24e+03",
    ]  # fmt: skip
    assert [flop(v) for v in (None, 7, 1000, 1001, 999_001, 10**23)] == [
        "-", "7", "1.00e3", "1.01e3", "1.00e6", "1.00e23",
    ]  # fmt: skip


def test_a_file_without_rows_covers_the_time_of_the_cluster_it_was_asked_for(tmp_path):
    store = ["--store", str(tmp_path / "store.db")]
    (tmp_path / "a").write_bytes(sacct_text([row(1)]))
    (tmp_path / "b").write_bytes(sacct_text([]))
    day = ("2023-11-14", "2023-11-16", "2023-11-18")
    for name, since, until in (("a", *day[:2]), ("b", *day[1:])):
        call = ["import", "sacct", str(tmp_path / name), "--tz", "UTC", "--covers", f"{since}..{until}"]
        assert CliRunner().invoke(app, [*store, *call, "--cluster", "c"]).exit_code == 0
    answer = CliRunner().invoke(app, [*store, "groups", "--json", "--since", day[0], "--until", day[2]])
    (everything,) = json.loads(answer.stdout)["groups"]
    assert (everything["verdict"], everything["records_complete"]) == ("RULED_OUT", "declared")
