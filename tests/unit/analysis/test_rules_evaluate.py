"""Each rule fires where its reason says so and nowhere else; what is missing fires none."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.rules import ruleset
from slurm_trace.analysis.rules.evaluate import evaluate
from slurm_trace.analysis.rules.overlap import can_both_fire
from slurm_trace.analysis.rules.rule import Comparison, Condition, alternatives, comparisons
from slurm_trace.analysis.rules.ruleset import RuleSet

BELOW = {"O02.bounded": True, "O02.below_limit": True, "O02.estimate": False, "O02.reading": "default"}
REACHES = BELOW | {"O02.below_limit": False}
OPEN = {"O05.open_reasons": 1, "O05.complete": "assumed"}
WHOLE = {"O05.open_reasons": 0, "O05.complete": "proven"}
STRICT = {"O02.reading": "strict"}

# Rule: subject, a case in which it fires, changes of that case with each of which it does not.
CASES = {
    "bound-below-limit": ("run", BELOW, [{"O02.below_limit": False}, {"O02.estimate": True}, {"O02.bounded": False}]),
    "group-bound-below-limit": (
        "group", BELOW, [{"O02.below_limit": False}, {"O02.estimate": True}, {"O02.bounded": False}, STRICT],
    ),
    "strict-group-bound-below-limit": (
        "group", BELOW | WHOLE | STRICT,
        [{"O02.below_limit": False}, {"O05.open_reasons": 1}, {"O05.complete": "declared"}, {"O02.estimate": True}],
    ),
    "bound-reaches-limit": ("run", REACHES, [{"O02.below_limit": True}, {"O02.bounded": False}]),
    "no-bound": ("group", {"O02.bounded": False}, [{"O02.bounded": True}]),
    "estimate-below-limit": (
        "run", BELOW | {"O02.estimate": True}, [{"O02.estimate": False}, {"O02.below_limit": False}],
    ),
    "group-records-open": (
        "group", REACHES | OPEN, [{"O05.open_reasons": 0}, {"O02.below_limit": True}, {"O02.reading": "strict"}],
    ),
    "strict-group-needs-proven-records": (
        "group", BELOW | WHOLE | STRICT | {"O05.complete": "declared"},
        [{"O05.complete": "proven"}, {"O02.reading": "default"}],
    ),
    "cleared-with-records-open": ("group", BELOW | OPEN, [{"O05.open_reasons": 0}, {"O02.below_limit": False}]),
    "rows-rejected": ("group", {"O05.rejected_rows": 1}, [{"O05.rejected_rows": 0}]),
    "records-have-gaps": ("group", {"O05.gaps": 1}, [{"O05.gaps": 0}]),
    "samples-sparse": ("run", {"O13.share": 0.89}, [{"O13.share": 0.9}]),
    "leases-incomplete": ("run", {"O12.incomplete": True}, [{"O12.incomplete": False}]),
    "large-part-of-threshold": (
        "run", {"O02.ratio": 0.1, "O11.user_jobs": 2}, [{"O02.ratio": 0.099}, {"O02.ratio": 1.0}, {"O11.user_jobs": 1}],
    ),
    "group-large-part-of-threshold": ("group", {"O02.ratio": 0.5}, [{"O02.ratio": 0.49}, {"O02.ratio": 1.0}]),
    "few-runs-reach-threshold": ("group", {"O10.fewest_jobs": 10}, [{"O10.fewest_jobs": 11}]),
    "runaway": ("run", {"O04.runaway": True}, [{"O04.runaway": False}]),
    "count-unknown": (
        "run", {"O01.count_known": False, "O03.held_s": 3600}, [{"O01.count_known": True}, {"O03.held_s": 3599}],
    ),
    "unbounded-for-long": (
        "run", {"O02.bounded": False, "O03.held_known": True, "O03.run_s": 86400},
        [{"O02.bounded": True}, {"O03.run_s": 86399}],
    ),
    **{
        f"with-its-{by}": (
            "run", {"O11.verdict": "RULED_OUT", f"O11.{by}_reaches": True},
            [{"O11.verdict": "NOT_RULED_OUT"}, {f"O11.{by}_reaches": False}],
        )
        for by in ("family", "lineage", "user", "account")
    },
    "leases-held-more": ("run", {"O12.more_than_recorded": True}, [{"O12.more_than_recorded": False}]),
    "lease-of-another-user": ("run", {"O12.other_user": True}, [{"O12.other_user": False}]),
    "lease-ends-apart": ("run", {"O12.ends_apart": True}, [{"O12.ends_apart": False}]),
    "record-contradicts-itself": ("run", {"O09.contradicts_itself": True}, [{"O09.contradicts_itself": False}]),
    "clock-above-maximum": ("run", {"O15.top_over_max": 1.01}, [{"O15.top_over_max": 1.0}]),
    "energy-beyond-allocation": ("run", {"O17.over_allocation": 1.01}, [{"O17.over_allocation": 1.0}]),
    "bound-rests-on-counters": ("run", {"O19.rung": "busy"}, [{"O19.rung": "allocation"}]),
    "energy-counter-went-back": ("run", {"O17.resets": 1}, [{"O17.resets": 0}]),
    **{
        name: ("group", {f"O20.{feature}": 1}, [{f"O20.{feature}": 0}])
        for name, feature in (
            ("hours-beyond-period", "beyond_period"), ("charges-without-hours", "unmetered"),
            ("skus-not-listed", "unlisted"),
        )
    },
    "busy-without-a-process": (
        "run", {"O21.most": 0, "O14.mean_percent": 10}, [{"O21.most": 1}, {"O14.mean_percent": 9.9}],
    ),
    "use-between-leases": (
        "group", {"O22.of_threshold": 0.01, "O22.of_bound": 0.1}, [{"O22.of_threshold": 0.0099, "O22.of_bound": 0.099}],
    ),
    "looks-idle": ("run", {"O13.share": 0.95, "O14.mean_percent": 1}, [{"O13.share": 0.94}, {"O14.mean_percent": 1.1}]),
    "looks-busy": ("run", {"O13.share": 1, "O14.mean_percent": 50}, [{"O13.share": 0.5}, {"O14.mean_percent": 49.9}]),
}  # fmt: skip


def columns(case):
    def array(value):
        return np.array([value], dtype=object) if isinstance(value, str) else np.array([value])

    return {name: array(value) for name, value in case.items()}


def decide(case, subject="run", rules=None):
    return evaluate(rules or RuleSet.load(), columns(case), subject)


def test_every_rule_has_its_case():
    assert CASES.keys() == {rule.id for rule in RuleSet.load().rules}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_fires_where_it_says_and_nowhere_else(name):
    subject, case, changes = CASES[name]
    assert name in decide(case, subject).rule_ids(0)
    for change in changes:
        assert name not in decide(case | change, subject).rule_ids(0), change


@pytest.mark.parametrize("name", CASES)
def test_without_any_rule_some_case_comes_out_otherwise(name, monkeypatch):
    """Every rule is needed: the corpus of cases notices when one is gone."""
    whole = RuleSet.load()
    rest = ruleset.RuleSet(
        **{
            f: getattr(whole, f)
            for f in ("generation", "precedence", "default", "default_reason", "digest", "features")
        },
        rules=tuple(r for r in whole.rules if r.id != name),
    )

    def outcome(rules):
        return [
            (d.verdict_of(0), d.entries(0))
            for subject, case, changes in CASES.values()
            for d in (decide(case | change, subject, rules) for change in ({}, *changes))
        ]

    assert outcome(whole) != outcome(rest)


@pytest.mark.parametrize("name", CASES)
def test_a_missing_value_never_makes_a_rule_fire(name):
    subject, case, _ = CASES[name]
    rules = RuleSet.load()
    rule = next(r for r in rules.rules if r.id == name)
    for chosen in alternatives(rule.when):
        used = {c.feature for c in chosen}
        if not used <= case.keys():
            continue
        for feature in used:
            null = -1 if rules.features[feature].kind != "number" else math.nan
            for left in (
                columns({k: v for k, v in case.items() if k != feature}) | {"O03.recorded_s": np.array([0])}
                if subject == "run"
                else columns({k: v for k, v in case.items() if k != feature}) | {"O10.users": np.array([0])},
                columns(case) | {feature: np.array([null], dtype=np.int8 if null == -1 else np.float64)},
            ):
                fired = evaluate(rules, left, subject).rule_ids(0)
                others = [a for a in alternatives(rule.when) if feature not in {c.feature for c in a}]
                assert name not in fired or others, (name, feature)


FEATURES = {f.id: f for f in RuleSet.load().features.values()}


def values_of(feature):
    match feature.kind:
        case "bool":
            return st.sampled_from([0, 1, -1])
        case "enum":
            return st.integers(-1, len(feature.values) - 1)
        case _:
            return st.one_of(
                st.just(math.nan), st.floats(0, 1e6), st.sampled_from([0.0, 0.1, 1.0, 2.0, 3600.0])
            )


@st.composite
def subjects(draw, subject):
    return {
        f.id: np.array([draw(values_of(f))], dtype=np.float64 if f.kind == "number" else np.int8)
        for f in FEATURES.values()
        if subject in f.subjects and draw(st.booleans())
    } or {"O02.bounded": np.array([-1], dtype=np.int8)}


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(["run", "group"]))
def test_nothing_is_ruled_out_without_a_bound_below_the_limit(data, subject):
    case = data.draw(subjects(subject))
    decided = evaluate(RuleSet.load(), case, subject)
    if decided.verdict_of(0) == "RULED_OUT":
        assert case["O02.below_limit"][0] == 1
        assert case["O02.bounded"][0] == 1
        assert case["O02.estimate"][0] == 0
    # Taking any value away never rules out what was not.
    else:
        for name in case:
            rest = {k: v for k, v in case.items() if k != name} or {
                "O02.bounded": np.array([-1], dtype=np.int8)
            }
            assert (
                evaluate(RuleSet.load(), rest, subject).verdict_of(0) != "RULED_OUT"
                or name == "O05.open_reasons"
            )


def test_where_no_rule_gives_a_verdict_it_is_the_default():
    decided = decide({"O04.runaway": True})
    assert decided.verdict_of(0) == "INSUFFICIENT"
    assert decided.entries(0)[0] == {"route": "INSUFFICIENT", "group": None, "rule": None}
    assert decided.routes(0) == ["INSUFFICIENT", "WARN"]


def test_precedence_decides_and_both_rules_are_named():
    decided = decide(REACHES | OPEN, "group")
    assert decided.verdict_of(0) == "INSUFFICIENT"
    assert {"bound-reaches-limit", "group-records-open"} <= set(decided.rule_ids(0))
    assert decided.entries(0) == [{"route": "INSUFFICIENT", "group": None, "rule": "group-records-open"}]


def test_routes_beside_the_verdict():
    decided = decide(BELOW | {"O11.verdict": "RULED_OUT", "O11.user_reaches": True, "O04.runaway": True} | {
        "O13.share": 1.0, "O14.mean_percent": 0.0})  # fmt: skip
    assert decided.routes(0) == ["RULED_OUT", "ATTRIBUTE(user)", "WARN"]
    assert {"route": None, "group": None, "rule": "looks-idle"} in decided.entries(0)
    assert {"route": "ATTRIBUTE", "group": "user", "rule": "with-its-user"} in decided.entries(0)


def test_of_several_groups_the_narrowest_is_named():
    reaches = {f"O11.{by}_reaches": True for by in ("account", "user", "lineage", "family")}
    for by, narrower in (("family", "lineage"), ("lineage", "user"), ("user", "account")):
        decided = decide(BELOW | {"O11.verdict": "RULED_OUT"} | reaches)
        assert decided.routes(0) == ["RULED_OUT", f"ATTRIBUTE({by})"]
        assert {f"with-its-{by}", f"with-its-{narrower}"} <= set(decided.rule_ids(0))
        assert decided.behind(f"with-its-{by}")[0]
        assert not decided.behind(f"with-its-{narrower}")[0]
        del reaches[f"O11.{by}_reaches"]


def test_a_column_of_no_feature_is_an_error():
    with pytest.raises(KeyError, match=r"O99\.x"):
        evaluate(RuleSet.load(), {"O99.x": np.array([1])})


def test_operators_on_words_and_lists():
    rules = RuleSet.load()
    words = Comparison("O05.complete", "in", ("declared", "proven"))
    other = Comparison("O05.complete", "is_not", "proven")
    case = {"O05.complete": np.array(["proven", "declared", "assumed", None], dtype=object)}

    def true(when):
        rule = [r for r in rules.rules if r.id == "rows-rejected"][0]  # noqa: RUF015
        from dataclasses import replace

        one = ruleset.RuleSet(
            **{f: getattr(rules, f) for f in ("generation", "precedence", "default", "default_reason", "digest")},
            features=rules.features, rules=(replace(rule, when=when),),
        )  # fmt: skip
        return evaluate(one, case, "group").fired[0].tolist()

    assert true(words) == [True, True, False, False]
    assert true(other) == [False, True, True, False]
    assert true(Condition("all", (words, other))) == [False, True, False, False]
    assert true(Condition("any", (words, other))) == [True, True, True, False]


OPS = ("lt", "le", "gt", "ge", "is", "is_not")


@given(
    st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 3)), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 3)), min_size=1, max_size=3),
)
def test_overlap_is_seen_wherever_some_value_makes_both_true(one, other):
    def condition(parts):
        return Condition("all", tuple(Comparison("O02.ratio", op, v, "1") for op, v in parts))

    def holds(parts, x):
        tests = {
            "lt": x.__lt__,
            "le": x.__le__,
            "gt": x.__gt__,
            "ge": x.__ge__,
            "is": x.__eq__,
            "is_not": x.__ne__,
        }
        return all(tests[op](float(v)) for op, v in parts)

    some = any(holds(one, x) and holds(other, x) for x in [n / 4 for n in range(-4, 17)])
    assert can_both_fire(condition(one), condition(other), FEATURES) == some


def test_overlap_through_alternatives():
    bounded = [Comparison("O02.bounded", "is", v) for v in (True, False)]
    either = Condition("any", tuple(bounded))
    assert not can_both_fire(bounded[0], bounded[1], FEATURES)
    assert can_both_fire(either, bounded[1], FEATURES)
    assert can_both_fire(bounded[0], Comparison("O04.runaway", "is", True), FEATURES)


def test_conditions_read_as_words():
    texts = {rule.id: str(rule.when) for rule in RuleSet.load().rules}
    assert texts["samples-sparse"] == "O13.share < 0.9"
    assert texts["rows-rejected"] == "O05.rejected_rows >= 1 count"
    assert texts["group-records-open"].endswith("(O02.bounded is False or O02.below_limit is False)")
    assert all(list(itertools.islice(comparisons(r.when), 1)) for r in RuleSet.load().rules)
