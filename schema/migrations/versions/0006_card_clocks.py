"""The highest clock that was read of each model of card in each cluster, whatever run it was read for."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    String,
    Table,
    bindparam,
    column,
    func,
    select,
    table,
)

revision = "0006"
down_revision = "0005"

LIKE_BYTES: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
BIG = BigInteger().with_variant(Integer(), "sqlite")
NAME_MAX = 255
FILES_AT_ONCE = 5_000


def _part_of(name: str, target: str, **kwargs: Any) -> Column[int]:
    return Column(name, BIG, ForeignKey(f"{target}.id"), primary_key=True, autoincrement=False, **kwargs)


def upgrade() -> None:
    clocks = op.create_table(
        "card_clock",
        _part_of("cluster_id", "cluster"),
        _part_of("card_id", "interned", comment="JSON: its driver's name of it"),
        Column("clock_mhz", BIG, nullable=False, comment="highest that a driver allowed, or that was seen"),
        Column("node", String(NAME_MAX), nullable=False, comment="where it was read"),
        Column("uuid", String(NAME_MAX), nullable=False, comment="of which device"),
        **LIKE_BYTES,
    )
    _fill(clocks)


def downgrade() -> None:
    op.drop_table("card_clock")


def _fill(clocks: Table) -> None:
    connection = op.get_bind()
    files = table("spool_file", column("id"))
    last = connection.execute(select(func.max(files.c.id))).scalar() or 0
    query = _read_of_devices()
    found: dict[tuple[int, str | None], tuple[int, str, str]] = {}
    for after in range(0, last, FILES_AT_ONCE):
        for row in connection.execute(query, {"after": after, "upto": after + FILES_AT_ONCE}):
            clock_mhz = max(row.sm_clock_top_mhz or 0, row.sm_clock_max_mhz or 0)
            if clock_mhz:
                key, read = (row.cluster_id, row.name), (-clock_mhz, row.node, row.uuid)
                found[key] = min(read, found.get(key, read))
    rows = [
        (cluster_id, _interned(json.dumps(name)), -low, node, uuid)
        for (cluster_id, name), (low, node, uuid) in found.items()
    ]
    if rows:
        connection.execute(clocks.insert(), [dict(zip(clocks.c.keys(), row, strict=True)) for row in rows])


def _read_of_devices() -> Any:
    files = table("spool_file", column("id"), column("lease_id"))
    devices = table(
        "lease_device", *map(column, ("spool_id", "uuid", "name", "sm_clock_top_mhz", "sm_clock_max_mhz"))
    )
    leases = table("lease", *map(column, ("id", "cluster_id", "node")))
    told = (devices.c[name] for name in ("uuid", "name", "sm_clock_top_mhz", "sm_clock_max_mhz"))
    return (
        select(leases.c.cluster_id, leases.c.node, *told)
        .select_from(devices)
        .join(files, files.c.id == devices.c.spool_id)
        .join(leases, leases.c.id == files.c.lease_id)
        .where(devices.c.spool_id > bindparam("after"), devices.c.spool_id <= bindparam("upto"))
    )


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
