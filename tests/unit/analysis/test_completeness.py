"""Are the records complete? Without an answer, a group is not ruled out by its sum."""

import pytest

from slurm_trace.analysis.completeness import Coverage, completeness


def seen(id_, covers=None, *, complete=True, live=False, cluster="c", **flags):
    return Coverage(id_, f"f{id_}", (cluster,), covers, complete, live, flags)


def test_a_file_that_nobody_speaks_for_is_assumed_complete():
    found = completeness([seen(1)], "c", None, None)
    assert (found.status, found.gaps) == ("assumed", ())


def test_declared_and_live_coverage():
    assert completeness([seen(1, (0, 100))], "c", 0, 100).status == "declared"
    assert completeness([seen(1, (0, 100), live=True)], "c", 0, 100).status == "proven"
    assert completeness([seen(1, (0, 50), live=True), seen(2, (50, 100))], "c", 0, 100).status == "declared"


@pytest.mark.parametrize(
    ("spans", "since", "until", "gaps"),
    [
        ([(0, 40), (60, 100)], None, None, ["no import covers epoch 40 to 60"]),
        ([(0, 40), (40, 100)], None, None, []),
        ([(60, 100), (0, 70)], None, None, []),
        ([(0, 100)], 0, 150, ["no import covers epoch 100 to 150"]),
        ([(0, 100)], 99, None, []),
        ([(0, 100)], 100, None, ["no import covers epoch 100 and later"]),
        ([(50, 100)], None, 51, []),
        ([(50, 100)], None, 50, ["no import covers the time before epoch 50"]),
        ([(50, 100)], 0, 100, ["no import covers epoch 0 to 50"]),
        ([(0, 40), (60, 100)], 70, 90, []),
    ],
)
def test_time_that_no_import_covers_is_a_gap(spans, since, until, gaps):
    found = completeness([seen(n, s) for n, s in enumerate(spans)], "c", since, until)
    assert list(found.gaps) == gaps


def test_an_import_that_broke_off_is_a_gap():
    found = completeness([seen(1), seen(2, complete=False)], "c", None, None)
    assert found.gaps == ("import 2 (f2) was not finished",)


@pytest.mark.parametrize("flag", [{"all_users": False}, {"duplicates": False}, {"private_data": True}])
def test_an_import_that_left_runs_out_covers_nothing(flag):
    assert completeness([seen(1, (0, 100), **flag)], "c", 0, 100).gaps
    assert not completeness([seen(1, (0, 100), **flag), seen(2, (0, 100))], "c", 0, 100).gaps


def test_a_file_that_nobody_speaks_for_fills_no_hole():
    found = completeness([seen(1, (0, 40)), seen(2, (60, 100)), seen(3)], "c", 0, 100)
    assert found.gaps == ("no import covers epoch 40 to 60",)


def test_a_file_that_nobody_speaks_for_is_assumed_beside_one_that_is_complete():
    imports = [seen(1, (50, 100), live=True), seen(2)]
    assert completeness(imports, "c", None, None).status == "assumed"
    assert completeness(imports, "c", 50, 100).status == "proven"


def test_slurm_asked_for_single_runs_or_with_runs_hidden_fills_no_hole():
    by_id = seen(3, live=True)
    assert completeness([seen(1, (0, 40)), seen(2, (60, 100)), by_id], "c", None, None).gaps
    assert completeness([by_id], "c", None, None).gaps


def test_a_cluster_without_any_import_is_not_complete():
    assert completeness([], "c", None, None).gaps == ("nothing of it was imported",)
    assert completeness([seen(1, (0, 100), cluster="d")], "c", 0, 100).gaps


def test_an_import_that_broke_off_before_it_named_a_cluster_is_everybody_s_gap():
    broken = Coverage(2, "f2", (), None, complete=False, live=False, flags={})
    assert completeness([seen(1), broken], "c", None, None).gaps == ("import 2 (f2) was not finished",)
    empty = Coverage(2, "f2", (), (40, 60), complete=True, live=True, flags={})
    assert completeness([seen(1, (0, 40)), empty, seen(3, (60, 100))], "c", None, None).gaps


def test_another_cluster_says_nothing():
    assert completeness([seen(1, (0, 100), cluster="d")], "c", 0, 100).status == "assumed"
