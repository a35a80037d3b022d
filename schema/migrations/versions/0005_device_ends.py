"""The first and the last counter read of each device of each file, as reports ask for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, Table, bindparam, column, func, select, table

revision = "0005"
down_revision = "0004"

LIKE_BYTES: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
BIG = BigInteger().with_variant(Integer(), "sqlite")
FILES_AT_ONCE = 5_000
CARD = ("cluster_id", "boot_id", "uuid", "driver", "name", "mig_profile", "sm_count", "clock_max_mhz")


def _ref(name: str, target: str, **kwargs: Any) -> Column[int]:
    return Column(name, BIG, ForeignKey(f"{target}.id"), **kwargs)


def upgrade() -> None:
    ends = op.create_table(
        "device_ends",
        _ref("spool_id", "spool_file", primary_key=True, autoincrement=False),
        Column("number", Integer, primary_key=True, autoincrement=False, comment="of the device"),
        _ref("lease_id", "lease", nullable=False),
        _ref("card_id", "interned", nullable=False, comment="what it is, and since which boot it counts"),
        Column("held_from_ns", BIG, nullable=False, comment="begin of the file"),
        Column("held_to_ns", BIG, comment="its end"),
        Column("first_ns", BIG, nullable=False, comment="first counter read of the device in the file"),
        Column("first_active", BIG, comment="SM cycles active, as then read"),
        Column("first_energy", BIG, comment="mJ, likewise"),
        Column("last_ns", BIG, nullable=False, comment="last counter read"),
        Column("last_active", BIG),
        Column("last_energy", BIG),
        **LIKE_BYTES,
    )
    _fill(ends)


def downgrade() -> None:
    op.drop_table("device_ends")


def _fill(ends: Table) -> None:
    connection = op.get_bind()
    spool_file = table("spool_file", column("id"))
    last = connection.execute(select(func.max(spool_file.c.id))).scalar() or 0
    query = _read_of_devices()
    cards: dict[str, int] = {}
    for after in range(0, last, FILES_AT_ONCE):
        rows = connection.execute(query, {"after": after, "upto": after + FILES_AT_ONCE}).mappings().all()
        if rows:
            connection.execute(ends.insert(), list(_told(rows, cards)))


def _read_of_devices() -> Any:
    reads = table(
        "counter_read",
        *map(column, ("spool_id", "position", "number", "mono_ns", "gpm_sm_cycles_active", "energy_mj")),
    )
    files = table("spool_file", *map(column, ("id", "lease_id", "from_ns", "to_ns", "driver_version")))
    devices = table(
        "lease_device",
        *map(column, ("spool_id", "number", "uuid", "name", "mig_profile", "sm_count")),
        *map(column, ("sm_clock_max_mhz", "facts_id")),
    )
    leases = table("lease", *map(column, ("id", "cluster_id", "boot_id")))
    interned = table("interned", column("id"), column("text"))
    place = reads.c.position
    span = (
        select(reads.c.spool_id, reads.c.number, func.min(place).label("a"), func.max(place).label("b"))
        .where(reads.c.spool_id > bindparam("after"), reads.c.spool_id <= bindparam("upto"))
        .group_by(reads.c.spool_id, reads.c.number)
        .subquery()
    )
    first, last = reads.alias(), reads.alias()
    return (
        select(
            span.c.spool_id,
            span.c.number,
            files.c.lease_id,
            leases.c.cluster_id,
            leases.c.boot_id,
            devices.c.uuid,
            files.c.driver_version.label("driver"),
            devices.c.name,
            devices.c.mig_profile,
            devices.c.sm_count,
            devices.c.sm_clock_max_mhz.label("clock_max_mhz"),
            interned.c.text.label("facts"),
            files.c.from_ns.label("held_from_ns"),
            files.c.to_ns.label("held_to_ns"),
            first.c.mono_ns.label("first_ns"),
            first.c.gpm_sm_cycles_active.label("first_active"),
            first.c.energy_mj.label("first_energy"),
            last.c.mono_ns.label("last_ns"),
            last.c.gpm_sm_cycles_active.label("last_active"),
            last.c.energy_mj.label("last_energy"),
        )
        .select_from(span)
        .join(first, (first.c.spool_id == span.c.spool_id) & (first.c.position == span.c.a))
        .join(last, (last.c.spool_id == span.c.spool_id) & (last.c.position == span.c.b))
        .join(devices, (devices.c.spool_id == span.c.spool_id) & (devices.c.number == span.c.number))
        .join(interned, interned.c.id == devices.c.facts_id)
        .join(files, files.c.id == span.c.spool_id)
        .join(leases, leases.c.id == files.c.lease_id)
        .order_by(span.c.spool_id, span.c.number)
    )


def _told(rows: Any, cards: dict[str, int]) -> Iterator[dict[str, Any]]:
    for row in rows:
        card = {name: row[name] for name in CARD}
        card["power_limit_mw"] = json.loads(row["facts"]).get("power_limit_mw")
        text = json.dumps(card, sort_keys=True)
        if text not in cards:
            cards[text] = _interned(text)
        told = {name: value for name, value in row.items() if name not in CARD and name != "facts"}
        yield {**told, "card_id": cards[text]}


def _interned(text: str) -> int:
    """The id of a text, as the store interns it."""
    interned = table("interned", column("id"), column("digest"), column("text"))
    connection = op.get_bind()
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    known = connection.execute(select(interned.c.id).where(interned.c.digest == digest)).scalar()
    if known is not None:
        return int(known)
    number = (connection.execute(select(func.max(interned.c.id))).scalar() or 0) + 1
    connection.execute(interned.insert().values(id=number, digest=digest, text=text))
    return number
