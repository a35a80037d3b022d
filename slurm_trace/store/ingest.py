"""Bring blocks of runs into the store: idempotent, a transaction a block, one writer at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import compress
from types import TracebackType
from typing import Any, Self

from sqlalchemy import insert, select, update
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from slurm_trace.accounting.events import Event
from slurm_trace.accounting.records import RUN_FIELDS, RejectedRow, RunBlock
from slurm_trace.errors import TraceError, UsageProblem
from slurm_trace.store.catalog import Allocations, Clusters, Ids
from slurm_trace.store.completion import settle_broken
from slurm_trace.store.engine import Store, failures_of
from slurm_trace.store.events import keep_events
from slurm_trace.store.fit import has_unfit, without_unfit
from slurm_trace.store.lease_join import join_leases
from slurm_trace.store.lock import WAIT_S, writer_lock
from slurm_trace.store.merge import MODEL
from slurm_trace.store.models import import_log, watermark
from slurm_trace.store.rejects import Rejects
from slurm_trace.store.steps import attach_steps, keep_steps
from slurm_trace.store.upsert import Counts, RunTable
from slurm_trace.version import VERSION

_UNFIT = (DataError, IntegrityError, OverflowError, UnicodeError, ValueError, TypeError)
COUNTED = ("read", "jobs", "inserted", "updated", "unchanged", "steps_skipped")
_FIELD = {name: i for i, name in enumerate(RUN_FIELDS)}


@dataclass(frozen=True, slots=True)
class ImportInfo:
    """What is imported, and all that a better parser needs to read the raw rows again.

    Attributes:
        kind: `file`, `sacct`, `pyslurm` or `events`.
        name: Path, `-`, or the query.
        cluster: Cluster of the rows that name none.
        digest: SHA-256 of the input, if it is known before the input is read.
        fields: Column names, where the input had no header.
        delimiter: Where it was given.
        zone: The zone that local times were read in.
        flags: What was asked of the source.
    """

    kind: str
    name: str
    cluster: str | None = None
    digest: str | None = None
    fields: tuple[str, ...] | None = None
    delimiter: str | None = None
    zone: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything of a source up to a moment is in the store."""

    cluster: str
    source: str
    until: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """Where and why a row was rejected."""

    line: int
    reason: str


@dataclass(slots=True)
class ImportSummary:
    """Counts of one import: read = jobs + steps_skipped + rejected."""

    runs: Counts = field(default_factory=Counts)
    steps_skipped: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def inserted(self) -> int:
        """Runs that were new."""
        return self.runs.inserted

    @property
    def updated(self) -> int:
        """Runs of which this import knew more."""
        return self.runs.updated

    @property
    def unchanged(self) -> int:
        """Runs that the store already had, or knew more of."""
        return self.runs.unchanged

    @property
    def jobs(self) -> int:
        """Rows that are runs."""
        return self.inserted + self.updated + self.unchanged

    @property
    def read(self) -> int:
        """Rows in all."""
        return self.jobs + self.steps_skipped + len(self.rejected)

    def add(self, other: ImportSummary) -> None:
        """Sum up."""
        self.runs.add(other.runs)
        self.steps_skipped += other.steps_skipped
        self.rejected += other.rejected
        self.warn(other.warnings)

    def warn(self, warnings: Iterable[str]) -> None:
        """Note warnings, each once."""
        self.warnings += [w for w in dict.fromkeys(warnings) if w not in self.warnings]


def begin_import(store: Store, info: ImportInfo, wait_s: float = WAIT_S) -> Import:
    """Prepare an import; it begins where the returned object is entered as a context."""
    return Import(store, info, wait_s)


