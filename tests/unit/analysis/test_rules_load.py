"""Rules are checked as a whole when they are loaded; what is wrong is refused with file and line."""

import json
import re
from importlib.resources import files

import jsonschema
import pytest

from slurm_trace.analysis.rules.documents import SCHEMAS
from slurm_trace.analysis.rules.observables import Observables
from slurm_trace.analysis.rules.rule import ROUTES, comparisons
from slurm_trace.analysis.rules.ruleset import RuleSet, generations
from slurm_trace.errors import InputProblem, UsageProblem
from slurm_trace.version import EVALUATOR_VERSION
from tests.support.rule_files import RULE, VERDICT, changed, document, ordering

KINDS = {
    "rule-out",
    "warning",
    "attribution",
    "insufficiency",
    "coverage",
    "consistency",
    "purpose",
    "precedence",
}


def packaged():
    return {f.name: f for f in files("slurm_trace.schema.rules").iterdir() if f.name.endswith(".json")}


@pytest.fixture
def load(tmp_path):
    def loaded(**documents):
        for name, value in documents.items():
            text = value if isinstance(value, str) else json.dumps(value, indent=2)
            (tmp_path / f"{name.replace('_', '-')}.json").write_text(text)
        return RuleSet.load(folder=tmp_path)

    return loaded


def test_the_index_lists_every_file_and_each_fits_its_schema():
    present = packaged()
    index = json.loads(present["index.json"].read_text("utf-8"))
    assert {entry["kind"] for entry in index["files"]} == KINDS
    assert {entry["file"] for entry in index["files"]} | {"index.json"} == present.keys()
    for file in present.values():
        value = json.loads(file.read_text("utf-8"))
        schema = json.loads(
            files("slurm_trace.schema.json").joinpath(SCHEMAS[value["schema"]]).read_text("utf-8")
        )
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(value, schema)


def test_there_are_fifteen_observables_and_more_and_every_source_says_what_it_needs():
    found = Observables.load()
    assert len(found.observables) >= 15
    assert all(source["needs"] and source["gives"] for source in found.sources.values())
    assert {"accounting", "node-sampler", "gpm", "energy", "process", "account-feed"} <= found.sources.keys()


@pytest.mark.parametrize("generation", [one.generation for one in generations()])
def test_every_generation_loads(generation):
    rules = RuleSet.load(generation)
    assert rules.generation.generation == generation
    assert {r.route for r in rules.rules if r.decides} == {"RULED_OUT", "NOT_RULED_OUT", "INSUFFICIENT"}
    assert all(r.route in (*ROUTES, None) and r.reason and r.rests_on for r in rules.rules)


def test_the_newest_generation_is_the_current_one_and_every_file_has_rules_in_it():
    current = RuleSet.load()
    assert current.generation == generations()[-1]
    assert current.generation.evaluator == EVALUATOR_VERSION
    assert {r.kind for r in current.rules} | {"precedence"} == KINDS
    assert current.precedence
    assert current.default == "INSUFFICIENT"


def test_purpose_only_annotates():
    assert {r.route for r in RuleSet.load().rules if r.kind == "purpose"} == {None}


def test_an_unknown_generation_is_refused():
    with pytest.raises(UsageProblem, match="no generation 99"):
        RuleSet.load(99)


def test_the_digest_is_of_every_word(load):
    with_site = load(warning=document(RULE))
    assert with_site.digest != RuleSet.load().digest == RuleSet.load(1).digest
    assert load(warning=document(changed(RULE, reason="other"))).digest != RuleSet.load().digest


def test_a_site_adds_rules_and_takes_none_away(load):
    mine = {r.id for r in load(warning=document(RULE)).rules}
    assert mine == {r.id for r in RuleSet.load().rules} | {"site-long-runs"}


