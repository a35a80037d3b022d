"""Which broken-off imports a later one has made good: the same input read whole, or the same time asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select, update

from slurm_trace.store.models import import_log


def settle_broken(connection: Connection, import_id: int, kind: str, name: str) -> None:
    """Mark the imports that this one, now complete, has made good.

    Args:
        connection: Inside the transaction that completes it.
        import_id: The import that is complete.
        kind: Its kind.
        name: Its source.
    """
    open_ends = connection.execute(
        select(import_log.c.id, import_log.c.kind, import_log.c.name, import_log.c.flags).where(
            import_log.c.complete.is_(False), import_log.c.completed_by.is_(None), import_log.c.id < import_id
        )
    ).all()
    good = [
        entry.id
        for entry in open_ends
        if (entry.kind, entry.name) == (kind, name) or _asked_again(connection, entry)
    ]
    if good:
        connection.execute(update(import_log).where(import_log.c.id.in_(good)).values(completed_by=import_id))


def _asked_again(connection: Connection, broken: Any) -> bool:
    """Whether the window of a live import is by now covered by later ones of the same cluster."""
    flags = json.loads(broken.flags)
    window = flags.get("asked")
    if window is None:
        return False
    later = connection.execute(
        select(import_log.c.covers_from, import_log.c.covers_to, import_log.c.flags).where(
            import_log.c.complete.is_(True),
            import_log.c.id > broken.id,
            import_log.c.covers_from.is_not(None),
        )
    )
    spans = [(row[0], row[1]) for row in later if json.loads(row[2]).get("cluster") == flags.get("cluster")]
    return _covered(spans, window[0], window[1])


def _covered(spans: Iterable[tuple[int, int]], since: int, until: int) -> bool:
    for first, last in sorted(spans):
        if first <= since:
            since = max(since, last)
    return since >= until
