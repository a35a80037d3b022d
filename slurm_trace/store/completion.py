"""Which broken-off imports a later one has made good: the same input read whole, or the same time asked for again.

A name is no content: standard input is another each time, and a file may have been replaced. What an input from
outside is, its flag FILE says; without it a name is a question, and asked again it is answered anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select, update

from slurm_trace.store.models import import_log

FILE = "file"
"""Flag of an import: what tells the state of the file that is read; null where nothing does (see `settle_broken`)."""

Key = tuple[str, str, bool, Any]


def settle_broken(
    connection: Connection, import_id: int, kind: str, name: str, flags: Mapping[str, Any]
) -> list[str]:
    """Mark the imports that this one, now complete, has made good.

    Args:
        connection: Inside the transaction that completes it.
        import_id: The import that is complete.
        kind: Its kind.
        name: Its source.
        flags: What was asked of it. With FILE it makes good what was read of the same state of the same file.

    Returns:
        What to tell of imports of this name that may have been of other content.
    """
    mine = _key(kind, name, flags)
    open_ends = connection.execute(
        select(import_log.c.id, import_log.c.kind, import_log.c.name, import_log.c.flags).where(
            import_log.c.complete.is_(False), import_log.c.completed_by.is_(None), import_log.c.id < import_id
        )
    ).all()
    good = [
        entry.id
        for entry in open_ends
        if _is_same(_key(entry.kind, entry.name, json.loads(entry.flags)), mine)
        or _asked_again(connection, entry)
    ]
    if good:
        connection.execute(update(import_log).where(import_log.c.id.in_(good)).values(completed_by=import_id))
    return [
        f"import {entry.id} ({entry.name}) was not finished, and this input may be another; nothing it says is ruled "
        "out: import the same file again as it was, or all records into a new store"
        for entry in open_ends
        if (entry.kind, entry.name) == (kind, name) and entry.id not in good
    ]


def _key(kind: str, name: str, flags: Mapping[str, Any]) -> Key:
    return kind, name, FILE in flags, flags.get(FILE)


def _is_same(broken: Key, whole: Key) -> bool:
    *_, is_file, state = whole
    return broken == whole and (state is not None or not is_file)


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
