"""Which runs look like one piece of work, and which are rows of one job."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.analysis.components import components, linked
from slurm_trace.analysis.groups import Grouping, Terms
from slurm_trace.analysis.lineage import PAUSE_S, place, stem
from tests.support.grouped import grouping, parts

DAY = 86_400


def lineages(*runs, **options):
    return parts(grouping(*runs, **options), "lineage")


@pytest.mark.parametrize(
    "name",
    ["llama", "llama2", "llama_v2", "LLaMA-resume", "llama.3.final", "0042-llama", "llama-a", "a_llama"],
)
def test_names_that_differ_by_numbers_and_suffixes_have_one_stem(name):
    assert stem(name) == "llama"


def test_what_has_no_word_has_an_empty_stem():
    assert stem("2024-11-03") == stem("") == stem("7b") == ""
    assert stem("Größe-3") == "grösse"


def test_one_folder_a_run_is_one_place():
    assert place("/scratch/ada/run_0017") == place("/scratch/ada/run_3")
    assert place("/scratch/ada/x") != place("/scratch/ada/y")


def test_a_chain_is_followed_however_long_it_is():
    runs = [{"at": n * (3600 + PAUSE_S), "name": f"train-{n}"} for n in range(30)]
    assert lineages(*runs) == [set(range(1, 31))]


def test_a_longer_pause_ends_it():
    first, second = {"held": 3600}, {"at": 3600 + 1 + PAUSE_S}
    assert lineages(first, second) == [{1, 2}]  # a bound holds a run for a second more than its record
    assert lineages(first, {"at": 3600 + 2 + PAUSE_S}) == [{1}, {2}]
    assert lineages(first, {"at": 3600 + DAY}, terms=Terms(pause_s=DAY - 2)) == [{1}, {2}]


def test_a_long_run_bridges_what_lies_inside_it():
    assert lineages({"held": 100 * DAY}, {"at": DAY}, {"at": 90 * DAY}, {"at": 101 * DAY}) == [{1, 2, 3, 4}]


@pytest.mark.parametrize(
    "change",
    [{"name": "eval"}, {"allocation": 4}, {"work_dir": "/tmp/other"}, {"node_count": 2}, {"account": "two"}],
)
def test_one_feature_may_change(change):
    assert lineages({}, {"at": DAY} | change) == [{1, 2}]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "eval", "allocation": 4},
        {"name": "eval", "work_dir": "/tmp/other"},
        {"allocation": 4, "work_dir": "/tmp/other"},
        {"uid": 1001, "user": "bob"},
    ],
)
def test_two_features_or_another_user_are_another_lineage(change):
    assert lineages({}, {"at": DAY} | change) == [{1}, {2}]


def test_features_that_change_one_after_the_other_are_one_chain():
    runs = [
        {"name": "aa", "allocation": 1, "work_dir": "/x"},
        {"name": "bb", "allocation": 1, "work_dir": "/x"},
        {"name": "bb", "allocation": 2, "work_dir": "/x"},
        {"name": "bb", "allocation": 2, "work_dir": "/y"},
        {"name": "cc", "allocation": 2, "work_dir": "/y"},
    ]
    assert lineages(*({"at": n * DAY} | run for n, run in enumerate(runs))) == [{1, 2, 3, 4, 5}]


def test_clusters_do_not_split_a_lineage():
    assert lineages({}, {"cluster": "d", "at": DAY}) == [{1, 2}]


def test_a_shape_alone_joins_nothing_where_no_directory_is_recorded():
    assert lineages({"work_dir": None}, {"work_dir": None, "name": "eval"}) == [{1}, {2}]
    assert lineages({"work_dir": None}, {"work_dir": None, "allocation": 2}) == [{1, 2}]


def test_what_has_no_start_or_no_end_may_be_near_to_anything():
    far = {"at": 400 * DAY}
    assert lineages({}, far) == [{1}, {2}]
    assert lineages({}, far, {"start": None, "end": None, "step_end": None}) == [{1, 2, 3}]
    assert lineages({"state": "RUNNING", "final": False, "end": None, "elapsed_s": None}, far) == [{1, 2}]


def test_a_lineage_is_named_by_the_run_that_began_first():
    group = grouping({"at": DAY, "name": "b-train"}, {"name": "train"}).groups("lineage")[0]
    assert group.key.startswith("c:2@")
    assert group.label == "ada (1000): train"


@pytest.mark.parametrize("by", ["lineage", "family"])
def test_runs_that_are_not_asked_about_give_no_group_its_name(by):
    asked = grouping({"started": False, "name": "eval"}, {"name": "other", "started": False}, {"at": DAY})
    asked = Grouping(
        asked.envelope, asked.envelope.started, asked.question, asked.records, asked.inventory, asked.terms
    )
    (group,) = asked.groups(by)
    assert group.key.startswith("c:3@")
    assert group.label == "ada (1000): train"


# Rows of one job


def families(*runs):
    return parts(grouping(*runs), "family")


def test_tasks_components_requeues_and_resizes_are_rows_of_one_job():
    runs = [
        {"job_id_raw": 30, "array_job_id": 30}, {"job_id_raw": 31, "array_job_id": 30},  # the last task keeps the id
        {"job_id_raw": 40, "het_job_id": 40}, {"job_id_raw": 41, "het_job_id": 40},
        {"job_id_raw": 50, "state": "REQUEUED"}, {"job_id_raw": 50, "at": 300 * DAY},
        {"job_id_raw": 60},
    ]  # fmt: skip
    assert families(*runs) == [{30, 31}, {40, 41}, {50}, {60}]
    assert [g.jobs for g in sorted(grouping(*runs).groups("family"), key=lambda g: g.key)] == [2, 2, 2, 1]


def test_a_row_that_does_not_name_its_array_is_found_by_its_raw_id():
    assert families({"job_id_raw": 31, "array_job_id": 30}, {"job_id_raw": 31}, {"job_id_raw": 30}) == [
        {30, 31}
    ]


def test_an_id_that_another_user_was_given_later_is_another_job():
    assert families({"job_id_raw": 7}, {"job_id_raw": 7, "uid": 5, "user": "bob"}) == [{7}, {7}]
    assert families({"job_id_raw": 7}, {"job_id_raw": 7, "cluster": "d"}) == [{7}, {7}]


def test_rows_of_one_job_are_one_lineage_whatever_they_look_like():
    other = {"at": 900 * DAY, "name": "x", "work_dir": "/", "allocation": 1}
    assert lineages({"job_id_raw": 7}, {"job_id_raw": 7} | other) == [{7}]
    assert len(grouping({"job_id_raw": 7}, {"job_id_raw": 7} | other).groups("lineage")) == 1


# Union over links


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60))
def test_components_are_those_of_a_walk(size, pairs):
    pairs = [(a % size, b % size) for a, b in pairs]
    expected = list(range(size))
    for _ in range(size):
        for a, b in pairs:
            expected[a] = expected[b] = min(expected[a], expected[b])
    left, right = (np.array([p[n] for p in pairs], dtype=np.int64) for n in (0, 1))
    assert components(size, [(left, right)]).tolist() == expected


@pytest.mark.parametrize("shuffled", [False, True])
def test_long_paths_take_few_rounds(shuffled):
    """A path of 200,000 in any order ends in one component; one link a round would never get there."""
    path = np.arange(200_000)
    if shuffled:
        path = np.random.default_rng(1).permutation(path)
    assert not components(200_000, [(path[:-1], path[1:])]).any()
    assert not components(200_000, [(path[1:], path[:-1])]).any()


def test_codes_below_zero_link_nothing():
    left, right = linked(np.array([3, -1, 3, -1, 4]))
    assert (left.tolist(), right.tolist()) == ([0], [2])
