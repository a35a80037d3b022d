"""Ring buffers become windows that tile time, without overlap, with holes where entries were lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.node.rings import Ring, Window

OFFSET_MS = 1_700_000_000_000


def entries(
    first_ms: int, count: int, every_ms: int = 250, value: int | None = 40
) -> list[tuple[int, int | None]]:
    return [((OFFSET_MS + first_ms + n * every_ms) * 1000, value) for n in range(count)]


def look(ring: Ring, found: list[tuple[int, int | None]], offset_ms: int = OFFSET_MS) -> list[Window]:
    """A look a moment after the last entry."""
    return ring.take(found, offset_ms, found[-1][0] + 1000)


def test_what_the_driver_kept_before_the_first_look_proves_nothing() -> None:
    ring = Ring()
    assert look(ring, entries(0, 5)) == []
    assert ring.since_us == (OFFSET_MS + 1000) * 1000 - 1
    assert ring.holes == 0


def test_overlap_is_taken_once() -> None:
    ring = Ring()
    look(ring, entries(0, 5))
    assert look(ring, entries(1000, 5)) == [Window(1000, 2000, 4, 40_000, 40, 40)]
    assert look(ring, entries(2000, 1)) == []
    assert look(ring, entries(2000, 2)) == [Window(2000, 2250, 1, 10_000, 40, 40)]
    assert ring.holes == 0


def test_an_overwritten_entry_leaves_a_hole() -> None:
    ring = Ring()
    look(ring, entries(0, 5))
    assert look(ring, entries(5000, 3)) == []
    assert look(ring, entries(5500, 3)) == [Window(5500, 6000, 2, 20_000, 40, 40)]
    assert ring.holes == 1


def test_an_entry_that_cannot_be_true_is_a_hole_not_a_zero() -> None:
    ring = Ring()
    look(ring, entries(0, 5))
    found = look(ring, [*entries(1000, 3), *entries(1750, 1, value=None), *entries(2000, 2)])
    assert [(w.from_ms, w.to_ms) for w in found] == [(1000, 1500), (1750, 2250)]
    assert ring.holes == 1


def test_an_entry_that_is_missing_is_a_hole_and_the_next_one_does_not_speak_for_it() -> None:
    ring = Ring()
    look(ring, entries(0, 5))
    found = look(ring, [*entries(1000, 3), *entries(2000, 3)])
    assert [(w.from_ms, w.to_ms) for w in found] == [(1000, 1500), (2000, 2500)]
    assert ring.holes == 1


def test_until_the_drivers_period_is_known_nothing_is_tiled() -> None:
    ring = Ring()
    look(ring, entries(0, 1))
    assert look(ring, entries(0, 3)) == []
    assert look(ring, entries(500, 4)) == [Window(500, 1250, 3, 30_000, 40, 40)]


def test_a_chain_that_was_broken_begins_anew() -> None:
    ring = Ring()
    look(ring, entries(0, 5))
    ring.forget()
    assert ring.since_us == 0
    assert look(ring, entries(750, 2)) == []
    assert look(ring, entries(1000, 2)) == [Window(1000, 1250, 1, 10_000, 40, 40)]


@pytest.mark.parametrize("first_busy", [False, True])
@pytest.mark.parametrize("change", [42, 44])
@pytest.mark.parametrize("last_old", [42, 44])
@pytest.mark.parametrize("step_ms", [-10_000, -1_000, -100, 100, 1_000, 10_000])
def test_a_clock_that_was_set_leaves_entries_behind_that_never_count(
    step_ms: int, last_old: int, change: int, first_busy: bool
) -> None:
    """Looks every second for 40 s; after about 11 s the clock is set, and a busy time begins or ends."""
    ring, kept, windows = Ring(), list[tuple[int, int | None]](), list[Window]()
    for tick in range(1, 161):
        at_ms, offset_ms = tick * 250, OFFSET_MS + (step_ms if tick > 42 else 0)
        stamp_ms = at_ms + OFFSET_MS + (step_ms if tick > last_old else 0)
        kept = [*kept, (stamp_ms * 1000, 100 if (tick <= change) is first_busy else 0)][-100:]
        if tick % 4 == 0:
            shown = sorted(entry for entry in kept if entry[0] > ring.since_us)
            windows += ring.take(shown, offset_ms, (at_ms + offset_ms) * 1000 + 100)
    assert windows[-1].to_ms == 40_000
    busy = (0, change * 250) if first_busy else (change * 250, 40_000)
    for window in windows:
        assert window.value_ms >= 100 * (min(window.to_ms, busy[1]) - max(window.from_ms, busy[0]))


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
    for more in looks:
        seen = min(seen + more, len(stamps))
        kept = stamps[max(0, seen - 12) : seen]
        windows += look(ring, [entry for entry in kept if entry[0] > ring.since_us])
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
