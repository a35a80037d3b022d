"""Laws of the weights, whatever the registry and the readings."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.evidence.channels import BAN, WHOLE, load, read
from slurm_trace.analysis.evidence.features import FEATURES
from slurm_trace.analysis.evidence.finding import check
from slurm_trace.analysis.evidence.recompute import recompute
from slurm_trace.analysis.evidence.weights import centibans, weigh, weigh_all
from slurm_trace.errors import CheckFailed

BUILT_IN = load(FEATURES)
PURPOSES = tuple(BUILT_IN.purposes)
PAIRS = [(a, b) for a in PURPOSES for b in PURPOSES if a != b]
GROUPS = tuple(BUILT_IN.groups)
LIMIT = st.integers(1, BAN - 1)


@st.composite
def shares(draw: Any, states: int) -> list[int]:
    """Parts of a thousand, none of them 0."""
    cuts = sorted(draw(st.sets(st.integers(1, WHOLE - 1), min_size=states - 1, max_size=states - 1)))
    return [high - low for low, high in zip([0, *cuts], [*cuts, WHOLE], strict=True)]


@st.composite
def documents(draw: Any) -> dict[str, Any]:
    """A registry of other channels, shares, caps and limits."""
    document = copy.deepcopy(dict(BUILT_IN.document))
    document["limits"] |= {
        "staged_against": draw(st.sampled_from(PURPOSES)),
        "staged_cap_centibans": draw(LIMIT),
        "separates_centibans": draw(LIMIT),
    }
    for group in document["groups"]:
        group |= {"cap_centibans": draw(LIMIT), "staged": draw(st.booleans())}
    channels = []
    for number in range(draw(st.integers(1, 8))):
        count = draw(st.integers(2, 5))
        edges = sorted(draw(st.sets(st.integers(-50, 50), min_size=count - 1, max_size=count - 1)))
        columns = [draw(shares(count)) for _ in PURPOSES]
        channels.append(
            document["channels"][0]
            | {
                "id": f"c{number}",
                "group": draw(st.sampled_from(GROUPS)),
                "cap_centibans": draw(LIMIT),
                "states": [
                    {"words": str(i), "shares": dict(zip(PURPOSES, column, strict=True))}
                    | ({"below": edges[i]} if i < count - 1 else {})
                    for i, column in enumerate(zip(*columns, strict=True))
                ],
            }
        )
    return document | {"channels": channels}


VALUES = st.none() | st.integers(-60, 60) | st.floats(-60, 60).map(lambda x: round(x, 3))


@st.composite
def cases(draw: Any) -> tuple[Any, dict[str, float | None]]:
    """A registry and readings of its channels."""
    registry = read(draw(documents()), "drawn", FEATURES)
    return registry, {channel.id: draw(VALUES) for channel in registry.channels}


BUILT_IN_READINGS = st.fixed_dictionaries(
    {c.id: st.none() | st.floats(-10, 2000).map(lambda x: round(x, 3)) for c in BUILT_IN.channels}
)
EITHER = cases() | BUILT_IN_READINGS.map(lambda readings: (BUILT_IN, readings))


@given(EITHER)
def test_the_sum_is_what_the_second_computation_finds(case):
    registry, readings = case
    sums = weigh_all(registry, readings)
    assert recompute(registry.document, readings) == {pair: found.total for pair, found in sums.items()}
    check(registry, readings, sums)


@given(EITHER, st.sampled_from(PAIRS))
def test_caps_hold(case, pair):
    registry, readings = case
    found = weigh(registry, readings, pair)
    caps = {channel.id: channel.cap_centibans for channel in registry.channels}
    assert all(abs(weight) <= caps[name] for name, weight in found.channels.items())
    assert all(abs(w) <= registry.groups[name].cap_centibans for name, w in found.groups.items())
    firm = sum(w for name, w in found.groups.items() if not registry.groups[name].staged)
    if pair[1] == registry.limits.staged_against:
        assert found.total - firm <= registry.limits.staged_cap_centibans


@given(BUILT_IN_READINGS, st.sampled_from([p for p in PURPOSES if p != "training"]))
def test_whatever_is_staged_weighs_at_most_weakly_against_training(readings, purpose):
    staged = {name for name, group in BUILT_IN.groups.items() if group.staged}
    shown = {c.id: readings[c.id] for c in BUILT_IN.channels if c.group in staged}
    found = weigh(BUILT_IN, shown, (purpose, "training"))
    assert BUILT_IN.grade(found.total).id in ("none", "weak")


@given(EITHER, st.sampled_from(PAIRS))
def test_one_channel_never_moves_the_sum_by_more_than_its_group_may(case, pair):
    registry, readings = case
    total = weigh(registry, readings, pair).total
    for channel in registry.channels:
        without = weigh(registry, {**readings, channel.id: None}, pair).total
        assert abs(total - without) <= min(
            channel.cap_centibans, 2 * registry.groups[channel.group].cap_centibans
        )


@given(EITHER, st.sampled_from(PAIRS))
def test_what_is_missing_weighs_nothing(case, pair):
    """A channel without a reading, one that is not mentioned, and one that is not in the registry: all the same."""
    registry, readings = case
    found = weigh(registry, readings, pair)
    known = {name: value for name, value in readings.items() if value is not None}
    assert weigh(registry, known, pair) == found
    smaller = copy.deepcopy(dict(registry.document))
    smaller["channels"] = [c for c in smaller["channels"] if c["id"] in known]
    if known:
        assert weigh(read(smaller, "smaller", FEATURES), known, pair) == found
    assert weigh(registry, {}, pair).total == 0
    assert set(found.channels) == set(known)


@given(EITHER, st.sampled_from(PAIRS), st.randoms())
def test_the_order_of_channels_and_groups_does_not_matter(case, pair, random):
    registry, readings = case
    shuffled = copy.deepcopy(dict(registry.document))
    random.shuffle(shuffled["channels"])
    random.shuffle(shuffled["groups"])
    again = read(shuffled, "shuffled", FEATURES)
    mixed = list(readings.items())
    random.shuffle(mixed)
    assert weigh(again, dict(mixed), pair) == weigh(registry, readings, pair)
    assert recompute(shuffled, dict(mixed))[pair] == weigh(registry, readings, pair).total


@given(EITHER, st.sampled_from(PAIRS))
def test_the_other_way_round_is_the_negative(case, pair):
    registry, readings = case
    there, back = weigh(registry, readings, pair), weigh(registry, readings, pair[::-1])
    assert back.total == -there.total
    assert back.channels == {name: -weight for name, weight in there.channels.items()}


@settings(max_examples=500)
@given(st.integers(1, WHOLE), st.integers(1, WHOLE))
def test_centibans_are_the_nearest_whole_number(one, other):
    found = centibans(one, other)
    ratio = Fraction(one, other) ** 200
    assert Fraction(10) ** (2 * found - 1) < ratio < Fraction(10) ** (2 * found + 1)


def test_a_difference_of_one_centiban_stops_everything():
    readings = {"accelerators": 8.0, "duration": 50.0}
    sums = weigh_all(BUILT_IN, readings)
    check(BUILT_IN, readings, sums)
    forged = copy.deepcopy(dict(BUILT_IN.document))
    forged["groups"][0]["cap_centibans"] = 1
    other = weigh_all(read(forged, "forged", FEATURES), readings)
    with pytest.raises(CheckFailed, match="differ"):
        check(BUILT_IN, readings, other)