FAULTS = {
    "unknown feature": (changed(RULE, when__feature="O99.guess"), "no feature 'O99.guess'", "O99.guess"),
    "unknown observable's feature": (
        changed(RULE, when__feature="O03.guess"),
        "no feature 'O03.guess'",
        "O03.guess",
    ),
    "no unit": (changed(RULE, when__unit=...), "a threshold with no unit; its unit is 's'", "O03.held_s"),
    "another unit": (
        changed(RULE, when__unit="count"),
        "a threshold in 'count'; its unit is 's'",
        "O03.held_s",
    ),
    "no number": (changed(RULE, when__value="600"), "it is a number", "O03.held_s"),
    "a unit of none": (
        changed(RULE, when={"feature": "O04.runaway", "op": "is", "value": True, "unit": "s"}),
        "unit 's' of something that has none",
        "O04.runaway",
    ),
    "no such value": (
        changed(
            RULE, when={"feature": "O08.status", "op": "is", "value": "perhaps"}, rests_on=["site-profile"]
        ),
        "it is never 'perhaps'",
        "O08.status",
    ),
    "one is no truth": (
        changed(RULE, when={"feature": "O04.runaway", "op": "is", "value": 1}),
        "it is never 1",
        "O04.runaway",
    ),
    "an order of words": (
        changed(
            RULE, when={"feature": "O08.status", "op": "ge", "value": "proven"}, rests_on=["site-profile"]
        ),
        "'ge' orders numbers",
        "O08.status",
    ),
    "a list without in": (changed(RULE, when__value=[600]), "takes a list", "O03.held_s"),
    "in without a list": (changed(RULE, when__op="in"), "takes a list", "O03.held_s"),
    "of another subject": (changed(RULE, subjects=["run", "group"]), "group does not have it", "O03.held_s"),
    "rests on nothing of it": (
        changed(RULE, rests_on=["gpm"]),
        "`rests_on` names none of them",
        "O03.held_s",
    ),
    "unknown source": (changed(RULE, rests_on=["accounting", "hearsay"]), "no source 'hearsay'", "hearsay"),
    "unknown route": (changed(RULE, route="ACCUSE"), "'ACCUSE' is not one of", "ACCUSE"),
    "unknown operator": (changed(RULE, when__op="near"), "'near' is not one of", "near"),
    "warning that rules out": (
        changed(RULE, route="RULED_OUT"),
        "'RULED_OUT' is not one of ['WARN']",
        "route",
    ),
    "no reason": (changed(RULE, reason=...), "'reason' is a required property", "id"),
    "no provenance": (changed(RULE, provenance=...), "'provenance' is a required property", "id"),
    "misspelt key": (RULE | {"reasons": "x"}, "Additional properties are not allowed", "id"),
    "a group without attribution": (RULE | {"group": "user"}, "no other route, names a group", "route"),
    "it ends before it begins": (
        changed(RULE, generations={"since": 2, "until": 1}),
        "it ends before it begins",
        "generations",
    ),
    "a number that no float holds": (
        changed(RULE, when__value=10**400),
        "with one that no float holds",
        "O03.held_s",
    ),
    "too many alternatives": (
        changed(RULE, when={"all": [{"any": [RULE["when"]] * 4}] * 5}),
        "more than 256 alternatives",
        "when",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refused_with_file_and_line(load, tmp_path, fault):
    rule, message, near = FAULTS[fault]
    good = RULE | {"id": "site-first"}
    with pytest.raises(InputProblem, match=re.escape(message)) as refused:
        load(warning=document(good, rule))
    text = (tmp_path / "warning.json").read_text()
    lines = text.splitlines()
    place = re.match(rf"{re.escape(str(tmp_path))}/warning\.json, line (\d+): ", str(refused.value))
    assert place, refused.value
    line = int(place[1])
    second = text[: text.index('"site-long-runs"')].count("\n") + 1
    assert line >= second - 1
    assert f'"{near}"' in lines[line - 1] or (line == second - 1 and near == "id"), (line, lines[line - 1])


def test_a_rule_out_without_a_bound_is_refused(load):
    rule = changed(VERDICT, id="site-out", route="RULED_OUT")
    with pytest.raises(InputProblem, match=r"line \d+: .*RULED_OUT without a bound that is below the limit"):
        load(rule_out=document(rule, kind="rule-out"))
    either = {"any": [{"feature": "O02.below_limit", "op": "is", "value": True}, VERDICT["when"]]}
    with pytest.raises(InputProblem, match="RULED_OUT without a bound"):
        load(rule_out=document(rule | {"when": either}, kind="rule-out"))


def test_no_verdict_rests_on_verdicts(load):
    rule = changed(VERDICT, when={"feature": "O11.user_reaches", "op": "is", "value": True})
    with pytest.raises(InputProblem, match="worked out from verdicts"):
        load(insufficiency=document(rule, kind="insufficiency"))


def test_rules_that_overlap_need_precedence(load):
    documents = {"insufficiency": document(VERDICT, kind="insufficiency")}
    with pytest.raises(
        InputProblem, match=r"insufficiency.json, line 7: rule 'site-verdict' .* can both be true"
    ):
        load(**documents)
    over = ["bound-below-limit", "bound-reaches-limit"]
    found = load(**documents, precedence=ordering(("site-order", "site-verdict", over)))
    assert [r.id for r in found.rules if r.decides].index("site-verdict") > max(
        [r.id for r in found.rules].index(name) for name in over
    )
    with pytest.raises(InputProblem, match="can both be true"):
        load(**documents, precedence=ordering(("site-order", "site-verdict", over[:1])))


def test_rules_of_other_subjects_generations_or_values_do_not_overlap(load):
    for harmless in (
        changed(VERDICT, when={"feature": "O02.bounded", "op": "is", "value": False}),
        changed(VERDICT, when={"all": [VERDICT["when"], VERDICT["when"] | {"value": False}]}),
        changed(VERDICT, generations={"since": 7, "until": None}),
    ):  # fmt: skip
        load(insufficiency=document(harmless, kind="insufficiency"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("a", "site-verdict", ["nobody"])], "'nobody' is no rule that gives a verdict or names a group"),
        ([("a", "runaway", ["site-verdict"])], "'runaway' is no rule that gives a verdict or names a group"),
        ([("a", "site-verdict", ["no-bound"]), ("b", "no-bound", ["site-verdict"])], "closes a circle"),
        (
            [("a", "site-verdict", ["bound-below-limit"]), ("a", "no-bound", ["site-verdict"])],
            "id 'a' stands in",
        ),
    ],
)
def test_precedence_that_can_not_be_followed_is_refused(load, entries, message):
    with pytest.raises(InputProblem, match=rf"precedence\.json, line \d+: .*{re.escape(message)}"):
        load(insufficiency=document(VERDICT, kind="insufficiency"), precedence=ordering(*entries))


