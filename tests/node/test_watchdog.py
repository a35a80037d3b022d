"""A call that hangs costs its limit once, its device until it comes back, and nobody else anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from slurm_trace.node.watchdog import Call, GivenUp, Hung, Watchdog


def answers(watchdog: Watchdog, calls: list[tuple[str, Call]], limit_s: float) -> list[Any]:
    """What the work gets that makes these calls, in the thread that lasts."""
    found: list[list[Any]] = []
    watchdog.watch(lambda: found.append(watchdog.run(calls, limit_s)))
    (only,) = found
    return only


def hangs(back: threading.Event, result: str = "late") -> Callable[[], str]:
    return lambda: result if back.wait(20) else "never"


def test_results_and_exceptions_come_in_order() -> None:
    def fails() -> None:
        raise KeyError("x")

    for ask in (Watchdog().run, lambda *words: answers(Watchdog(), *words)):
        first, second, third = ask([("a", lambda: 1), ("b", fails), ("c", lambda: None)], 5)
        assert (first, third) == (1, None)
        assert isinstance(second, KeyError)


def test_calls_are_made_by_the_one_who_wants_them() -> None:
    watchdog = Watchdog()
    threads: list[tuple[int, int]] = []

    def work() -> None:
        (made_in,) = watchdog.run([("a", threading.get_ident)], 5)
        threads.append((made_in, threading.get_ident()))

    watchdog.watch(work)
    ((made_in, worked_in),) = threads
    assert made_in == worked_in != threading.get_ident()


def test_others_go_on_while_one_hangs() -> None:
    watchdog, back = Watchdog(0.1), threading.Event()
    calls: list[tuple[str, Call]] = [("a", lambda: "a"), ("b", hangs(back)), ("c", lambda: "c")]
    started = time.monotonic()
    a, b, c = answers(watchdog, calls, 0.1)
    assert (a, c) == ("a", "c")
    assert isinstance(b, Hung)
    assert watchdog.stuck == ("b",)

    again = answers(watchdog, calls, 5)
    assert time.monotonic() - started < 4, "what hangs is not waited for again"
    assert isinstance(again[1], Hung)
    assert again[::2] == ["a", "c"]

    back.set()
    while watchdog.stuck:
        time.sleep(0.01)
    assert answers(watchdog, calls, 5) == ["a", "late", "c"]


def test_a_thread_that_was_given_up_does_no_more_of_the_work() -> None:
    watchdog, back, seen = Watchdog(0.05), threading.Event(), list[Any]()

    def work() -> None:
        try:
            seen.append(watchdog.run([("a", hangs(back, "stale")), ("b", lambda: "fresh")], 0.05))
        except GivenUp:
            seen.append("given up")
            raise

    watchdog.watch(work)
    ((hung, fresh),) = seen
    assert isinstance(hung, Hung)
    assert fresh == "fresh"
    back.set()
    while watchdog.stuck:
        time.sleep(0.01)
    assert seen[1:] == ["given up"]


def test_threads_are_lost_only_one_per_device() -> None:
    watchdog, back = Watchdog(0.02), threading.Event()
    before = threading.active_count()
    calls = [(str(n), hangs(back)) for n in range(3)]
    for _ in range(5):
        assert all(isinstance(result, Hung) for result in answers(watchdog, calls, 0.02))
    assert threading.active_count() <= before + 4
    back.set()


@pytest.mark.parametrize("count", [0, 1, 8])
def test_limit_is_per_call_not_per_list(count: int) -> None:
    calls = [(str(n), lambda: time.sleep(0.05)) for n in range(count)]
    assert answers(Watchdog(0.02), calls, 0.2) == [None] * count


def test_calls_that_last_about_as_long_as_their_limit_come_back_or_are_lost() -> None:
    """Never both, and never neither: each piece of work is done once, by one thread."""
    watchdog = Watchdog(0.001)

    def call(number: int) -> Callable[[], int]:
        return lambda: time.sleep(0.01) or number

    for number in range(60):
        (result,) = answers(watchdog, [(str(number), call(number))], 0.01)
        assert isinstance(result, Hung) or result == number


def test_what_the_work_raises_is_raised() -> None:
    def fails() -> None:
        raise SystemExit(4)

    with pytest.raises(SystemExit, match="4"):
        Watchdog().watch(fails)


def test_a_look_is_late_by_no_more_than_its_period() -> None:
    watchdog, back = Watchdog(0.3), threading.Event()
    started = time.monotonic()
    (result,) = answers(watchdog, [("a", hangs(back))], 0.4)
    assert isinstance(result, Hung)
    assert 0.4 <= time.monotonic() - started < 1.5
    back.set()
