"""A call that hangs costs its limit once, its device until it comes back, and nobody else anything."""

from __future__ import annotations

import threading
import time

import pytest

from slurm_trace.node.watchdog import Hung, Watchdog


def test_results_and_exceptions_come_in_order() -> None:
    def fails() -> None:
        raise KeyError("x")

    first, second, third = Watchdog().run([("a", lambda: 1), ("b", fails), ("c", lambda: None)], 5)
    assert (first, third) == (1, None)
    assert isinstance(second, KeyError)


def test_others_go_on_while_one_hangs() -> None:
    watchdog, back = Watchdog(), threading.Event()
    calls = [("a", lambda: "a"), ("b", lambda: back.wait(20) and "late"), ("c", lambda: "c")]
    started = time.monotonic()
    a, b, c = watchdog.run(calls, 0.1)
    assert (a, c) == ("a", "c")
    assert isinstance(b, Hung)
    assert watchdog.stuck == ("b",)

    again = watchdog.run(calls, 5)
    assert time.monotonic() - started < 4, "what hangs is not waited for again"
    assert isinstance(again[1], Hung)
    assert again[::2] == ["a", "c"]

    back.set()
    while watchdog.stuck:
        time.sleep(0.01)
    assert watchdog.run(calls, 5) == ["a", "late", "c"]


def test_a_late_result_is_not_taken_for_another_call() -> None:
    watchdog, back = Watchdog(), threading.Event()
    watchdog.run([("a", lambda: back.wait(20) and "stale")], 0.05)
    back.set()
    for _ in range(200):
        (result,) = watchdog.run([("b", lambda: "fresh")], 5)
        assert result == "fresh"


def test_threads_are_lost_only_one_per_device() -> None:
    watchdog, back = Watchdog(), threading.Event()
    before = threading.active_count()
    calls = [(str(n), lambda: back.wait(20)) for n in range(3)]
    for _ in range(5):
        assert all(isinstance(result, Hung) for result in watchdog.run(calls, 0.02))
    assert threading.active_count() <= before + 4
    back.set()


@pytest.mark.parametrize("count", [0, 1, 8])
def test_limit_is_per_call_not_per_list(count: int) -> None:
    calls = [(str(n), lambda: time.sleep(0.05)) for n in range(count)]
    assert Watchdog().run(calls, 0.2) == [None] * count
