"""Rows that could not be read: kept once, however often they come, and settled once they can be read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, tuple_, update

from slurm_trace.accounting.records import RejectedRow
from slurm_trace.store.bulk import PARAMETERS, in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.fit import storable
from slurm_trace.store.models import import_log, rejected_row

_COLUMNS = ("id", "import_id", "cluster_id", "digest", "repetition", "line", "reason", "raw")
_SEEN_AGAIN = (
    update(rejected_row)
    .where(rejected_row.c.id == bindparam("at_id"))
    .values(
        {name: bindparam(f"new_{name}") for name in ("import_id", "line", "reason")} | {"resolved_by": None}
    )
)


def row_digest(raw: bytes) -> bytes:
    """What tells one row as received from another."""
    return hashlib.blake2b(raw, digest_size=16).digest()


class Rejects:
    """The rejected rows of one import."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._seen: Counter[bytes] = Counter()

    def add(
        self, connection: Connection, import_id: int, cluster_id: int | None, rows: Sequence[RejectedRow]
    ) -> None:
        """Keep rows, or note that they were seen again."""
        wanted: dict[tuple[bytes, int], RejectedRow] = {}
        for row in rows:
            digest = row_digest(row.raw)
            wanted[digest, self._seen[digest]] = row
            self._seen[digest] += 1
        again: list[dict[str, Any]] = []
        for chunk in in_chunks(wanted, PARAMETERS // 2):
            key = tuple_(rejected_row.c.digest, rejected_row.c.repetition)
            query = select(rejected_row.c.id, rejected_row.c.digest, rejected_row.c.repetition).where(
                key.in_(chunk)
            )
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
            connection.execute(_SEEN_AGAIN, again)
        ids = self._ids.take(connection, rejected_row, len(wanted))
        new = [
            (number, import_id, cluster_id, *key, row.line, storable(row.reason), row.raw)
            for number, (key, row) in zip(ids, wanted.items(), strict=True)
        ]
        insert_rows(connection, rejected_row, _COLUMNS, new)

    def finish(
        self, connection: Connection, import_id: int, lone_cluster: int | None, digest: str | None
    ) -> None:
        """Settle whose rows they are, and which older ones of the same input could be read this time."""
        mine = rejected_row.c.import_id == import_id
        if lone_cluster is not None:
            unknown = rejected_row.c.cluster_id.is_(None)
            connection.execute(update(rejected_row).where(mine, unknown).values(cluster_id=lone_cluster))
        if digest is not None:
            same_input = select(import_log.c.id).where(
                import_log.c.digest == digest, import_log.c.id < import_id
            )
            connection.execute(
                update(rejected_row)
                .where(rejected_row.c.import_id.in_(same_input), rejected_row.c.resolved_by.is_(None))
                .values(resolved_by=import_id)
            )
