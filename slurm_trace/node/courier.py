"""Brings closed spool files to the outbox: checked, named by their hash, there complete or not at all.

The outbox may be a directory shared by many nodes, which may hang or be full. So this is a thread of its own, and
a file that cannot be delivered stays where it is until it can be.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from slurm_trace.node.digest import file_digest
from slurm_trace.node.open_lease import DAMAGED, SEALED
from slurm_trace.node.spool_writer import is_whole

_RETRY_S = 30.0
_PART = re.compile(r"\.[0-9]+" + re.escape(SEALED) + "$")


def deliver(sealed: Path, outbox: Path) -> Path | None:
    """Check a closed file, and move it into the outbox.

    Returns:
        Where it is now; None if it was damaged: then it lies beside where it was, with another ending.

    Raises:
        OSError: The outbox cannot be written to; the file is where it was.
    """
    if not is_whole(sealed):
        sealed.replace(sealed.with_name(sealed.name + DAMAGED))
        return None
    target = outbox / f"{_PART.sub('', sealed.name)}.{file_digest(sealed)}.spool"
    _sync(sealed)
    try:
        sealed.rename(target)
    except OSError:
        # Another file system: the name must not be there before all of the file is.
        claim = outbox / f".{target.name}.tmp"
        try:
            _copy(sealed, claim)
            claim.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                claim.unlink()
            raise
        _sync(outbox)
        sealed.unlink()
    _sync(outbox)
    _sync(sealed.parent)
    return target


class Courier:
    """Delivers in the background, in the order of the files' names, again and again until it is done.

    Args:
        folder: Where closed files lie.
        outbox: Where they go.
        log: Takes (kind, message) of trouble.
    """

    def __init__(self, folder: Path, outbox: Path, log: Callable[[str, str], None]) -> None:
        self._folder = folder
        self._outbox = outbox
        self._log = log
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """There is something to deliver."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
            self._thread.start()
        self._wake.set()

    def stop(self, limit_s: float) -> bool:
        """Deliver what is there, within a limit; false if something stays for the next start."""
        self._stopping = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join(limit_s)
        return not any(self._folder.glob(f"*{SEALED}"))

    def deliver_all(self) -> bool:
        """Deliver in the caller's own thread; false if something stays."""
        delivered = [self._try(sealed) for sealed in sorted(self._folder.glob(f"*{SEALED}"))]
        return all(delivered)

    def _try(self, sealed: Path) -> bool:
        try:
            if deliver(sealed, self._outbox) is None:
                self._log("damaged", f"{sealed.name} is damaged: kept as {sealed.name}{DAMAGED}")
        except OSError as error:
            self._log("outbox", f"cannot deliver to {self._outbox}: {error.strerror}; kept, tried again")
            return False
        return True

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while not self.deliver_all() and not self._stopping:
                self._wake.wait(_RETRY_S)
                self._wake.clear()
            if self._stopping:
                return


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as whole, target.open("wb") as copy:
        while block := whole.read(1 << 20):
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())


def _sync(path: Path) -> None:
    """What a file or a directory holds is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
