from __future__ import annotations

from itertools import pairwise

import pytest

from slurm_trace.accounting.windows import (
    DAY_S,
    EARLIEST,
    LARGE_BYTES,
    MAX_WIDTH_S,
    MIN_WIDTH_S,
    OVERLAP_S,
    SLURMDBD_BORN,
    Window,
    WindowPlan,
    covered,
    plan,
)

NOW = 1_800_000_000


def drain(found: WindowPlan, size: int = 0, seconds: float = 0) -> list[Window]:
    windows = []
    while not found.finished:
        windows.append(found.window())
        found.done(size, seconds)
    return windows


@pytest.mark.parametrize("days", [1, 3, 40, 400])
@pytest.mark.parametrize("size", [0, LARGE_BYTES // 2, LARGE_BYTES * 2])
def test_windows_tile_the_stretch(days: int, size: int) -> None:
    windows = drain(
        plan(now=NOW, since=NOW - days * DAY_S, until=NOW - 5, watermark=None, first_seen=None), size
    )
    assert windows[0].since == NOW - days * DAY_S
    assert windows[-1].until == NOW - 5
    assert all(a.until == b.since for a, b in pairwise(windows))
    assert all(MIN_WIDTH_S <= w.until - w.since <= MAX_WIDTH_S for w in windows[:-1])
    assert windows[0].until - windows[0].since <= DAY_S


def test_small_answers_widen_and_large_or_slow_ones_narrow() -> None:
    def widths(size: int, seconds: float) -> list[int]:
        found = plan(now=NOW, since=NOW - 100 * DAY_S, until=None, watermark=None, first_seen=None)
        return [w.until - w.since for w in drain(found, size, seconds)]

    assert widths(0, 0)[:7] == [DAY_S * n for n in (1, 2, 4, 8, 16, 32, 32)]
    assert widths(LARGE_BYTES, 0)[:3] == [DAY_S] * 3
    assert widths(LARGE_BYTES + 1, 0)[:3] == [DAY_S, DAY_S // 2, DAY_S // 4]
    assert widths(0, 31)[:3] == [DAY_S, DAY_S // 2, DAY_S // 4]
    assert min(widths(LARGE_BYTES + 1, 0)[:-1]) == MIN_WIDTH_S


def test_watermark_looks_back() -> None:
    found = plan(now=NOW, since=None, until=None, watermark=NOW - 60, first_seen=5)
    assert found.window() == Window(NOW - 60 - OVERLAP_S, NOW - 60)
    assert (
        plan(now=NOW, since=NOW - 7, until=None, watermark=NOW - 60, first_seen=5).window().since == NOW - 7
    )


def test_end_is_never_in_the_future() -> None:
    assert plan(now=NOW, since=0, until=NOW + DAY_S, watermark=None, first_seen=None).until == NOW + 1
    assert plan(now=NOW, since=NOW + 5, until=None, watermark=None, first_seen=None).finished


def test_the_beginning_is_one_window_and_then_days() -> None:
    found = plan(now=NOW, since=None, until=None, watermark=None, first_seen=NOW - 3 * DAY_S)
    assert found.window() == Window(EARLIEST, NOW - 3 * DAY_S)
    found.done(0, 0)
    assert found.window().since == NOW - 3 * DAY_S
    unknown = plan(now=NOW, since=None, until=None, watermark=None, first_seen=None)
    assert unknown.window() == Window(EARLIEST, SLURMDBD_BORN)


def test_a_beginning_that_is_too_much_is_cut_up() -> None:
    found = plan(now=NOW, since=None, until=None, watermark=None, first_seen=NOW - 3 * DAY_S)
    found.shrink()
    assert found.window() == Window(EARLIEST, SLURMDBD_BORN)
    found.done(0, 0)
    assert found.window() == Window(SLURMDBD_BORN, SLURMDBD_BORN + DAY_S)
    assert drain(found)[-1].until == NOW + 1


def test_slurmdbd_may_limit_the_width() -> None:
    found = plan(now=NOW, since=None, until=None, watermark=None, first_seen=NOW - 3 * DAY_S, widest_s=3600)
    windows = drain(found)
    assert windows[0] == Window(NOW - 3 * DAY_S, NOW - 3 * DAY_S + 3600)
    assert max(w.until - w.since for w in windows) == 3600


def test_covered_leaves_out_what_may_be_on_its_way_or_purged() -> None:
    window = Window(NOW - 100, NOW + 1)
    assert covered(window, NOW, None) == Window(NOW - 100, NOW - 10)
    assert covered(window, NOW, NOW - 50) == Window(NOW - 50, NOW - 10)
    assert covered(window, NOW, NOW) is None
    assert covered(Window(NOW - 5, NOW), NOW, None) is None
    assert covered(Window(5, 10), NOW, None) == Window(5, 10)
