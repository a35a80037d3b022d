"""`rules`, and the routes in the reports."""

import csv
import io
import json
from importlib.resources import files

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.analysis.rules.ruleset import RuleSet
from slurm_trace.cli.groups import BY
from slurm_trace.cli.main import app
from slurm_trace.cli.rules import (
    CHANGE_COLUMNS,
    FEATURE_COLUMNS,
    GROUP_COLUMNS,
    RULE_COLUMNS,
    RUN_COLUMNS,
    SOURCE_COLUMNS,
)
from slurm_trace.errors import InputProblem, UsageProblem
from tests.support.rule_files import RULE, VERDICT, changed, document, ordering
from tests.support.world import T0, Job, sacct_text

DAY = 86400


def row(number, days=1.0, *, user="u1", account="a1", start=T0, **changes):
    run_s = int(days * DAY)
    return Job(
        number=number, submit=start - 60, start=start, end=start + run_s, stopped_s=run_s, suspended_s=0,
        state="COMPLETED", nodes=1, gpus=8, gpu_type="h100", cpus=64, flop=0, user=user, account=account,
    ).row(**changes)  # fmt: skip


ROWS = [
    row(1),
    row(2, 30, user="u4", account="a4", AllocTRES=""),
    row(3, user="u5", account="a5", State="RUNNING", End="Unknown", Timelimit="01:00:00"),
    row(4, 200, user="u2", account="a2"),
    *(row(n, 4, start=T0 + n * 4 * DAY, user="u3", account="a3") for n in range(11, 24)),
]


