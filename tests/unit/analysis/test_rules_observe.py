"""What is observed of runs and groups, and that the rules come to what the verdicts were before there were any."""

import json
import tempfile
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.feed import AccountLine, Bound, Peculiar
from slurm_trace.analysis.ladder import RUNGS
from slurm_trace.analysis.rules.bounds import STATUSES, observe_bounds, observe_group_bounds
from slurm_trace.analysis.rules.compare import Comparison
from slurm_trace.analysis.rules.evaluate import evaluate
from slurm_trace.analysis.rules.observe import observe_accounts, observe_groups, observe_runs, observe_samples
from slurm_trace.analysis.rules.ruleset import RuleSet, generations
from slurm_trace.analysis.verdicts import VERDICTS, Question, group_verdict, verdicts
from slurm_trace.store.summaries import COLUMNS
from tests.property.test_bound_covers_truth import FAULTS, jobs
from tests.support.rule_files import VERDICT, document, ordering
from tests.support.world import T0, Job, judge, sacct_text

DAY = 86400
RECORDED = Path(str(files("slurm_trace.examples").joinpath("recorded")))


def row(number, days=1.0, *, gpus=8, user="u1", state="COMPLETED", start=T0, **changes):
    run_s = int(days * DAY)
    return Job(
        number=number, submit=start - 60, start=start, end=start + run_s, stopped_s=run_s, suspended_s=0, state=state,
        nodes=1, gpus=gpus, gpu_type="h100", cpus=64, flop=0, user=user,
    ).row(**changes)  # fmt: skip


def plain_verdict(envelope, question, i, *, strict):
    """The verdict logic in three lines, without rules."""
    bound = envelope.strict_flop(i) if strict else envelope.bound_flop(i)
    if bound is None:
        return "INSUFFICIENT"
    if bound * (1 + question.margin) >= question.threshold_flop and bound >= question.limit_flop:
        return "NOT_RULED_OUT"
    return "INSUFFICIENT" if question.estimate else "RULED_OUT"


def check_runs(envelope, question):
    for generation in generations():
        rules = RuleSet.load(generation.generation)
        for strict in (False, True):
            found = verdicts(envelope, question, strict=strict, rules=rules)
            rows = np.flatnonzero(envelope.started)  # the others are never asked about
            assert [VERDICTS[v] for v in found[rows]] == [
                plain_verdict(envelope, question, i, strict=strict) for i in rows.tolist()
            ]


@pytest.mark.parametrize("threshold", ["1e18", "1e22", "eu-gpai", "1e27"])
@pytest.mark.parametrize("basis", ["max_any_op", "bf16_dense"])
def test_every_generation_gives_the_verdicts_of_the_recorded_clusters(tmp_path, threshold, basis):
    for folder in sorted(p for p in RECORDED.iterdir() if (p / "sacct.txt").exists()):
        place = tmp_path / folder.name
        place.mkdir()
        _, found = judge(place, (folder / "sacct.txt").read_bytes(), threshold)
        assert len(found.envelope) > 10
        check_runs(found.envelope, Question(found.threshold.flop, basis, found.question.margin))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
def test_every_generation_gives_the_verdicts_of_any_records(data):
    rows = []
    for number in range(1, data.draw(st.integers(1, 6)) + 1):
        job = data.draw(jobs(number))
        fault = FAULTS[data.draw(st.sampled_from([n for n, f in FAULTS.items() if f is not None]))]
        rows.append(job.row() | fault(job.row(), job))
    threshold = data.draw(st.sampled_from(["1e16", "1e20", "1e22", "1e23", "1e25"]))
    with tempfile.TemporaryDirectory() as folder:
        _, found = judge(Path(folder), sacct_text(rows), threshold)
    margin = data.draw(st.fractions(0, 2))
    check_runs(found.envelope, Question(found.threshold.flop, "max_any_op", margin))


@given(
    st.one_of(st.none(), st.integers(0, 200)),
    st.integers(0, 3),
    st.sampled_from(["proven", "declared", "assumed"]),
    st.booleans(),
    st.sampled_from(["max_any_op", "bf16_dense"]),
)
def test_every_generation_gives_the_verdicts_of_groups(bound, blockers, complete, strict, basis):
    question = Question(105, basis, Fraction(5, 100))
    alone = "INSUFFICIENT" if bound is None else "NOT_RULED_OUT" if bound >= 100 else "RULED_OUT"
    if alone == "RULED_OUT" and basis == "bf16_dense":
        alone = "INSUFFICIENT"
    if strict:
        expected = "INSUFFICIENT" if blockers or complete != "proven" else alone
    else:
        expected = "INSUFFICIENT" if blockers and alone == "NOT_RULED_OUT" else alone
    for generation in generations():
        rules = RuleSet.load(generation.generation)
        found = group_verdict(
            bound, question, open_reasons=blockers, complete=complete, strict=strict, rules=rules
        )
        assert found == expected
        columns = observe_group_bounds([bound], [blockers], [complete], question, strict=strict)
        assert evaluate(rules, columns, "group").verdict_of(0) == expected


