"""Runs of one cluster into `job_run`: new ones in bulk, the others compared with what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Update, bindparam, delete, func, select, update

from slurm_trace.store.bulk import in_chunks, insert_columns
from slurm_trace.store.catalog import Allocations, Ids
from slurm_trace.store.merge import (
    AT,
    FINAL,
    MODEL,
    PROVENANCE,
    Run,
    finality,
    identity_incomplete,
    merge,
    same,
    with_both,
)
from slurm_trace.store.models import allocation, disagreement, job_run, job_summary, lease, step_row, verdict
from slurm_trace.store.raws import store_raws

_JOB, _KEY, _START = AT["job_id_raw"], AT["run_key"], AT["start"]
_ALLOCATION = AT["allocation_id"]
_SELECT_RUN = select(job_run.c.id, *(job_run.c[name] for name in MODEL))


def _updating(*names: str) -> Update:
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    return update(job_run).where(job_run.c.id == bindparam("at_id")).values(values)


_UPDATE = _updating("import_id", *MODEL)
_UPDATE_WITH_RAW = _updating(*PROVENANCE, *MODEL)


@dataclass(slots=True)
class Counts:
    """What became of rows."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0

    def add(self, other: Counts) -> None:
        """Sum up."""
        self.inserted += other.inserted
        self.updated += other.updated
        self.unchanged += other.unchanged


@dataclass(slots=True)
class _Entry:
    """A run that is stored, or will be at the end of the block."""

    id: int
    run: Run
    new: bool = False
    changed: bool = False
    raw: tuple[int, bytes] | None = None


