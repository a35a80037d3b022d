"""The highest clock that was read of each model of card in each cluster: allowed by its driver, or seen.

Follows from the spool files alone, whichever came first, and whatever run they are of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from slurm_trace.store.bulk import insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.engine import Store
from slurm_trace.store.interned import intern
from slurm_trace.store.models import card_clock, cluster, interned
from slurm_trace.store.spool_prepare import PreparedSpool

_COLUMNS = ("cluster_id", "card_id", "clock_mhz", "node", "uuid")


@dataclass(frozen=True, slots=True)
class CardClock:
    """The highest clock of a model, and where it was read. `card` None: its driver gave no name."""

    cluster: str
    card: str | None
    clock_mhz: int
    node: str
    uuid: str


def store_clocks(connection: Connection, ids: Ids, cluster_id: int, prepared: PreparedSpool) -> None:
    """Take a file into account, inside a transaction of the one writer."""
    found: dict[str | None, tuple[int, str, str]] = {}
    for device in prepared.checked.spool.devices:
        figures = prepared.figures[device.uuid]
        clock_mhz = max(figures.sm_clock_top_mhz or 0, figures.sm_clock_max_mhz or 0)
        if clock_mhz:
            read = (clock_mhz, prepared.checked.lease.node, device.uuid)
            found[device.name] = min(read, found.get(device.name, read), key=_highest_first)
    for name, read in found.items():
        card_id = intern(connection, ids, json.dumps(name))
        here = (card_clock.c.cluster_id == cluster_id, card_clock.c.card_id == card_id)
        known = connection.execute(
            select(*(card_clock.c[n] for n in _COLUMNS[2:])).where(*here)
        ).one_or_none()
        if known is None:
            insert_rows(connection, card_clock, _COLUMNS, [(cluster_id, card_id, *read)])
        elif _highest_first(read) < _highest_first(tuple(known)):
            told = dict(zip(_COLUMNS[2:], read, strict=True))
            connection.execute(update(card_clock).where(*here).values(told))


def _highest_first(read: tuple[int, str, str]) -> tuple[int, str, str]:
    """An order in which the highest clock comes first; of equal ones always the same."""
    return -read[0], read[1], read[2]


def load_clocks(store: Store) -> list[CardClock]:
    """The highest clock of each model and cluster."""
    query = (
        select(cluster.c.name, interned.c.text, *(card_clock.c[n] for n in _COLUMNS[2:]))
        .join_from(card_clock, cluster)
        .join(interned, interned.c.id == card_clock.c.card_id)
    )
    with store.reading() as connection:
        found = [CardClock(name, json.loads(text), *told) for name, text, *told in connection.execute(query)]
    return sorted(found, key=lambda one: (one.cluster, one.card or "", one.clock_mhz))
