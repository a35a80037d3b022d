"""Calls into the driver, given up when they hang.

A call into a broken driver may never come back: the caller sits in the kernel and cannot be killed. So calls run
in a worker thread, one after the other; when one passes its limit, that thread is abandoned, a new one takes the
rest, and what hung is not asked again until the abandoned call has returned. At most one thread per device can be
lost that way. ctypes lets go of the interpreter during a call, so that a stuck thread holds up nobody.

Threads, not processes: a child that hangs can be killed no more than a thread can, and one that is killed with
the driver open may leave it broken; a second interpreter would double the memory. A driver that *crashes* takes
the sampler with it; a sampler that is started again goes on with its leases, which it has to be able to do anyway.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Call = Callable[[], Any]


class Hung(Exception):
    """The call was given up, or an earlier one of the same name has not come back yet."""


class Caller(Protocol):
    """Makes calls."""

    @property
    def stuck(self) -> tuple[str, ...]:
        """Names of what was given up and has not come back."""

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        """Make the calls in order; per call its result, the exception that it raised, or `Hung`.

        Args:
            calls: The name of what is asked (a device), and the call.
            limit_s: How long each may take.
        """


class Direct:
    """Makes calls in the caller's own thread: for sources that cannot hang."""

    stuck: tuple[str, ...] = ()

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        """Make the calls."""
        return [_attempt(call) for _, call in calls]


class _Worker:
    """A thread that makes one list of calls after the other, until it is abandoned."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Sequence[tuple[str, Call]] | None] = queue.SimpleQueue()
        self.outbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.results: list[Any] = []
        self.began = time.monotonic()
        self.abandoned = False
        self.thread = threading.Thread(target=self._work, name="driver-calls", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (calls := self.inbox.get()) is not None:
            results = self.results
            for _, call in calls:
                self.began = time.monotonic()
                result = _attempt(call)
                if self.abandoned:
                    return
                results.append(result)
            self.outbox.put(None)


class Watchdog:
    """Makes calls in a thread that can be given up."""

    def __init__(self) -> None:
        self._worker: _Worker | None = None
        self._stuck: dict[str, threading.Thread] = {}

    @property
    def stuck(self) -> tuple[str, ...]:
        """What hangs now."""
        self._stuck = {name: thread for name, thread in self._stuck.items() if thread.is_alive()}
        return tuple(self._stuck)

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        """Make the calls; see `Caller`."""
        outcome: list[Any] = []
        rest = list(calls)
        while rest:
            stuck = self.stuck
            sound = [call for call in rest if call[0] not in stuck]
            done = self._hand_over(sound, limit_s) if sound else []
            results = iter(done)
            taken = 0
            for name, _ in rest:
                if name in stuck:
                    outcome.append(Hung(name))
                else:
                    result = next(results, None)
                    if result is None:
                        break
                    outcome.append(result[0])
                taken += 1
            rest = rest[taken:]
        return outcome

    def _hand_over(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[tuple[Any]]:
        """Results of the calls up to the first that hangs, which is a `Hung`."""
        worker = self._worker = self._worker or _Worker()
        worker.results = []
        worker.began = time.monotonic()
        worker.inbox.put(calls)
        while True:
            left_s = worker.began + limit_s - time.monotonic()
            try:
                worker.outbox.get(timeout=max(left_s, 0.001))
            except queue.Empty:
                if time.monotonic() < worker.began + limit_s:
                    continue
                return self._give_up(worker, calls)
            return [(result,) for result in worker.results]

    def _give_up(self, worker: _Worker, calls: Sequence[tuple[str, Call]]) -> list[tuple[Any]]:
        worker.abandoned = True
        worker.inbox.put(None)
        self._worker = None
        results = worker.results[: len(calls) - 1]
        name = calls[len(results)][0]
        self._stuck[name] = worker.thread
        return [*((result,) for result in results), (Hung(name),)]


def _attempt(call: Call) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is goes to the one who asked
        return error
