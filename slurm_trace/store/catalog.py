"""Ids that an import hands out, and the small tables that it looks names up in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Table, func, select

from slurm_trace.accounting.tres import parse_tres
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.models import allocation, allocation_gres, cluster

AllocationText = tuple[str | None, str | None]

CACHED = 100_000
"""Allocations kept in memory; a site has far fewer distinct ones than jobs."""


class Ids:
    """Numbers for new rows; only the one writer hands them out, so they are known before the insert."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def take(self, connection: Connection, table: Table, count: int = 1) -> range:
        """The next `count` ids of a table."""
        if table.name not in self._next:
            largest = connection.execute(select(func.max(table.c.id))).scalar()
            self._next[table.name] = (largest or 0) + 1
        first = self._next[table.name]
        self._next[table.name] = first + count
        return range(first, first + count)


class Clusters:
    """Ids of clusters by name."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._known: dict[str, int] | None = None

    def id_of(self, connection: Connection, name: str) -> int:
        """The cluster's id; a cluster that is new gets one."""
        known = self.all(connection)
        if name not in known:
            (new,) = self._ids.take(connection, cluster)
            insert_rows(connection, cluster, ("id", "name"), [(new, name)])
            known[name] = new
        return known[name]

    def all(self, connection: Connection) -> dict[str, int]:
        """Every cluster of the store."""
        if self._known is None:
            rows = connection.execute(select(cluster.c.name, cluster.c.id))
            self._known = {row.name: row.id for row in rows}
        return self._known


class Allocations:
    """Ids of the distinct pairs of AllocTRES and AllocGRES."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._known: dict[AllocationText, int | None] = {(None, None): None}

    def ids_of(
        self, connection: Connection, tres: Sequence[str | None], gres: Sequence[str | None]
    ) -> list[int | None]:
        """The id of each pair; None where the source had neither column."""
        found = list(map(self._known.get, zip(tres, gres, strict=True)))
        if None not in found:
            return found
        pairs = list(zip(tres, gres, strict=True))
        new = set(pairs) - self._known.keys()
        if len(self._known) + len(new) > CACHED:
            self._known = {(None, None): None}
            new = set(pairs) - self._known.keys()
        if new:
            self._learn(connection, sorted(new, key=repr))
        return [self._known[pair] for pair in pairs]

    def _learn(self, connection: Connection, new: list[AllocationText]) -> None:
        digests = {_digest(pair): pair for pair in new}
        for chunk in in_chunks(digests):
            query = select(allocation.c.digest, allocation.c.id).where(allocation.c.digest.in_(chunk))
            for digest, number in connection.execute(query):
                self._known[digests.pop(bytes(digest))] = number
        ids = self._ids.take(connection, allocation, len(digests))
        columns = ("id", "digest", "alloc_tres", "alloc_gres")
        rows = [(i, digest, *pair) for i, (digest, pair) in zip(ids, digests.items(), strict=True)]
        insert_rows(connection, allocation, columns, rows)
        gres = [
            row for i, (pair) in zip(ids, digests.values(), strict=True) for row in _gres_rows(i, pair[0])
        ]
        insert_rows(connection, allocation_gres, ("allocation_id", "position", "name", "type", "count"), gres)
        self._known.update(zip(digests.values(), ids, strict=True))


def _digest(pair: AllocationText) -> bytes:
    return hashlib.blake2b(repr(pair).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _gres_rows(number: int, tres: str | None) -> Iterable[tuple[int, int, str, str | None, int]]:
    if tres:
        for position, gres in enumerate(parse_tres(tres).gres):
            yield number, position, gres.name, gres.type, gres.count
