"""One writer at a time: a second import waits a moment, then says so."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import Connection, text

from slurm_trace.errors import EnvironmentProblem

WAIT_S = 5.0
_POLL_S = 0.1
_ADVISORY_KEY = 0x736C75726D2D7472
"""PostgreSQL names its locks by number, one namespace a database: this one spells `slurm-tr`."""


@contextmanager
def writer_lock(connection: Connection, path: Path | None, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the store's write lock; it goes with the process or the connection, however either ends.

    Args:
        connection: To the store, in no transaction; on a server it carries the lock until it closes.
        path: The store's file, if it is one.
        wait_s: How long to wait for another writer.
    """
    with ExitStack() as stack:
        if path is not None:
            taken = _try_file(path, stack)
        elif connection.dialect.name == "postgresql":
            taken = _try_statement(connection, f"SELECT pg_try_advisory_lock({_ADVISORY_KEY})")
        else:
            taken = _try_statement(connection, "SELECT GET_LOCK(CONCAT('slurm-trace:', DATABASE()), 0)")
        deadline = time.monotonic() + wait_s
        while not taken():
            if time.monotonic() >= deadline:
                raise EnvironmentProblem(
                    "another import is writing to this store; wait until it is done and run the command again"
                )
            time.sleep(_POLL_S)
        yield


def _try_file(path: Path, stack: ExitStack) -> Callable[[], bool]:
    lock = path.with_name(path.name + ".lock")
    try:
        # Never removed: a lock file that can vanish can be held twice.
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise EnvironmentProblem(f"{lock}: {error.strerror}; check the permissions of its folder") from error
    stack.callback(os.close, handle)

    def take() -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise EnvironmentProblem(
                f"{lock}: {error.strerror}; its file system cannot lock files"
            ) from error
        return True

    return take


def _try_statement(connection: Connection, statement: str) -> Callable[[], bool]:
    def take() -> bool:
        with connection.begin():
            return bool(connection.execute(text(statement)).scalar())

    return take