@pytest.fixture
def found(tmp_path):
    rows = [
        row(1),
        row(2, 30, AllocTRES=""),
        row(3, State="RUNNING", End="Unknown", Timelimit="01:00:00"),
        row(4, 0.001, AllocTRES=""),
        row(5, 2, AllocTRES="", NNodes="", NodeList=""),
        row(6, 9, NNodes="3"),
        row(7, 40, user="u2"),
    ]
    return judge(tmp_path, sacct_text(rows), routes=True)[1]


def rules_of(found, columns, number):
    decided = evaluate(RuleSet.load(), columns)
    at = found.envelope.runs["job_id_raw"].tolist().index(number)
    return set(decided.rule_ids(at))


def test_what_accounting_tells(found):
    columns = observe_runs(found.envelope, found.question, {"c": "assumed"})
    assert "runaway" in rules_of(found, columns, 3)
    assert "count-unknown" in rules_of(found, columns, 2)
    assert "count-unknown" not in rules_of(found, columns, 4) | rules_of(found, columns, 1)
    assert {"no-bound", "unbounded-for-long"} <= rules_of(found, columns, 5)
    assert "record-contradicts-itself" in rules_of(found, columns, 6)
    assert rules_of(found, columns, 1) == {"bound-below-limit"}
    assert all(len(column) == len(found.envelope) for column in columns.values())


def test_features_are_those_of_the_registry_and_none_is_never_given(found):
    features = RuleSet.load().features
    summaries = pd.DataFrame(columns=list(COLUMNS[1:]), dtype=np.float64)
    of_runs = found.observed() | observe_samples(found.envelope, summaries, found.rates)
    assert of_runs.keys() == {f.id for f in features.values() if "run" in f.subjects}
    of_groups = observe_groups(found.groups("user"), found.question, found.records)
    nothing = Bound(1, 1, None, None, None, None, "INSUFFICIENT", "INSUFFICIENT", ("open",))
    line = AccountLine("p", "a", nothing, Peculiar(0, 0, 0, 0), {}, (), ())
    of_accounts = observe_accounts([line], found.question, "assumed")
    assert of_groups.keys() | of_accounts.keys() == {f.id for f in features.values() if "group" in f.subjects}


def test_what_a_run_is_part_of(tmp_path):
    rows = [
        *(row(n, 4, start=T0 + n * 4 * DAY, JobName="train") for n in range(1, 14)),
        row(20, user="u2", Account="a1", JobName="other", NNodes="1"),
        row(21, user="u3", Account="a3"),
        row(22, 300, user="u4", Account="a4"),
        row(23, user="", Account=""),
    ]
    _, found = judge(tmp_path, sacct_text(rows), routes=True)
    raw = found.envelope.runs["job_id_raw"].tolist()
    everything = found.observed()
    decided = found.decisions()
    routes = {number: decided.routes(i) for i, number in enumerate(raw)}
    for number in range(1, 14):
        assert routes[number][1:] == ["ATTRIBUTE(lineage)", "WARN"]
    assert routes[20] == ["RULED_OUT", "ATTRIBUTE(account)"]
    assert routes[21] == ["RULED_OUT"]
    assert routes[22] == ["NOT_RULED_OUT"]  # by itself: there is nothing to attribute
    assert everything["O11.user_jobs"][raw.index(1)] == 13
    assert np.isnan(everything["O11.user_jobs"][raw.index(23)])
    for i in range(len(raw)):  # asked of one run, the answer is the same
        alone = found.observed([i])
        assert all(np.array_equal(alone[name][i], everything[name][i], equal_nan=True) for name in everything)


def test_codes_of_words_are_those_of_the_analysis(found):
    features = RuleSet.load().features
    assert features["O19.rung"].values == RUNGS
    assert {features[f"{name}.status"].values for name in ("O06", "O07", "O08")} == {STATUSES}
    assert features["O05.complete"].values == STATUSES
    assert set(features["O11.verdict"].values) == set(VERDICTS)


def test_flags_of_leases_are_null_without_leases(found):
    envelope = found.envelope
    assert set(observe_runs(envelope, found.question)["O12.other_user"].tolist()) == {-1}
    runs = envelope.runs
    runs["flags"] = ["lease_uid", "lease_gpus_more lease_lost", "lease_parts", *[""] * 4]
    runs.loc[3, "lease_end"] = T0
    columns = observe_runs(envelope, found.question)
    assert columns["O12.other_user"].tolist() == [1, 0, 0, 0, -1, -1, -1]
    assert columns["O12.more_than_recorded"].tolist() == [0, 1, 0, 0, -1, -1, -1]
    assert columns["O12.ends_apart"].tolist() == [0, 1, 0, 0, -1, -1, -1]
    assert columns["O12.incomplete"].tolist() == [0, 0, 1, 0, -1, -1, -1]