def test_ids_are_unique_over_the_files(load):
    with pytest.raises(
        InputProblem, match=r"warning\.json, line 7: id 'no-bound' stands in schema/rules/insuff"
    ):
        load(warning=document(changed(RULE, id="no-bound")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n  "schema": "slurm-trace/rules/1",\n  "rules": [}\n', "line 3: not valid JSON"),
        ("", "line 1: not valid JSON"),
        ("[" * 100_000, "line 1: not valid JSON"),
        ("7", "line 1: 7 is not of type 'object'"),
        ('{"schema": "slurm-trace/rules/2"}', "line 1: "),
        ('{\n"schema": "slurm-trace/rules/1",\n"decides": "x", "kind": "purpose", "rules": []}', "line 3: kind"),
        ('{"schema": "slurm-trace/rules/1", "kind": "warning", "decides": "x", "rules": [NaN, 7]}', "is not of type"),
    ],
)  # fmt: skip
def test_what_is_no_rule_file_is_refused(load, text, message):
    with pytest.raises(InputProblem, match=re.escape(message)):
        load(warning=text)


def test_conditions_nested_too_deep_are_refused(load, tmp_path):
    when = RULE["when"]
    for _ in range(300):
        when = {"all": [when]}
    with pytest.raises(InputProblem, match=r"warning\.json, line \d+: nested too deep"):
        load(warning=document(changed(RULE, when=when)))


def test_a_file_that_can_not_be_read_is_refused(load, tmp_path):
    (tmp_path / "warning.json").write_bytes(b"\xff{}")
    with pytest.raises(InputProblem, match="not UTF-8 text"):
        load()


def test_a_folder_without_rules_is_refused(tmp_path):
    with pytest.raises(UsageProblem, match="name a folder of rule files"):
        RuleSet.load(folder=tmp_path)


def test_every_feature_of_a_rule_is_of_a_source_it_rests_on():
    rules = RuleSet.load()
    for rule in rules.rules:
        for comparison in comparisons(rule.when):
            assert set(rules.features[comparison.feature].sources) & set(rule.rests_on), rule.id
