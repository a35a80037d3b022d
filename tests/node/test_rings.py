"""Ring buffers become windows that tile time, without overlap, with holes where entries were lost."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.node.rings import Ring, Window

OFFSET_MS = 1_700_000_000_000


def entries(
    first_ms: int, count: int, every_ms: int = 250, value: int | None = 40
) -> list[tuple[int, int | None]]:
    return [((OFFSET_MS + first_ms + n * every_ms) * 1000, value) for n in range(count)]


def test_what_the_driver_kept_before_stays_in_single_entries() -> None:
    windows = Ring().take(entries(0, 4), OFFSET_MS)
    assert windows == [Window(at, at + 250, 1, 10_000, 40, 40) for at in (0, 250, 500)]


def test_overlap_is_taken_once() -> None:
    ring = Ring()
    ring.take(entries(0, 5), OFFSET_MS)
    assert ring.since_us == (OFFSET_MS + 1000) * 1000 - 1
    assert ring.take(entries(1000, 5), OFFSET_MS) == [Window(1000, 2000, 4, 40_000, 40, 40)]
    assert ring.take(entries(2000, 1), OFFSET_MS) == []
    assert ring.holes == 0


def test_an_overwritten_entry_leaves_a_hole() -> None:
    ring = Ring()
    ring.take(entries(0, 5), OFFSET_MS)
    assert ring.take(entries(5000, 3), OFFSET_MS) == [
        Window(5000, 5250, 1, 10_000, 40, 40),
        Window(5250, 5500, 1, 10_000, 40, 40),
    ]
    assert ring.holes == 1


def test_an_entry_that_cannot_be_true_is_a_hole_not_a_zero() -> None:
    ring = Ring()
    ring.take(entries(0, 1), OFFSET_MS)
    found = ring.take([*entries(0, 3), *entries(750, 1, value=None), *entries(1000, 2)], OFFSET_MS)
    assert [(w.from_ms, w.to_ms) for w in found] == [(0, 500), (750, 1250)]
    assert ring.holes == 1


def test_a_clock_that_was_set_breaks_the_chain() -> None:
    ring = Ring()
    ring.take(entries(0, 3), OFFSET_MS)
    ring.forget()
    assert ring.since_us == 0
    assert ring.take(entries(750, 1), OFFSET_MS) == []


@given(
    st.lists(
        st.tuples(st.integers(50, 4000), st.one_of(st.none(), st.integers(0, 100))), min_size=1, max_size=60
    ),
    st.lists(st.integers(1, 20), min_size=1, max_size=60),
)
def test_windows_never_overlap_and_hold_each_value_once(
    steps: list[tuple[int, int | None]], looks: list[int]
) -> None:
    stamps, at = [], 0
    for step, value in steps:
        at += step
        stamps.append(((OFFSET_MS + at) * 1000, value))
    ring, windows, seen = Ring(), [], 0
    for look in looks:
        seen = min(seen + look, len(stamps))
        kept = stamps[max(0, seen - 12) : seen]
        windows += ring.take([entry for entry in kept if entry[0] > ring.since_us], OFFSET_MS)
    assert all(a.to_ms <= b.from_ms for a, b in itertools.pairwise(windows))
    truth = {}
    for (before, _), (after, value) in itertools.pairwise(stamps):
        truth[after // 1000 - OFFSET_MS] = (before // 1000 - OFFSET_MS, value)
    for window in windows:
        inside = [(to, *truth[to]) for to in truth if window.from_ms < to <= window.to_ms]
        assert len(inside) == window.entries
        assert window.value_ms == sum((value or 0) * (to - start) for to, start, value in inside)
        assert all(value is not None for *_, value in inside)
        assert min(start for _, start, _ in inside) == window.from_ms