def schema(name):
    found = json.loads(files("slurm_trace.schema.json").joinpath(f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    (folder / "export").write_bytes(sacct_text(ROWS))

    def command(*arguments):
        found = CliRunner().invoke(app, ["--store", str(folder / "store.db"), *arguments])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found.stdout

    command("import", "sacct", str(folder / "export"), "--tz", "UTC")
    return command


def test_the_list(call):
    found = json.loads(call("rules", "list", "--json"))
    jsonschema.validate(found, schema("rule-list"))
    assert [r["id"] for r in found["rules"]] == [r.id for r in RuleSet.load().rules]
    assert [g["generation"] for g in found["generations"]] == [1, 2, 3]
    older = json.loads(call("rules", "list", "--generation", "1", "--json"))
    assert {r["route"] for r in older["rules"]} == {"RULED_OUT", "NOT_RULED_OUT", "INSUFFICIENT"}
    table = call("rules", "list")
    assert all(rule.id in table for rule in RuleSet.load().rules)
    assert "group-records-open decides over bound-reaches-limit" in table
    assert "where no rule gives a verdict it is INSUFFICIENT" in table
    cells = list(csv.reader(io.StringIO(call("rules", "list", "--format", "csv"))))
    assert tuple(cells[0]) == RULE_COLUMNS
    assert len(cells) == 1 + len(found["rules"])


def test_one_rule_with_its_reason_and_provenance(call):
    found = json.loads(call("rules", "show", "samples-sparse", "--json"))["rule"]
    assert found["when"] == "O13.share < 0.9"
    assert found["provenance"]["verified"] is False
    table = call("rules", "show", "group-records-open")
    for part in (
        "INSUFFICIENT",
        "a run may be missing",
        "basis",
        "revision",
        "decides over bound-reaches-limit",
    ):
        assert part in table
    assert "with-its-user" in call("rules", "show", "with-its-user", "--format", "csv")


def test_no_such_rule(call):
    with pytest.raises(UsageProblem, match="no rule 'runaway' in generation 1"):
        call("rules", "show", "runaway", "--generation", "1")


def test_observables_and_sources(call):
    features = json.loads(call("rules", "observables", "--json"))["features"]
    assert {f["id"] for f in features} == set(RuleSet.load().features)
    sources = json.loads(call("rules", "sources", "--json"))["sources"]
    assert all(s["needs"] for s in sources)
    assert (
        tuple(next(csv.reader(io.StringIO(call("rules", "observables", "--format", "csv")))))
        == FEATURE_COLUMNS
    )
    assert tuple(next(csv.reader(io.StringIO(call("rules", "sources", "--format", "csv"))))) == SOURCE_COLUMNS
    assert "O02.ratio" in call("rules", "observables")
    assert "node-sampler" in call("rules", "sources")


def test_a_site_s_rules_are_read_beside_the_built_in_ones(call, tmp_path):
    (tmp_path / "warning.json").write_text(json.dumps(document(RULE), indent=2))
    assert "site-long-runs" in call("rules", "list", "--rules", str(tmp_path))
    found = json.loads(call("rules", "compare", "--from", "1", "--rules", str(tmp_path), "--json"))
    assert found["by_rule"]["with-its-lineage"] > 0
    (tmp_path / "warning.json").write_text(json.dumps(document(changed(RULE, when__unit=...)), indent=2))
    with pytest.raises(InputProblem, match=r"warning\.json, line 16: rule 'site-long-runs': .*no unit"):
        call("rules", "list", "--rules", str(tmp_path))


def test_generations_side_by_side(call):
    found = json.loads(call("rules", "compare", "--from", "1", "--to", "2", "--json"))
    jsonschema.validate(found, schema("rules-compare"))
    assert found["from"]["verdicts"] == found["to"]["verdicts"]
    assert found["verdicts_changed"] == 0
    assert found["changed"] == len(found["changes"])
    by_id = {c["job_id_raw"]: c for c in found["changes"]}
    assert by_id[3]["rules_to"] == ["runaway"]
    assert by_id[3]["routes_to"] == [by_id[3]["verdict_to"], "WARN"]
    assert 4 not in by_id
    lineages = sum("with-its-lineage" in c["rules_to"] for c in found["changes"])
    assert lineages == found["by_rule"]["with-its-lineage"] == 13
    cells = list(csv.reader(io.StringIO(call("rules", "compare", "--from", "1", "--format", "csv"))))
    assert tuple(cells[0]) == (*RUN_COLUMNS, *CHANGE_COLUMNS) == tuple(found["changes"][0])
    table = call("rules", "compare", "--from", "1", "--top", "2")
    assert "0 verdicts changed" in table
    assert "+1 runs by runaway" in table
    assert "and 13 more" in table
    assert json.loads(call("rules", "compare", "--from", "2", "--json"))["changed"] == 0


@pytest.mark.parametrize("kind", BY)
def test_groups_of_two_generations_side_by_side(call, kind):
    found = json.loads(call("rules", "compare", "--from", "1", "--by", kind, "--json"))
    jsonschema.validate(found, schema("rules-compare"))
    groups = {g["key"]: g for g in json.loads(call("groups", "--by", kind, "--json"))["groups"]}
    assert found["by"] == kind
    assert sum(found["to"]["verdicts"].values()) == len(groups)
    assert (found["verdicts_changed"], found["changed"]) == (0, len(found["changes"]))
    # Generation 1 has verdicts alone, so what changed is what stands beside them in 2.
    beside = {
        key: [r["rule"] for r in group["routes"][1:]]
        for key, group in groups.items()
        if len(group["routes"]) > 1
    }
    assert {c["key"]: c["rules_to"] for c in found["changes"]} == beside
    for change in found["changes"]:
        assert change["verdict_to"] == groups[change["key"]]["verdict"] == change["routes_from"][0]
        assert (change["by"], change["label"]) == (kind, groups[change["key"]]["label"])


def test_changed_groups_are_listed_one_by_one(call):
    call_by_user = ("rules", "compare", "--from", "1", "--by", "user")
    found = json.loads(call(*call_by_user, "--json"))["changes"]
    assert found
    cells = list(csv.reader(io.StringIO(call(*call_by_user, "--format", "csv"))))
    assert tuple(cells[0]) == (*GROUP_COLUMNS, *CHANGE_COLUMNS) == tuple(found[0])
    assert [line[1] for line in cells[1:]] == [change["key"] for change in found]
    table = call(*call_by_user, "--top", "1")
    assert "groups, rules of generation 1 and 3: 0 verdicts changed" in table
    assert found[0]["key"] in table
    assert json.loads(call("rules", "compare", "--from", "2", "--by", "user", "--json"))["changed"] == 0


def test_a_rule_that_changes_the_verdict_on_a_group_is_seen(call, tmp_path):
    """A site's own rule, since the built-in generations agree on verdicts."""
    rule = VERDICT | {"subjects": ["group"], "generations": {"since": 2, "until": None}}
    order = (
        "few",
        "site-verdict",
        ["group-bound-below-limit", "strict-group-bound-below-limit", "bound-reaches-limit"],
    )
    (tmp_path / "insufficiency.json").write_text(json.dumps(document(rule, kind="insufficiency")))
    (tmp_path / "precedence.json").write_text(json.dumps(ordering(order)))
    arguments = ("rules", "compare", "--from", "1", "--by", "user", "--rules", str(tmp_path), "--json")
    found = json.loads(call(*arguments))
    other = [c for c in found["changes"] if c["verdict_from"] != c["verdict_to"]]
    assert len(other) == found["verdicts_changed"] > 0
    assert found["changes"][: len(other)] == other
    assert {(c["verdict_to"], "site-verdict" in c["rules_to"]) for c in other} == {("INSUFFICIENT", True)}


def test_routes_of_runs(call):
    found = json.loads(call("rank", "--json"))
    jsonschema.validate(found, schema("rank"))
    assert found["inputs"]["rules"] == RuleSet.load().digest
    assert found["inputs"]["rules_generation"] == 3
    jobs = {j["job_id_raw"]: j for j in [*found["jobs"], *found["runaway_jobs"]]}
    for job in jobs.values():
        assert job["routes"][0]["route"] == job["verdict"]
        assert job["routes"][0]["rule"]
    said = {n: {r["rule"]: (r["route"], r["group"]) for r in j["routes"][1:]} for n, j in jobs.items()}
    assert said[1] == said[4] == {}
    assert said[3]["runaway"] == ("WARN", None)
    assert said[2]["count-unknown"] == ("WARN", None)
    assert all(said[n]["with-its-lineage"] == ("ATTRIBUTE", "lineage") for n in range(11, 24))
    assert not any(name in said[n] for n in said for name in ("with-its-user", "with-its-account"))
    cells = list(csv.DictReader(io.StringIO(call("rank", "--format", "csv"))))
    assert json.loads(cells[0]["routes"]) == found["jobs"][0]["routes"]


def test_routes_of_groups(call):
    found = json.loads(call("groups", "--by", "user", "--json"))
    jsonschema.validate(found, schema("groups"))
    routes = {g["key"]: g["routes"] for g in found["groups"]}
    for group in found["groups"]:
        assert group["routes"][0]["route"] == group["verdict"]
    assert {"route": "WARN", "group": None, "rule": "few-runs-reach-threshold"} in routes["u2"]


def test_explain_names_the_rules_that_fired(call):
    found = json.loads(call("explain", "11", "--json"))
    jsonschema.validate(found, schema("explain"))
    assert {"route": "ATTRIBUTE", "group": "lineage", "rule": "with-its-lineage"} in found["job"]["routes"]
    text = call("explain", "11")
    assert "rule bound-below-limit: RULED_OUT: the most that the hardware can have done" in text
    assert (
        "rule with-its-lineage: ATTRIBUTE(lineage): ruled out by itself, but the lineage that it belongs to is not"
        in text
    )
    assert "rule runaway: WARN: the record was never closed" in call("explain", "3")
