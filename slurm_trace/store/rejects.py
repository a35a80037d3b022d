"""Rows that could not be read: kept once, however often they come, and settled once they can be read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select, tuple_, update

from slurm_trace.accounting.records import RejectedRow
from slurm_trace.store.bulk import PARAMETERS, in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.fit import storable
from slurm_trace.store.models import import_log, rejected_row


def row_digest(raw: bytes) -> bytes:
    """What tells one row as received from another."""
    return hashlib.blake2b(raw, digest_size=16).digest()


class Rejects:
    """The rejected rows of one import.

    Args:
        ids: Hands out the numbers of new rows.
        table: Where they are kept.
        owner: Its column that says whose rows they are.
    """

    def __init__(self, ids: Ids, table: Table = rejected_row, owner: str = "cluster_id") -> None:
        self._ids, self._table, self._owner = ids, table, owner
        self._seen: Counter[bytes] = Counter()

    def add(
        self, connection: Connection, import_id: int, owner: int | str | None, rows: Sequence[RejectedRow]
    ) -> None:
        """Keep rows, or note that they were seen again."""
        table = self._table
        wanted: dict[tuple[bytes, int], RejectedRow] = {}
        for row in rows:
            digest = row_digest(row.raw)
            wanted[digest, self._seen[digest]] = row
            self._seen[digest] += 1
        again: list[dict[str, Any]] = []
        for chunk in in_chunks(wanted, PARAMETERS // 2):
            key = tuple_(table.c.digest, table.c.repetition)
            query = select(table.c.id, table.c.digest, table.c.repetition).where(key.in_(chunk))
            for number, digest, repetition in connection.execute(query):
                row = wanted.pop((bytes(digest), repetition))
                again.append(
                    {
                        "at_id": number,
                        "new_import_id": import_id,
                        "new_line": row.line,
                        "new_reason": storable(row.reason),
                    }
                )
        if again:
            names = ("import_id", "line", "reason")
            values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
            values["resolved_by"] = None
            connection.execute(update(table).where(table.c.id == bindparam("at_id")).values(values), again)
        ids = self._ids.take(connection, table, len(wanted))
        new = [
            (number, import_id, owner, *key, row.line, storable(row.reason), row.raw)
            for number, (key, row) in zip(ids, wanted.items(), strict=True)
        ]
        columns = ("id", "import_id", self._owner, "digest", "repetition", "line", "reason", "raw")
        insert_rows(connection, table, columns, new)

    def finish(
        self, connection: Connection, import_id: int, lone_cluster: int | None, digest: str | None
    ) -> None:
        """Settle whose rows they are, and which older ones of the same input could be read this time."""
        table = self._table
        mine = table.c.import_id == import_id
        if lone_cluster is not None:
            unknown = table.c[self._owner].is_(None)
            connection.execute(update(table).where(mine, unknown).values({self._owner: lone_cluster}))
        if digest is not None:
            same_input = select(import_log.c.id).where(
                import_log.c.digest == digest, import_log.c.id < import_id
            )
            connection.execute(
                update(table)
                .where(table.c.import_id.in_(same_input), table.c.resolved_by.is_(None))
                .values(resolved_by=import_id)
            )
