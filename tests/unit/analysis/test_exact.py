"""Columns of integers beyond 64 bits: whatever is done to them is what Python's integers do."""

from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.analysis.exact import Exact, concatenated

FLOP = st.integers(min_value=0, max_value=10**36)
COLUMNS = st.lists(FLOP, max_size=30)


def codes_of(values):
    return np.arange(len(values), dtype=np.int64) % 3


@given(COLUMNS)
def test_values_come_back(values):
    column = Exact.of(values)
    assert column.ints() == [column[i] for i in range(len(column))] == values


@given(st.lists(st.tuples(st.integers(0, 10**11), st.integers(0, 10**24)), max_size=20))
def test_products(pairs):
    seconds = np.array([s for s, _ in pairs], dtype=np.int64)
    code = np.arange(len(pairs), dtype=np.int64)
    found = Exact.products(seconds, [rate for _, rate in pairs], code)
    assert found.ints() == [s * rate for s, rate in pairs]


@given(COLUMNS)
def test_sums_by_group(values):
    found = Exact.of(values).sums(codes_of(values), 3).ints()
    assert found == [sum(values[g::3]) for g in range(3)]


@given(COLUMNS, st.data())
def test_running_sums_of_what_comes_and_goes(values, data):
    order = data.draw(st.permutations(range(len(values))))
    column = Exact.of(values)
    both = concatenated([column, column.take(np.array(order, dtype=np.int64)).negated()])
    steps = [*values, *(-values[i] for i in order)]
    assert both.running().ints() == list(accumulate(steps))


@given(COLUMNS, FLOP, st.data())
def test_below_a_limit_and_value_by_value(values, limit, data):
    column = Exact.of(values)
    assert column.below(Exact.of([limit])).tolist() == [v < limit for v in values]
    others = data.draw(st.permutations(values))
    assert column.below(Exact.of(others)).tolist() == [v < w for v, w in zip(values, others, strict=True)]


@given(st.lists(st.sampled_from([0, 7, 2**24, 10**30, 10**30 + 1]), max_size=20))
def test_largest_by_group(values):
    codes = np.sort(codes_of(values))
    found = Exact.of(values).largest(codes, 4).tolist()
    for group, at in enumerate(found):
        mine = [i for i in range(len(values)) if codes[i] == group]
        assert at == (min(mine, key=lambda i: (-values[i], i)) if mine else -1)


@given(COLUMNS, FLOP)
def test_added_to_each_or_value_by_value(values, one):
    column = Exact.of(values)
    assert (column + Exact.of([one])).ints() == [v + one for v in values]
    assert (column + column).ints() == [2 * v for v in values]


@given(COLUMNS)
def test_ordered(values):
    column = Exact.of(values)
    assert [values[i] for i in np.lexsort(column.digits)] == sorted(values)


@given(st.lists(FLOP, min_size=1, max_size=20), FLOP)
def test_replaced(values, other):
    found = Exact.of(values).replaced(np.array([0]), Exact.of([other]))
    assert found.ints() == [other, *values[1:]]


def test_floats_are_near():
    values = [0, 7, 10**23, 10**30 + 1]
    assert np.allclose(Exact.of(values).floats(), [float(v) for v in values])
