"""Paired identifiability: two purposes matched on one channel, and what still tells them apart."""

from __future__ import annotations

from itertools import permutations

import pytest

from slurm_trace.analysis.evidence.channels import load
from slurm_trace.analysis.evidence.features import FEATURES
from slurm_trace.analysis.evidence.identify import (
    expected_centibans,
    identifiability,
    matched_on,
    separating,
)
from slurm_trace.analysis.evidence.weights import centibans, clamp, weigh_all

REGISTRY = load(FEATURES)
BY_ID = {channel.id: channel for channel in REGISTRY.channels}


def told(pair, **readings):
    return identifiability(REGISTRY, weigh_all(REGISTRY, readings), pair)


@pytest.mark.parametrize("pair", REGISTRY.pairs)
def test_the_matrix_of_a_pair(pair):
    """Every channel and range: matched there or not, and if so what is left to separate the two."""
    matrix = matched_on(REGISTRY, pair)
    assert set(matrix) == set(BY_ID)
    able = {channel.id for channel in separating(REGISTRY, pair)}
    for name, ranges in matrix.items():
        for state in BY_ID[name].states:
            one, other = (state.shares[purpose] for purpose in pair)
            weight = clamp(centibans(one, other), BY_ID[name].cap_centibans)
            assert (state.words in ranges) == (abs(weight) < REGISTRY.limits.separates_centibans)
        for others in ranges.values():
            assert set(others) == able - {name}
    assert able, "no two purposes are beyond telling apart altogether"


@pytest.mark.parametrize("pair", REGISTRY.pairs)
@pytest.mark.parametrize("name", BY_ID)
def test_matched_on_the_only_reading(pair, name):
    """A run of which nothing else is known: identifiable only if this one reading does it."""
    channel = BY_ID[name]
    for place, state in enumerate(channel.states):
        low = channel.states[place - 1].below if place else (state.below or 0) - 1
        found = told(pair, **{name: low})
        assert sorted((*found.matched, *found.separated_by)) == [name]
        assert found.contradicted_by == ()
        assert found.identifiable == (found.total >= REGISTRY.grades[1].from_centibans)
        assert name not in found.would_separate
        if name in found.matched:
            assert not found.identifiable
            assert set(found.would_separate) == {c.id for c in separating(REGISTRY, pair)} - {name}


def test_matched_on_one_and_told_apart_by_another():
    found = told(("inference", "non_ml"), processes=1, tensor_share=20)
    assert found.matched == ("processes",)
    assert found.separated_by == ("tensor_share",)
    assert found.identifiable


def test_nothing_else_separates():
    found = told(("training", "inference"), utilisation_level=90, power_level=85)
    assert found.matched == ("utilisation_level", "power_level")
    assert found.separated_by == ()
    assert not found.identifiable


def test_readings_that_contradict_one_another():
    found = told(("training", "inference"), utilisation_level=10, tensor_share=50)
    assert found.pair in (("inference", "training"), ("training", "inference"))
    assert found.separated_by
    assert found.contradicted_by
    assert not found.identifiable


def test_the_most_telling_first():
    for pair in permutations(REGISTRY.purposes, 2):
        expected = [expected_centibans(channel, pair) for channel in separating(REGISTRY, pair)]
        assert expected == sorted(expected, reverse=True)
        assert min(expected) > 0
        assert separating(REGISTRY, pair) == separating(REGISTRY, pair[::-1])