class RunTable:
    """The runs of one cluster, as one import writes them."""

    def __init__(self, connection: Connection, cluster_id: int, import_id: int, ids: Ids) -> None:
        """Look up which raw ids the cluster has."""
        self._cluster_id = cluster_id
        self._import_id = import_id
        self._ids = ids
        lowest, highest = connection.execute(
            select(func.min(job_run.c.job_id_raw), func.max(job_run.c.job_id_raw)).where(
                job_run.c.cluster_id == cluster_id
            )
        ).one()
        self._lowest = highest if lowest is None else lowest
        self._highest = highest

    def add(
        self, connection: Connection, columns: Sequence[list[Any]], lines: list[int], raws: list[bytes]
    ) -> Counts:
        """Bring in the runs of one block.

        Args:
            connection: Inside the block's transaction.
            columns: In the order of MODEL, all of this cluster.
            lines: The line of each row.
            raws: Each row as received.
        """
        raw_ids = columns[_JOB]
        distinct = set(raw_ids)
        stored = self._stored(connection, distinct)
        known = stored
        if len(distinct) < len(raw_ids):
            known = stored | {raw_id for raw_id, count in Counter(raw_ids).items() if count > 1}
        if not known:
            self._insert(connection, columns, lines, raws)
            counts = Counts(inserted=len(raw_ids))
        else:
            hard = [i for i, raw_id in enumerate(raw_ids) if raw_id in known]
            counts = self._compare(connection, stored, columns, lines, raws, hard)
            rest = [_without(column, hard) for column in (*columns, lines, raws)]
            self._insert(connection, rest[:-2], rest[-2], rest[-1])
            counts.inserted += len(rest[0])
        if distinct:
            self._lowest = min(distinct) if self._lowest is None else min(self._lowest, *distinct)
            self._highest = max(distinct) if self._highest is None else max(self._highest, *distinct)
        return counts

    def _stored(self, connection: Connection, raw_ids: set[int]) -> set[int]:
        """Those of some raw ids that the cluster has runs of."""
        if self._highest is None or not raw_ids:
            return set()
        first, last = max(min(raw_ids), self._lowest), min(max(raw_ids), self._highest)
        if first > last:
            return set()
        found: set[int] = set()
        for condition in _conditions(raw_ids, first, last):
            query = select(job_run.c.job_id_raw).where(job_run.c.cluster_id == self._cluster_id, condition)
            found.update(connection.execute(query).scalars())
        return found & raw_ids

    def _load(self, connection: Connection, raw_ids: set[int]) -> dict[int, list[_Entry]]:
        entries: dict[int, list[_Entry]] = {}
        if not raw_ids:
            return entries
        for condition in _conditions(raw_ids, min(raw_ids), max(raw_ids)):
            query = _SELECT_RUN.where(job_run.c.cluster_id == self._cluster_id, condition)
            for number, *run in connection.execute(query):
                entries.setdefault(run[_JOB], []).append(_Entry(number, run))
        return entries

    def _insert(
        self,
        connection: Connection,
        columns: Sequence[list[Any]],
        lines: Sequence[int],
        raws: Sequence[bytes],
    ) -> None:
        if not lines:
            return
        ids = self._ids.take(connection, job_run, len(lines))
        self._insert_with_raws(connection, ids, columns, lines, raws)

    def _insert_with_raws(
        self,
        connection: Connection,
        ids: Sequence[int],
        columns: Sequence[Sequence[Any]],
        lines: Sequence[int],
        raws: Sequence[bytes],
    ) -> None:
        provenance = (
            [self._import_id] * len(ids),
            lines,
            *store_raws(connection, self._import_id, self._ids, raws),
        )
        named = dict(zip((*PROVENANCE, *MODEL), (*provenance, *columns), strict=True))
        insert_columns(connection, job_run, {"id": ids, **named})

    def _compare(
        self,
        connection: Connection,
        stored: set[int],
        columns: Sequence[list[Any]],
        lines: list[int],
        raws: list[bytes],
        chosen: list[int],
    ) -> Counts:
        entries = self._load(connection, stored)
        gone: list[_Entry] = []
        counts = Counts()
        rows = zip(*([column[i] for i in chosen] for column in columns), strict=True)
        for i, values in zip(chosen, rows, strict=True):
            line, raw, run = lines[i], raws[i], list(values)
            runs = entries.setdefault(run[_JOB], [])
            entry = _find(runs, run)
            if entry is None:
                (number,) = self._ids.take(connection, job_run)
                entry = _Entry(number, run, new=True, raw=(line, raw))
                runs.append(entry)
                counts.inserted += 1
            elif _absorb(entry, self._with_both(connection, entry.run, run), (line, raw)):
                counts.updated += 1
            else:
                counts.unchanged += 1
            for twin in list(_twins(runs, entry)):
                _absorb(entry, self._with_both(connection, entry.run, twin.run), twin.raw)
                runs.remove(twin)
                gone.append(twin)
        self._write(connection, [entry for runs in entries.values() for entry in runs], gone)
        return counts

    def _with_both(self, connection: Connection, stored: Run, run: Run) -> Run:
        """The account, what the stored one says was allocated added, where both are final and differ in it."""
        ids = [stored[_ALLOCATION], run[_ALLOCATION]]
        if None in ids or ids[0] == ids[1] or finality(stored) < FINAL or finality(run) < FINAL:
            return run
        query = select(allocation.c.id, allocation.c.alloc_tres, allocation.c.alloc_gres).where(
            allocation.c.id.in_(ids)
        )
        texts = {number: pair for number, *pair in connection.execute(query)}
        tres, gres = (with_both(a, b) for a, b in zip(*(texts[i] for i in ids), strict=True))
        both = list(run)
        (both[_ALLOCATION],) = Allocations(self._ids).ids_of(connection, [tres], [gres])
        return both

    def _write(self, connection: Connection, entries: list[_Entry], gone: list[_Entry]) -> None:
        delete_runs(connection, [entry.id for entry in gone if not entry.new])
        new = [entry for entry in entries if entry.new]
        changed = [entry for entry in entries if entry.changed and not entry.new]
        kept = [entry for entry in changed if entry.raw is None]
        if kept:
            connection.execute(_UPDATE, [self._told(entry, {"import_id": self._import_id}) for entry in kept])
        reread = [(entry, *entry.raw) for entry in changed if entry.raw is not None]
        if reread:
            lines, raws = [line for _, line, _ in reread], [raw for _, _, raw in reread]
            stored = store_raws(connection, self._import_id, self._ids, raws)
            places = zip([self._import_id] * len(reread), lines, *stored, strict=True)
            connection.execute(
                _UPDATE_WITH_RAW,
                [
                    self._told(entry, dict(zip(PROVENANCE, place, strict=True)))
                    for (entry, *_), place in zip(reread, places, strict=True)
                ],
            )
        if new:
            rows = [(e.id, e.run, *e.raw) for e in new if e.raw is not None]
            ids, runs, lines, raws = map(list, zip(*rows, strict=True))
            self._insert_with_raws(connection, ids, list(map(list, zip(*runs, strict=True))), lines, raws)

    def _told(self, entry: _Entry, provenance: dict[str, int]) -> dict[str, Any]:
        run = dict(zip(MODEL, entry.run, strict=True))
        return {"at_id": entry.id, **{f"new_{name}": value for name, value in {**provenance, **run}.items()}}


