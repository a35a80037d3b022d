"""The registry of channels, and what is refused of one."""

from __future__ import annotations

import copy
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from slurm_trace.analysis.evidence.channels import BAN, WHOLE, load, read
from slurm_trace.analysis.evidence.features import FEATURES
from slurm_trace.errors import InputProblem
from slurm_trace.store.purpose_samples import FIELDS_READ, FIRST_CHUNKS, MORE_CHUNKS, MOST_NODES
from support import evidence as make

REGISTRY = load(FEATURES)


@pytest.fixture
def document():
    return json.loads(files("slurm_trace.schema.registry").joinpath("channels.json").read_text("utf-8"))


def test_every_quantity_has_one_channel():
    assert sorted(channel.feature for channel in REGISTRY.channels) == sorted(FEATURES)


def test_no_cap_is_a_factor_of_ten():
    caps = [c.cap_centibans for c in (*REGISTRY.channels, *REGISTRY.groups.values())]
    assert max(*caps, REGISTRY.limits.staged_cap_centibans) < BAN


def test_tables_that_were_not_measured_say_so():
    for channel in REGISTRY.channels:
        assert channel.verified is False
        assert channel.basis == "assumption"
        assert channel.source
        assert channel.notes


def test_shares():
    for channel in REGISTRY.channels:
        for purpose in REGISTRY.purposes:
            assert sum(state.shares[purpose] for state in channel.states) == WHOLE
        assert channel.states[-1].below is None


def test_the_ends_of_a_range():
    (channel,) = (c for c in REGISTRY.channels if c.id == "accelerators")
    assert [channel.state_of(n) for n in (0, 0.999, 1, 7, 8, 63, 64, 10**6)] == [0, 0, 1, 2, 3, 3, 4, 4]


def test_grades():
    ids = [REGISTRY.grade(n).id for n in (-500, 0, 49, 50, 99, 100, 199, 200, 10**4)]
    assert ids == ["none", "none", "none", "weak", "weak", "moderate", "moderate", "strong", "strong"]


def test_the_digest_changes_with_any_figure(document):
    assert read(document, "x", FEATURES).digest == REGISTRY.digest
    document["channels"][0]["states"][0]["shares"]["training"] += 1
    document["channels"][0]["states"][1]["shares"]["training"] -= 1
    assert read(document, "x", FEATURES).digest != REGISTRY.digest


def test_the_samples_that_are_read_are_those_that_tests_make():
    assert make.FIELDS == FIELDS_READ


def channel(document):
    return document["channels"][2]


FAULTS = {
    "states 0 shares training: 0 is less": lambda d: channel(d)["states"][0]["shares"].update(training=0),
    "shares of 'training' do not add up to 1000": lambda d: channel(d)["states"][0]["shares"].update(training=1),
    "a state says nothing of 'idle'": lambda d: channel(d)["states"][1]["shares"].pop("idle"),
    "ranges do not ascend": lambda d: channel(d)["states"][0].update(below=99),
    "its ranges do not": lambda d: channel(d)["states"][-1].update(below=99),
    "no group 'nowhere'": lambda d: channel(d).update(group="nowhere"),
    "nothing reads 'tea_leaves'": lambda d: channel(d).update(feature="tea_leaves"),
    "'continuation': a cap of 100 alone": lambda d: channel(d).update(cap_centibans=100),
    "'load': a cap of 100 alone": lambda d: d["groups"][1].update(cap_centibans=100),
    "limits: a cap of 100 alone": lambda d: d["limits"].update(staged_cap_centibans=100),
    "no purpose 'theft'": lambda d: d["limits"].update(staged_against="theft"),
    "no grade 'certain'": lambda d: d["limits"].update(unverified_grade="certain"),
    "grades do not ascend": lambda d: d["grades"].reverse(),
    "'continuation' stands there twice": lambda d: d["channels"].append(copy.deepcopy(channel(d))),
    "'verified' is a required": lambda d: channel(d).pop("verified"),
    "'source' is a required": lambda d: channel(d).pop("source"),
    "channels 2: ": lambda d: channel(d).update(weight=3),
}  # fmt: skip


@pytest.mark.parametrize("words", FAULTS)
def test_what_is_wrong_is_refused_and_named(document, words):
    FAULTS[words](document)
    with pytest.raises(InputProblem) as refused:
        read(document, "site.json", FEATURES)
    assert str(refused.value).startswith("site.json: ")
    assert words in str(refused.value)


def test_the_document_is_of_this_registry():
    text = (Path(__file__).parents[3] / "docs" / "PURPOSE.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` .* \| (\w+) \| .* \|$", text, re.MULTILINE)
    assert dict(rows) == {channel.id: channel.group for channel in REGISTRY.channels}
    for grade in REGISTRY.grades[1:]:
        assert re.search(rf"`{grade.id}` from {grade.from_centibans // 10}\b", text)
    limits = REGISTRY.limits
    assert (limits.separates_centibans, limits.least_coverage_pct, limits.unverified_grade) == (
        20,
        50,
        "moderate",
    )
    reads = (FIRST_CHUNKS, MORE_CHUNKS, MOST_NODES)
    assert reads == (20, 100, 32)
