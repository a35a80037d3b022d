"""Work in a child process, so that two things that take long use two cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from queue import Queue
from threading import Thread
from typing import NoReturn, TypeVar, cast

from slurm_trace.errors import EnvironmentProblem

T = TypeVar("T")

AHEAD = 4
"""Values that the child makes before the parent has asked for them."""


def in_child(produce: Callable[[], Iterator[T]]) -> Generator[T]:
    """What a generator yields, made in a child process that starts at once.

    The child ends with this generator, and, since nobody reads from it any more, with the parent.

    Args:
        produce: Makes the generator, inside the child. What it raises is raised here.

    Raises:
        EnvironmentProblem: The child was killed.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # Not multiprocessing.Process: that one closes standard input, which may be what is to be read.
    child = os.fork()
    if child == 0:
        _work(produce, receiver, sender)
    sender.close()
    values: Generator[T] = _received(receiver, child)
    # A generator that has not begun is closed without a word to the child.
    next(values)
    return values


@contextmanager
def without_cycles() -> Iterator[None]:
    """Millions of values that hold no cycle: looking for some again and again takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def in_background(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """What a function returns, worked out in a child process that starts at once and is waited for when it is asked.

    The child ends with the context, asked or not.

    Args:
        work: Called inside the child. What it raises is raised where the value is asked for.
    """
    with closing(in_child(lambda: (work() for _ in range(1)))) as values:
        yield values.__next__


def _received(receiver: Connection, child: int) -> Generator[T]:
    status = None
    try:
        yield cast("T", None)  # it has begun
        while True:
            try:
                kind, value = pickle.loads(receiver.recv_bytes())  # noqa: S301 (our own child)
            except (EOFError, OSError):  # between two messages, and inside of one
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                raise EnvironmentProblem(
                    f"the reading process was killed (status {status}); is there enough memory?"
                ) from None
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        receiver.close()
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _send(outbox: Queue[bytes | None], sender: Connection) -> None:
    """Hand messages on while the next ones are made. A parent that is gone has nothing to be told."""
    try:
        while (message := outbox.get()) is not None:
            sender.send_bytes(message)
    except OSError:
        os._exit(0)


def _work(produce: Callable[[], Iterator[T]], receiver: Connection, sender: Connection) -> NoReturn:
    try:
        receiver.close()
        # Ctrl-C reaches the parent too, which tells the user and ends this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()
        outbox: Queue[bytes | None] = Queue(AHEAD)
        post = Thread(target=_send, args=(outbox, sender), daemon=True)
        post.start()
        try:
            for value in produce():
                outbox.put(pickle.dumps(("value", value), pickle.HIGHEST_PROTOCOL))
            last: tuple[str, object] = ("end", None)
        except Exception as error:  # noqa: BLE001 (raised again by the parent)
            last = ("error", error)
        outbox.put(pickle.dumps(last))
        outbox.put(None)
        post.join()
    finally:
        # Nothing of the parent may be flushed or cleaned up twice.
        os._exit(0)