def delete_runs(connection: Connection, run_ids: list[int]) -> None:
    """Remove runs that turned out to be part of another."""
    for chunk in in_chunks(run_ids):
        connection.execute(update(step_row).where(step_row.c.run_id.in_(chunk)).values(run_id=None))
        connection.execute(update(lease).where(lease.c.run_id.in_(chunk)).values(run_id=None, joined_in=None))
        for table in (verdict, disagreement, job_summary):
            connection.execute(delete(table).where(table.c.run_id.in_(chunk)))
        connection.execute(delete(job_run).where(job_run.c.id.in_(chunk)))


def _without(column: list[Any], places: list[int]) -> list[Any]:
    """The column without some of its values; stretches are copied whole, since mostly few are left out."""
    rest: list[Any] = []
    after = 0
    for place in places:
        rest += column[after:place]
        after = place + 1
    rest += column[after:]
    return rest


def _conditions(raw_ids: set[int], first: int, last: int) -> Iterator[Any]:
    """Conditions that together find some raw ids: a range where they are dense, else lists."""
    if last - first < 4 * len(raw_ids):
        yield job_run.c.job_id_raw.between(first, last)
    else:
        for chunk in in_chunks(raw_id for raw_id in raw_ids if first <= raw_id <= last):
            yield job_run.c.job_id_raw.in_(chunk)


def _find(runs: list[_Entry], run: Run) -> _Entry | None:
    """The entry of the same run: by its key, else, where one of the two lacks its Submit, by its Start."""
    for entry in runs:
        if entry.run[_KEY] == run[_KEY]:
            return entry
    incomplete = identity_incomplete(run)
    alike = [
        entry
        for entry in runs
        if _same_start(entry.run, run) and identity_incomplete(entry.run) != incomplete
    ]
    return min(alike, key=lambda entry: entry.run[_KEY], default=None)


def _twins(runs: list[_Entry], entry: _Entry) -> Iterator[_Entry]:
    """Runs without Submit that are this one, now that its Start is known."""
    if not identity_incomplete(entry.run):
        for other in runs:
            if other is not entry and identity_incomplete(other.run) and _same_start(other.run, entry.run):
                yield other


def _same_start(one: Run, other: Run) -> bool:
    return one[_START] is not None and one[_START] == other[_START]


def _absorb(entry: _Entry, run: Run, raw: tuple[int, bytes] | None) -> bool:
    """Merge another account into an entry; True if that changed it."""
    if same(entry.run, run):
        return False
    merged, based_on_new = merge(entry.run, run)
    if same(entry.run, merged):
        return False
    entry.run = merged
    entry.changed = True
    if based_on_new and raw is not None:
        entry.raw = raw
    return True