def test_what_samples_tell(found):
    envelope = found.envelope
    ids = envelope.runs["run_id"].tolist()
    held_s = int(envelope.release.held_s[0])
    line = dict.fromkeys(COLUMNS[1:], np.nan) | {
        "gpus": 8, "covered_ms": 4000.0 * held_s, "utilization_ms": 2000.0, "utilization_pct_ms": 1000.0,
        "sm_clock_top_mhz": 2000.0, "sm_clock_max_mhz": 1980.0, "energy_resets": 1.0, "energy_mj": 5e12,
    }  # fmt: skip
    summaries = pd.DataFrame([line], index=ids[:1])
    columns = observe_samples(envelope, summaries, found.rates)
    assert columns["O13.share"][0] == 0.5
    assert columns["O14.mean_percent"][0] == 0.5
    assert columns["O17.energy_j"][0] == 5e9
    assert np.isnan(columns["O16.top_mw"][0])
    assert all(np.isnan(column[1:]).all() for column in columns.values())
    assert rules_of(found, columns, 1) >= {
        "samples-sparse",
        "clock-above-maximum",
        "energy-counter-went-back",
    }
    assert rules_of(found, columns, 2) == set()


def test_samples_change_no_verdict(found):
    columns = observe_runs(found.envelope, found.question)
    rng = np.random.default_rng(3)
    size = len(found.envelope)
    samples = ("O13", "O14", "O15", "O16", "O17", "O18", "O21")
    seen = {name: rng.random(size) * 200 for name in RuleSet.load().features if name.startswith(samples)}
    alone = evaluate(RuleSet.load(), observe_bounds(found.envelope, found.question))
    assert (evaluate(RuleSet.load(), columns | seen).verdict == alone.verdict).all()


def test_groups_are_warned_of(tmp_path):
    rows = [row(n, 4, start=T0 + n * 4 * DAY) for n in range(1, 13)] + [
        row(99, Start="yesterday", Submit="x", State="")
    ]
    _, found = judge(tmp_path, sacct_text(rows))
    groups = found.groups("all")
    decided = evaluate(RuleSet.load(), observe_groups(groups, found.question, found.records), "group")
    assert decided.verdict_of(0) == groups[0].verdict == "INSUFFICIENT"
    assert {"group-records-open", "rows-rejected"} <= set(decided.rule_ids(0))


def test_a_comparison_names_what_changed_and_by_which_rules(found):
    columns = observe_runs(found.envelope, found.question)
    before, after = (evaluate(RuleSet.load(g), columns) for g in (1, 2))
    compared = Comparison(before, after)
    assert not compared.verdict_changed.any()
    raw = found.envelope.runs["job_id_raw"].tolist()
    changes = {raw[c.position]: c for c in compared.changes(compared.changed)}
    assert changes.keys() == {2, 3, 5, 6}
    assert changes[3].routes_before == (changes[3].verdict_before,)
    assert changes[3].rules_before == ()
    assert "runaway" in changes[3].rules_after
    assert compared.by_rule()["runaway"] == 1
    assert compared.tallies()[0] == compared.tallies()[1]
    back = Comparison(after, before)
    assert {raw[c.position] for c in back.changes(back.changed)} == {2, 3, 5, 6}
    assert back.by_rule()["runaway"] == -1
    assert len(Comparison(after, after).changed) == 0


def test_a_changed_verdict_is_traced_to_the_rule(found, tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    long = {"feature": "O03.held_s", "op": "ge", "value": 86400 * 20, "unit": "s"}
    (folder / "insufficiency.json").write_text(
        json.dumps(
            document(
                VERDICT | {"when": long, "generations": {"since": 2, "until": None}}, kind="insufficiency"
            )
        )
    )
    over = ["bound-below-limit", "bound-reaches-limit"]
    (folder / "precedence.json").write_text(json.dumps(ordering(("site-order", "site-verdict", over))))
    columns = observe_runs(found.envelope, found.question)
    compared = Comparison(*(evaluate(RuleSet.load(g, folder), columns) for g in (1, 2)))
    raw = found.envelope.runs["job_id_raw"].tolist()
    (first, second, *_) = compared.changes(compared.changed)
    assert {raw[first.position], raw[second.position]} == {2, 7}
    for change in (first, second):
        assert change.verdict_after == "INSUFFICIENT" != change.verdict_before
        assert "site-verdict" in change.rules_after
        assert set(change.rules_before) & set(over)
