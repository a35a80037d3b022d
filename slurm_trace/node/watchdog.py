"""Calls into the driver, given up when they hang.

A call into a broken driver may never come back: the caller sits in the kernel and cannot be killed. So whoever makes
such calls works in a thread that can be given up, and makes them there itself, one after the other: nothing is handed
over. The watchdog only looks, seldom, whether a call has passed its limit. Then it leaves that thread to its fate and
lets another one do the work from the start; what hung is not asked again until the lost call has returned. At most one
thread per device can be lost that way. ctypes lets go of the interpreter during a call, so that a stuck thread holds up
nobody.

Work that is watched has to bear that: whatever it has not finished when it makes a call, it does again.

Threads, not processes: a child that hangs can be killed no more than a thread can, and one that is killed with
the driver open may leave it broken; a second interpreter would double the memory. A driver that *crashes* takes
the sampler with it; a sampler that is started again goes on with its leases, which it has to be able to do anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Call = Callable[[], Any]
_SHORTEST_S = 0.01


class Hung(Exception):
    """An earlier call of the same name was given up and has not come back yet."""


class GivenUp(BaseException):
    """This thread's call came back too late: another thread does its work."""


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

        Raises:
            GivenUp: One took longer, and this thread is not wanted any more.
        """


class Direct:
    """Makes calls that nobody watches: for sources that cannot hang."""

    stuck: tuple[str, ...] = ()

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        """Make the calls."""
        return [_attempt(call) for _, call in calls]


# A call that has not come back: its name, until when it may last (monotonic seconds), and who made it.
_Out = tuple[str, float, threading.Thread]


class Watchdog:
    """Makes calls in the thread that wants them, and gives that thread up when one hangs.

    Args:
        look_s: How often to look. A call with a shorter limit may take as long as this.
    """

    def __init__(self, look_s: float = 5.0) -> None:
        self._look_s = look_s
        # Holds the call that is out. Whoever takes it out decides: its thread that it is back, or the watchdog that it
        # is lost. Each thread has its own, so that a late one finds nothing in it.
        self._out: list[_Out] = []
        self._stuck: dict[str, threading.Thread] = {}
        self._failed: BaseException | None = None

    @property
    def stuck(self) -> tuple[str, ...]:
        """What hangs now."""
        self._stuck = {name: thread for name, thread in self._stuck.items() if thread.is_alive()}
        return tuple(self._stuck)

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        """Make the calls; see `Caller`."""
        stuck = self.stuck if self._stuck else ()
        thread = threading.current_thread()
        out: list[_Out] = []
        self._out = out
        results: list[Any] = []
        for name, call in calls:
            if name in stuck:
                results.append(Hung(name))
                continue
            out.append((name, time.monotonic() + limit_s, thread))
            result = _attempt(call)
            try:
                out.pop()
            except IndexError:
                raise GivenUp(name) from None
            results.append(result)
        return results

    def watch(self, work: Callable[[], None]) -> None:
        """Do some work in a thread, anew in another one whenever a call hangs; returns when it is done.

        Raises:
            BaseException: What the work raised.
        """
        while True:
            thread = threading.Thread(target=self._do, args=(work,), name="driver-calls", daemon=True)
            thread.start()
            if self._outlast(thread):
                break
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except GivenUp:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by the one who waits
            self._failed = error

    def _outlast(self, thread: threading.Thread) -> bool:
        """Wait for the end of a thread; false if a call of it was given up."""
        wait_s = self._look_s
        while True:
            thread.join(wait_s)
            if not thread.is_alive():
                return True
            wait_s = self._look_s
            for out in self._out[-1:]:
                _, until, of = out
                left_s = until - time.monotonic()
                if of is thread and left_s <= 0 and self._give_up(out):
                    return False
                wait_s = min(wait_s, max(left_s, _SHORTEST_S))

    def _give_up(self, late: _Out) -> bool:
        """Take a call as lost, unless it has just come back."""
        try:
            self._out.remove(late)
        except ValueError:
            return False
        name, _, thread = late
        self._stuck[name] = thread
        return True


def _attempt(call: Call) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is goes to the one who asked
        return error