class Import:
    """One import under way. Killed, it leaves whole blocks and an entry that says it is incomplete."""

    def __init__(self, store: Store, info: ImportInfo, wait_s: float) -> None:
        self._store = store
        self._info = info
        self._wait_s = wait_s
        self._stack = ExitStack()
        self._ids = Ids()
        self._id = 0
        self._finished = False
        self._lone_cluster: str | None = None
        self._seen: set[str] = set()
        self.summary = ImportSummary()

    def __enter__(self) -> Self:
        """Take the write lock and note the import as begun."""
        try:
            with failures_of(self._store.url):
                self._connection = self._stack.enter_context(self._store.connect_writer())
                self._stack.enter_context(writer_lock(self._connection, self._store.path, self._wait_s))
                with self._connection.begin():
                    self._begin()
                self._forget()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note why the import ended, if it did not finish, and let go of the lock."""
        with self._stack:
            if not self._finished and not self._connection.invalidated:
                problem = str(error) if isinstance(error, TraceError) else "interrupted"
                # What went wrong first is what the user must see.
                with suppress(SQLAlchemyError), self._connection.begin():
                    self._note({"problem": problem})

    def add(self, block: RunBlock) -> None:
        """Bring in one block; all of it is committed when this returns.

        Raises:
            UsageProblem: Rows name no cluster and none can be told.
            EnvironmentProblem: The database failed.
        """
        with failures_of(self._store.url):
            if has_unfit(block):
                block = without_unfit(block)
            try:
                self._add(block)
            except _UNFIT:
                self._forget()
                fit = without_unfit(block)
                if len(fit.rejected) == len(block.rejected):
                    raise
                self._add(fit)
            except BaseException:
                self._forget()
                raise

    def add_events(self, events: Sequence[Event], rejected: Sequence[RejectedRow] = ()) -> None:
        """Bring in node and cluster events; counted like runs."""
        told = ImportSummary(rejected=[Rejection(row.line, row.reason) for row in rejected])
        names = {e.cluster for e in events}
        with failures_of(self._store.url):
            try:
                with self._connection.begin():
                    named = [(self._clusters.id_of(self._connection, e.cluster), e) for e in events]
                    told.runs = keep_events(self._connection, self._id, self._ids, named)
                    self._reject(rejected)
                    self._note({}, told, names)
            except BaseException:
                self._forget()
                raise
        self.summary.add(told)
        self._seen |= names

    def finish(
        self,
        covers: tuple[int, int] | None = None,
        watermark: Watermark | None = None,
        digest: str | None = None,
        header: bytes | None = None,
    ) -> ImportSummary:
        """Mark the import complete.

        Args:
            covers: The half-open interval of which the input holds every run.
            watermark: Moved only here, so that a failed import is read again.
            digest: SHA-256 of the input.
            header: First line of the input.
        """
        with failures_of(self._store.url), self._connection.begin():
            connection = self._connection
            self.summary.warn(attach_steps(connection, self._id, self._ids))
            join_leases(connection, self._id, self._ids)
            lone = self._clusters.id_of(connection, next(iter(self._seen))) if len(self._seen) == 1 else None
            self._rejects.finish(connection, self._id, lone, digest or self._info.digest)
            if watermark is not None:
                self._move(watermark)
            from_, to = covers or (None, None)
            self._note({"covers_from": from_, "covers_to": to, "header": header})
            if digest:
                self._note({"digest": digest})
            info = self._info
            self._note({"complete": True, "problem": None, "finished_at": int(time.time())})
            if unsettled := settle_broken(connection, self._id, info.kind, info.name, info.flags):
                self.summary.warn(unsettled)
                self._note({})
        self._finished = True
        return self.summary

    def _begin(self) -> None:
        (self._id,) = self._ids.take(self._connection, import_log)
        info = self._info
        self._connection.execute(
            insert(import_log).values(
                id=self._id,
                kind=info.kind,
                name=info.name,
                digest=info.digest,
                version=VERSION,
                started_at=int(time.time()),
                complete=False,
                fields=None if info.fields is None else ",".join(info.fields),
                delimiter=info.delimiter,
                zone=info.zone,
                flags=json.dumps(info.flags, sort_keys=True),
                clusters="[]",
                warnings="[]",
                rejected=0,
                **dict.fromkeys(COUNTED, 0),
            )
        )
        known = list(Clusters(self._ids).all(self._connection))
        self._lone_cluster = known[0] if len(known) == 1 else None

    def _forget(self) -> None:
        """Drop what was learned inside a transaction that may not have been committed."""
        self._clusters = Clusters(self._ids)
        self._allocations = Allocations(self._ids)
        self._rejects = Rejects(self._ids)
        self._tables: dict[int, RunTable] = {}

    def _add(self, block: RunBlock) -> None:
        told = ImportSummary(
            steps_skipped=block.steps_skipped,
            rejected=[Rejection(row.line, row.reason) for row in block.rejected],
            warnings=block.warnings,
        )
        with self._connection.begin():
            names = {self._named(name) for name in set(block.column("cluster"))}
            for cluster_id, columns, lines, raws in self._parts(block):
                told.runs.add(self._table(cluster_id).add(self._connection, columns, lines, raws))
            steps = [(self._clusters.id_of(self._connection, self._named(s.cluster)), s) for s in block.steps]
            keep_steps(self._connection, self._id, self._ids, steps)
            self._reject(block.rejected)
            names.update(self._named(step.cluster) for step in block.steps)
            self._note({}, told, names)
        self.summary.add(told)
        self._seen |= names

    def _parts(self, block: RunBlock) -> Iterator[tuple[int, Sequence[list[Any]], list[int], list[bytes]]]:
        """The block's runs by cluster, in the columns of the table."""
        if not len(block):
            return
        named = block.column("cluster")
        distinct = {name: self._clusters.id_of(self._connection, self._named(name)) for name in set(named)}
        cluster_ids = [distinct[name] for name in named]
        allocations = self._allocations.ids_of(
            self._connection, block.column("alloc_tres"), block.column("alloc_gres")
        )
        made: dict[str, list[Any]] = {"cluster_id": [*cluster_ids], "allocation_id": [*allocations]}
        columns: list[list[Any]] = [made.get(name) or block.columns[_FIELD[name]] for name in MODEL]
        lines, raws = block.column("line"), block.column("raw")
        parts = sorted(set(cluster_ids))
        if len(parts) == 1:
            yield parts[0], columns, lines, raws
            return
        for part in parts:
            chosen = [cluster_id == part for cluster_id in cluster_ids]
            yield (
                part,
                [list(compress(column, chosen)) for column in columns],
                list(compress(lines, chosen)),
                list(compress(raws, chosen)),
            )

    def _table(self, cluster_id: int) -> RunTable:
        if cluster_id not in self._tables:
            self._tables[cluster_id] = RunTable(self._connection, cluster_id, self._id, self._ids)
        return self._tables[cluster_id]

    def _named(self, name: str | None) -> str:
        resolved = name or self._info.cluster or self._lone_cluster
        if not resolved:
            raise UsageProblem(
                f"{self._info.name}: rows name no cluster and the store does not tell which it is; "
                "add --cluster NAME"
            )
        return resolved

    def _reject(self, rows: Sequence[RejectedRow]) -> None:
        name = self._info.cluster or self._lone_cluster
        cluster_id = self._clusters.id_of(self._connection, name) if rows and name else None
        self._rejects.add(self._connection, self._id, cluster_id, rows)

    def _move(self, mark: Watermark) -> None:
        cluster_id = self._clusters.id_of(self._connection, mark.cluster)
        here = (watermark.c.cluster_id == cluster_id) & (watermark.c.source == mark.source)
        stored = self._connection.execute(select(watermark.c.until).where(here)).scalar()
        values = {"until": max(mark.until, stored or mark.until), "import_id": self._id}
        if stored is None:
            self._connection.execute(
                insert(watermark).values(cluster_id=cluster_id, source=mark.source, **values)
            )
        else:
            self._connection.execute(update(watermark).where(here).values(values))

    def _note(
        self, values: dict[str, Any], told: ImportSummary | None = None, names: Iterable[str] = ()
    ) -> None:
        """Write the import's entry: its counts so far, with what the transaction under way adds to them."""
        told = told or ImportSummary()
        parts = (self.summary, told)
        counts = {name: sum(getattr(part, name) for part in parts) for name in COUNTED}
        self._connection.execute(
            update(import_log)
            .where(import_log.c.id == self._id)
            .values(
                **values,
                **counts,
                rejected=sum(len(part.rejected) for part in parts),
                clusters=json.dumps(sorted({*self._seen, *names})),
                warnings=json.dumps(list(dict.fromkeys(self.summary.warnings + told.warnings))),
            )
        )
