"""Ruled out means bound x (1 + margin) < T, to the last operation."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.analysis.verdicts import Question, ceil_ratio, group_verdict, margin_of
from slurm_trace.errors import UsageProblem


@given(st.integers(1, 10**40), st.fractions(0, 3), st.integers(0, 10**40))
def test_ruled_out_is_below_with_the_margin(threshold, margin, bound):
    verdict = group_verdict(bound, Question(threshold, "max_any_op", margin))
    if verdict == "RULED_OUT":
        assert bound * (1 + margin) < threshold
    else:
        assert verdict == "NOT_RULED_OUT"
        assert (bound + 1) * (1 + margin) > threshold - (1 + margin)


def test_the_limit_itself_is_not_below():
    question = Question(105, "max_any_op", Fraction(5, 100))
    assert question.limit_flop == 100
    assert [group_verdict(b, question) for b in (99, 100, None)] == [
        "RULED_OUT",
        "NOT_RULED_OUT",
        "INSUFFICIENT",
    ]


def test_an_estimate_rules_nothing_out():
    question = Question(10**23, "bf16_dense")
    assert [group_verdict(b, question) for b in (0, 10**24, None)] == [
        "INSUFFICIENT",
        "NOT_RULED_OUT",
        "INSUFFICIENT",
    ]


@given(st.integers(0, 10**60), st.integers(1, 10**30))
def test_a_ratio_is_never_rounded_down(numerator, denominator):
    assert Fraction(ceil_ratio(numerator, denominator)) >= Fraction(numerator, denominator)


@pytest.mark.parametrize(("text", "margin"), [("0", 0), ("0.05", Fraction(1, 20)), ("1e3", 1000), ("1.0", 1)])
def test_margins(text, margin):
    assert margin_of(text) == margin


@pytest.mark.parametrize(
    "text", ["", "x", "-0.1", "nan", "sNaN", "inf", "1e400", "1e999999999", "1e-999999999", "1001"]
)
def test_no_margins(text):
    with pytest.raises(UsageProblem, match="fraction"):
        margin_of(text)


def test_a_ratio_beyond_any_float_is_not_told():
    assert Question(1, "max_any_op").ratio(10**400) is None
