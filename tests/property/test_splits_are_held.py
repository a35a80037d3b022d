"""Whoever splits a piece of work finds all of it again in the groups that hold the parts; sums by hand agree."""

from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.exact import Exact
from slurm_trace.analysis.fewest import LISTED, fewest
from slurm_trace.analysis.groups import BY, Terms
from slurm_trace.analysis.lineage import PAUSE_S
from slurm_trace.analysis.sliding import worst_windows
from tests.support.grouped import bounds, frame, grouping, parts

DAY = 86_400

PIECES = st.lists(
    st.fixed_dictionaries(
        {
            "held": st.integers(60, 20 * DAY),
            "pause": st.integers(0, 40 * DAY),
            "name": st.sampled_from(["train", "train2", "train-b", "eval", "x1", None]),
            "user": st.sampled_from(["ada", "bob", None]),
            "uid": st.sampled_from([1000, 1001, None]),
            "account": st.sampled_from(["lab", "other", None]),
            "cluster": st.sampled_from(["c", "d"]),
            "allocation": st.sampled_from([1, 8, 32]),
            "node_count": st.sampled_from([1, 4]),
            "work_dir": st.sampled_from(["/a", "/b1", "/b2", None]),
            "array_job_id": st.sampled_from([None, None, 500]),
        }
    ),
    min_size=1,
    max_size=12,
)


def chain(pieces):
    """Pieces one after the other, each after its pause."""
    at = 0
    for piece in pieces:
        piece = dict(piece)
        at += piece.pop("pause")
        yield piece | {"at": at}
        at += piece["held"]


@settings(max_examples=60, deadline=None)
@given(PIECES, st.integers(1, 10**25), st.sampled_from([None, DAY, 90 * DAY]))
def test_however_it_is_split_the_groups_that_hold_it_hold_all_of_it(pieces, threshold, within_s):
    runs = list(chain(pieces))
    asked = grouping(*runs, threshold=threshold, terms=Terms(within_s=within_s))
    found = {by: list(asked.groups(by)) for by in BY}
    (whole,) = found["all"]
    total = sum(bounds(frame(*runs)).bound_flop(i) for i in range(len(runs)))
    if within_s is None:
        assert whole.bound_flop == total
        for by, groups in found.items():
            assert sum(g.jobs for g in groups) == len(runs), by
            if whole.verdict != "RULED_OUT":
                assert all(g.bound_flop is not None or g.reasons for g in groups)
    # A part that can't be ruled out is in no whole that is.
    for by in BY[1:]:
        for group in found[by]:
            assert whole.verdict != "RULED_OUT" or group.verdict == "RULED_OUT", by
            assert group.bound_flop is None or group.bound_flop <= whole.bound_flop
    # What nobody is named for may be anybody's: then no named group is ruled out while all that is nobody's reaches T.
    for by, column in (("account", "account"), ("user", "user")):
        nobodys = [
            i for i, run in enumerate(runs) if run[column] is None and (by != "user" or run["uid"] is None)
        ]
        if (
            within_s is None
            and sum(bounds(frame(*runs)).bound_flop(i) for i in nobodys) >= asked.question.limit_flop
        ):
            assert not any(g.verdict == "RULED_OUT" for g in found[by])


@settings(max_examples=60, deadline=None)
@given(PIECES)
def test_finer_groups_lie_inside_of_wider_ones(pieces):
    asked = grouping(*chain(pieces))
    sets = {by: parts(asked, by) for by in BY}
    for inner, outer in (("family", "lineage"), ("lineage", "user"), ("user", "all"), ("account", "all")):
        assert all(any(small <= large for large in sets[outer]) for small in sets[inner]), (inner, outer)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(60, 20 * DAY), st.integers(0, PAUSE_S), st.integers(0, 999)),
        min_size=1,
        max_size=20,
    ),
    st.data(),
)
def test_a_lineage_holds_what_is_split_by_time_number_array_or_requeue(pieces, data):
    """One user, one kind of shape and folder: however often it is stopped, renumbered, requeued or made an array."""
    runs, at = [], 0
    for held_s, pause_s, number in pieces:
        at += pause_s
        how = data.draw(st.sampled_from(["name", "array", "requeue", "folder"]))
        runs.append(
            {"at": at, "held": held_s}
            | {
                "name": {"name": f"train-{number}"},
                "array": {"array_job_id": 400, "name": "other", "work_dir": "/elsewhere"},
                "requeue": {"job_id_raw": 900, "state": "REQUEUED"},
                "folder": {"work_dir": f"/home/ada/run{number}", "name": f"train.{number}"},
            }[how]
        )
        at += held_s
    # The tasks of the array differ in two features; they are found among themselves.
    others = [n for n, run in enumerate(runs) if "array_job_id" not in run]
    asked = grouping(*runs)
    codes = [asked.envelope.runs["job_id_raw"].iloc[n] for n in others]
    holding = [group for group in parts(asked, "lineage") if group & set(codes)]
    if others and len({runs[n]["at"] for n in others}) and _chained([runs[n] for n in others]):
        assert len(holding) == 1
    arrays = {n + 1 for n, run in enumerate(runs) if "array_job_id" in run}
    assert sum(1 for group in parts(asked, "lineage") if group & arrays) <= 1


def _chained(runs):
    """No pause between these runs is too long (runs between them may have been taken out)."""
    reached = list(accumulate((run["at"] + run["held"] for run in runs), max))
    return all(later["at"] - end <= PAUSE_S for end, later in zip(reached, runs[1:], strict=False))


SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 30), st.integers(0, 10**30)), max_size=14
)


@settings(max_examples=200, deadline=None)
@given(SPANS, st.integers(1, 40))
def test_the_worst_window_is_the_worst_of_all_windows(spans, length_s):
    codes, begin, held, flop = (np.array([s[n] for s in spans], dtype=object) for n in range(4))
    codes, begin, end = codes.astype(np.int64), begin.astype(np.int64), (begin + held).astype(np.int64)
    found = worst_windows(codes, 3, begin, end, Exact.of(flop.tolist()), length_s)
    timed = np.ones(len(codes), dtype=bool)
    touched = found.touched(codes, begin, end, timed)
    for group in range(3):
        mine = [
            (int(b), int(e), int(f)) for c, b, e, f in zip(codes, begin, end, flop, strict=True) if c == group
        ]
        best = max(
            (sum(f for b, e, f in mine if b < t + length_s and e > t) for t in range(-45, 95)), default=0
        )
        assert sum(int(f) for f in flop[touched & (codes == group)]) == best
        assert found.found[group] == bool(mine)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**30)), max_size=20), st.integers(1, 10**31))
def test_the_fewest_that_reach_it(pairs, limit):
    codes = np.array([group for group, _ in pairs], dtype=np.int64)
    found = fewest(codes, 3, Exact.of(flop for _, flop in pairs), limit)
    for group in range(3):
        largest = sorted((flop for g, flop in pairs if g == group), reverse=True)
        reached = [n for n, total in enumerate(accumulate(largest), start=1) if total >= limit]
        assert found.count[group] == (reached[0] if reached else 0)
        named = found.members(group)
        assert len(named) == min(found.count[group], LISTED)
        assert [pairs[i][1] for i in named] == largest[: len(named)]
        assert all(pairs[i][0] == group for i in named)
