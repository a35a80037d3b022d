"""From a source of accounting into the store: a file, a pipe, or the live Slurm."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from slurm_trace.accounting.events import read_events
from slurm_trace.accounting.open_source import read_any
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunBlock
from slurm_trace.child import in_child, without_cycles
from slurm_trace.errors import EnvironmentProblem, UsageProblem, unreadable

if TYPE_CHECKING:
    from slurm_trace.store.engine import Store
    from slurm_trace.store.ingest import ImportInfo, ImportSummary

HEADER_BYTES = 1 << 14
LINE_BYTES = 1 << 20
"""Of a longer line only this much is read as one; what sacctmgr prints is a thousandth of it."""

LARGE_BYTES = 4 << 20

Progress = Callable[[int, int], None]
"""Told how many bytes of how many were read; the whole is 0 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """What to import from a file or a pipe.

    Attributes:
        path: The file; `-` is standard input.
        cluster: Cluster of rows that name none.
        zone: Zone of its local times; None reads them as UTC with a warning.
        covers: The half-open interval of which it holds every run.
        queried_at: When it was written.
    """

    path: str
    cluster: str | None = None
    zone: tzinfo | None = None
    delimiter: str | None = None
    fields: tuple[str, ...] | None = None
    covers: tuple[int, int] | None = None
    queried_at: int | None = None

    def info(self, kind: str, state: str | None) -> ImportInfo:
        """The entry of the import's log. A file without rows does not tell its cluster, the call may.

        Args:
            kind: `file` or `events`.
            state: What tells the state of the file (see `Input`).
        """
        asked = {"queried_at": self.queried_at, "cluster": self.cluster}
        from slurm_trace.store.completion import FILE
        from slurm_trace.store.ingest import ImportInfo

        return ImportInfo(
            kind=kind,
            name=self.path if self.path == "-" else str(Path(self.path).absolute()),
            cluster=self.cluster,
            fields=self.fields,
            delimiter=self.delimiter,
            zone=None if self.zone is None else str(self.zone),
            flags={name: value for name, value in asked.items() if value is not None} | {FILE: state},
        )


def import_file(location: str | None, request: FileRequest, progress: Progress) -> ImportSummary:
    """Import an export of sacct into the store of that name, which is created where there is none.

    Raises:
        InputProblem: It is no such export; what was readable before that was seen is kept.
        UsageProblem: The file cannot be opened, or rows name no cluster and none can be told.
        EnvironmentProblem: The file cannot be read, or the store failed.
    """
    options = ReadOptions(
        cluster=request.cluster,
        zone=request.zone,
        delimiter=request.delimiter,
        fields=request.fields,
        queried_at=request.queried_at,
        source_name=_shown(request.path),
    )
    with open_input(request.path) as source:
        # Started before the store is even imported: a child must not share the lock or the connection, and it reads on
        # meanwhile.
        parts = in_child(partial(_read, source, options)) if source.is_large else _read(source, options)
        with closing(parts), without_cycles(), _opened(location) as store:
            from slurm_trace.store.ingest import begin_import

            with begin_import(store, request.info("file", source.state)) as running:
                for part in parts:
                    if part.block is not None:
                        running.add(part.block)
                    progress(part.seen, source.whole)
                return running.finish(covers=request.covers, digest=part.digest, header=part.header)


@contextmanager
def _opened(location: str | None) -> Iterator[Store]:
    from slurm_trace.store.engine import open_store

    store = open_store(location, create=True)
    try:
        yield store
    finally:
        store.close()


def import_event_file(store: Store, request: FileRequest) -> ImportSummary:
    """Import the output of `sacctmgr show event`.

    Raises:
        InputProblem: It is no such output.
    """
    from slurm_trace.store.ingest import begin_import

    with (
        open_input(request.path, "the output of sacctmgr show event") as source,
        begin_import(store, request.info("events", source.state)) as running,
    ):
        found = read_events(cast(BinaryIO, source), request.cluster, request.zone, _shown(request.path))
        running.add_events(found.events, found.rejected)
        running.summary.warn(found.warnings)
        source.drain()
        return running.finish(covers=request.covers, digest=source.digest, header=source.header)


@dataclass(frozen=True, slots=True)
class Part:
    """One step of reading; the last one has no block and tells of the whole input."""

    seen: int
    block: RunBlock | None = None
    digest: str | None = None
    header: bytes | None = None


def _read(source: Input, options: ReadOptions) -> Generator[Part]:
    for block in read_any(cast(IO[bytes], source), options):
        yield Part(source.seen, block)
    source.drain()
    yield Part(source.seen, digest=source.digest, header=source.header)


@dataclass(slots=True)
class Input:
    """A stream that is read once: its digest, its first line and its length are known at the end.

    Attributes:
        whole: Its length in bytes; 0 where it is not known.
        state: Of a file, what changes when its content does; None where there is no such thing, as for a pipe.
    """

    stream: IO[bytes]
    name: str
    whole: int
    state: str | None = None
    seen: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    _head: bytes = b""

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        return self._note(self.stream.read, size)

    def __iter__(self) -> Iterator[bytes]:
        """The lines; of one without end the beginning, and what follows it only when the next one is asked for."""
        while line := self._note(self.stream.readline, LINE_BYTES):
            yield line
            while line and not line.endswith(b"\n"):
                line = self._note(self.stream.readline, LINE_BYTES)

    def drain(self) -> None:
        """Read what is left, so that the digest is that of the whole input."""
        while self.read(1 << 20):
            pass

    @property
    def is_large(self) -> bool:
        """Whether a second process for reading is worth its start; a pipe may be of any length."""
        return self.whole > LARGE_BYTES or (self.whole == 0 and not isinstance(self.stream, BytesIO))

    @property
    def digest(self) -> str:
        """SHA-256 of what was read."""
        return self._hash.hexdigest()

    @property
    def header(self) -> bytes:
        """The first line as received, or as much of it as a header can have."""
        return self._head.partition(b"\n")[0]

    def _note(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(size)
        except OSError as error:
            raise EnvironmentProblem(
                f"{self.name}: {error.strerror} after {self.seen} bytes; check the disk"
            ) from error
        self._hash.update(data)
        if self.seen < HEADER_BYTES:
            self._head += data[: HEADER_BYTES - self.seen]
        self.seen += len(data)
        return data


@contextmanager
def open_input(path: str, what: str = "an export of sacct") -> Iterator[Input]:
    """Open a file, or standard input; `what` it should hold is said where it can't be opened.

    Raises:
        TraceError: It cannot be read (see `unreadable`).
    """
    if path == "-":
        if sys.stdin.isatty():
            raise UsageProblem(f"standard input is a terminal; pipe {what} into it, or name a file")
        yield Input(sys.stdin.buffer, "standard input", whole=0)
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(path).open("rb"))
        except (OSError, ValueError) as error:
            remedy = f"name a file that holds {what}, or `-` for standard input"
            raise unreadable(path, error, remedy) from error
        found = os.fstat(stream.fileno())
        yield Input(stream, path, found.st_size, _state(found))


def _state(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return None
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path
