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
        if not calls:
            return []
        if not self._stuck:
            return self._all(calls, limit_s)
        stuck = self.stuck
        answers = iter(self._all([call for call in calls if call[0] not in stuck], limit_s))
        return [Hung(name) if name in stuck else next(answers) for name, _ in calls]

    def _all(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        done = self._hand_over(calls, limit_s) if calls else []
        while len(done) < len(calls):
            # One hung, and a new thread takes the rest; the same device may come again in it.
            rest = calls[len(done) :]
            sound = next((n for n, (name, _) in enumerate(rest) if name in self._stuck), len(rest))
            done += self._hand_over(rest[:sound], limit_s) if sound else [Hung(rest[0][0])]
        return done

    def _hand_over(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        """Results of the calls up to the first that hangs, which is a `Hung`."""
        worker = self._worker
        if worker is None:
            worker = self._worker = _Worker()
        worker.results = []
        worker.began = time.monotonic()
        worker.inbox.put(calls)
        left_s = limit_s
        while True:
            try:
                worker.outbox.get(timeout=left_s)
            except queue.Empty:
                left_s = worker.began + limit_s - time.monotonic()
                if left_s > 0:
                    continue
                return self._give_up(worker, calls)
            return worker.results

    def _give_up(self, worker: _Worker, calls: Sequence[tuple[str, Call]]) -> list[Any]:
        worker.abandoned = True
        worker.inbox.put(None)
        self._worker = None
        results = worker.results[: len(calls) - 1]
        name = calls[len(results)][0]
        self._stuck[name] = worker.thread
        return [*results, Hung(name)]


def _attempt(call: Call) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is goes to the one who asked
        return error
