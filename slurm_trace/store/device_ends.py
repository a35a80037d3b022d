"""The first and the last counter read of each device of each file, kept apart: reports need no other of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import Connection, func, select

from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.bulk import NO_INTEGER, in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.engine import Store
from slurm_trace.store.interned import intern
from slurm_trace.store.models import cluster, device_ends, interned, spool_file
from slurm_trace.store.numbers import load_numbers
from slurm_trace.store.spool_check import COUNTER_HEAD, CheckedSpool
from slurm_trace.store.spool_prepare import PreparedSpool
from slurm_trace.store.stretches import ACTIVE, ENERGY

_COLUMNS = (
    "spool_id", "number", "lease_id", "card_id", "held_from_ns", "held_to_ns", "first_ns", "first_active",
    "first_energy", "last_ns", "last_active", "last_energy",
)  # fmt: skip
_LOADED = _COLUMNS[2:]
_TEXTS = ("cluster", "boot_id", "uuid", "driver", "name", "mig_profile")
_LIMITS = ("sm_count", "clock_max_mhz", "power_limit_mw")
_AT = (2, *(COUNTER_HEAD + COUNTER_NAMES.index(name) for name in (ACTIVE, ENERGY)))
"""Where in a counter read the moment and the two counters are."""


def store_ends(
    connection: Connection, ids: Ids, cluster_id: int, lease_id: int, spool_id: int, prepared: PreparedSpool
) -> None:
    """Store those of a file, inside a transaction of the one writer."""
    checked = prepared.checked
    first: dict[int, tuple[Any, ...]] = {}
    last: dict[int, tuple[Any, ...]] = {}
    for read in checked.counters:
        first.setdefault(read[0], read)
        last[read[0]] = read
    rows = []
    for device in checked.spool.devices:
        number = checked.numbers[device.uuid]
        if number in first:
            clock_max_mhz = prepared.figures[device.uuid].sm_clock_max_mhz
            card_id = intern(connection, ids, _card(cluster_id, checked, device, clock_max_mhz))
            told = (side[number][place] for side in (first, last) for place in _AT)
            rows.append((spool_id, number, lease_id, card_id, checked.from_ns, checked.to_ns, *told))
    insert_rows(connection, device_ends, _COLUMNS, rows)


def _card(cluster_id: int, checked: CheckedSpool, device: DeviceInfo, clock_max_mhz: int | None) -> str:
    """What is told of a card once for all that it was read under one boot; migration 0005 writes the same."""
    told = {
        "cluster_id": cluster_id,
        "boot_id": checked.lease.boot_id,
        "uuid": device.uuid,
        "driver": checked.driver_version,
        "name": device.name,
        "mig_profile": device.mig_profile,
        "sm_count": device.sm_count,
        "clock_max_mhz": clock_max_mhz,
        "power_limit_mw": device.power_limit_mw,
    }
    return json.dumps(told, sort_keys=True)


def count_spools(store: Store) -> int:
    """Spool files, roughly: the number of the last one."""
    with store.reading() as connection:
        return connection.execute(select(func.max(spool_file.c.id))).scalar() or 0


def load_ends(store: Store) -> pd.DataFrame:
    """Those of all files, see `analysis.unattributed`."""
    with store.reading() as connection:
        table = load_numbers(connection, [device_ends.c[name] for name in _LOADED])
        numbers = dict(zip(_LOADED, table.T, strict=True))
        codes, ids = pd.factorize(numbers.pop("card_id"))
        texts: dict[int, str] = {}
        for chunk in in_chunks(ids.tolist()):
            told = select(interned.c.id, interned.c.text).where(interned.c.id.in_(chunk))
            texts.update((row.id, row.text) for row in connection.execute(told))
        names = {row.id: row.name for row in connection.execute(select(cluster.c.id, cluster.c.name))}
    cards = [json.loads(texts[number]) for number in ids.tolist()]
    columns: dict[str, Any] = {}
    for name in _TEXTS:
        told_of = [names[card["cluster_id"]] if name == "cluster" else card[name] for card in cards]
        of_card = pd.Categorical(np.array(told_of, dtype=object))
        columns[name] = of_card.take(codes)
    for name in _LIMITS:
        columns[name] = pd.array([card[name] for card in cards], dtype="Int64").take(codes)
    for name, values in numbers.items():
        columns["lease" if name == "lease_id" else name] = pd.arrays.IntegerArray(
            np.ascontiguousarray(values), values == NO_INTEGER
        )
    return pd.DataFrame(columns, copy=False)
