"""Node and cluster events: Slurm keeps one for a node and a start; importing one again may only close it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from slurm_trace.accounting.events import Event
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.fit import storable
from slurm_trace.store.models import NAME_MAX, event
from slurm_trace.store.upsert import Counts

_TOLD = ("end", "state", "reason", "tres", "user")
_COLUMNS = ("id", "import_id", "cluster_id", "node", "start", *_TOLD)
_UPDATE = (
    update(event)
    .where(event.c.id == bindparam("at_id"))
    .values({name: bindparam(f"new_{name}") for name in ("import_id", *_TOLD)})
)


def keep_events(
    connection: Connection, import_id: int, ids: Ids, events: Sequence[tuple[int, Event]]
) -> Counts:
    """Store events, each given with the id of its cluster."""
    counts = Counts()
    wanted: dict[tuple[int, str, int], tuple[Any, ...]] = {}
    for cluster_id, one in events:
        key = (cluster_id, storable(one.node)[:NAME_MAX], one.start)
        told = (one.end, storable(one.state), storable(one.reason), _text(one.tres), storable(one.user))
        known = wanted.get(key)
        wanted[key] = told if known is None else _merge(known, told)
        counts.unchanged += known is not None
    stored = _stored(connection, {key[0] for key in wanted}, {key[2] for key in wanted})
    changed = []
    for key, told in wanted.items():
        if key in stored:
            number, known = stored[key]
            merged = _merge(known, told)
            if merged != known:
                names = {f"new_{name}": value for name, value in zip(_TOLD, merged, strict=True)}
                changed.append({"at_id": number, "new_import_id": import_id, **names})
    if changed:
        connection.execute(_UPDATE, changed)
    new = {key: told for key, told in wanted.items() if key not in stored}
    numbers = ids.take(connection, event, len(new))
    rows = [
        (number, import_id, *key, *told) for number, (key, told) in zip(numbers, new.items(), strict=True)
    ]
    insert_rows(connection, event, _COLUMNS, rows)
    counts.inserted, counts.updated = len(new), len(changed)
    counts.unchanged += len(wanted) - len(new) - len(changed)
    return counts


def _stored(
    connection: Connection, clusters: set[int], starts: set[int]
) -> dict[tuple[int, str, int], tuple[int, tuple[Any, ...]]]:
    found = {}
    columns = (event.c[name] for name in ("id", "cluster_id", "node", "start", *_TOLD))
    query = select(*columns).where(event.c.cluster_id.in_(clusters))
    for chunk in in_chunks(starts):
        for number, cluster_id, node, start, *told in connection.execute(
            query.where(event.c.start.in_(chunk))
        ):
            found[cluster_id, node, start] = (number, tuple(told))
    return found


def _merge(known: tuple[Any, ...], told: tuple[Any, ...]) -> tuple[Any, ...]:
    """An event once closed stays closed, at its latest end; of the rest the later import's word counts."""
    if told[0] is None and known[0] is not None:
        return known
    end = told[0] if known[0] is None else max(known[0], told[0])
    tres = known[3] if told[3] is None else told[3]
    return (end, told[1], told[2], tres, told[4])


def _text(value: str | None) -> str | None:
    return None if value is None else storable(value)
