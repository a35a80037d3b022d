"""What a cloud provider charged for."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"

LIKE_BYTES: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
BIG = BigInteger().with_variant(Integer(), "sqlite")
TEXT = Text().with_variant(mysql.LONGTEXT(), "mariadb")
BYTES = LargeBinary().with_variant(mysql.LONGBLOB(), "mariadb")
DIGEST = LargeBinary(16).with_variant(mysql.BINARY(16), "mariadb")


def _id() -> Column[int]:
    return Column("id", BIG, primary_key=True, autoincrement=False)


def _import(**kwargs: Any) -> Column[int]:
    return Column("import_id", BIG, ForeignKey("import_log.id"), nullable=False, **kwargs)


def upgrade() -> None:
    op.create_table(
        "feed_charge",
        _id(),
        _import(),
        Column(
            "digest",
            DIGEST,
            nullable=False,
            unique=True,
            comment="of its key and its repetition in one import",
        ),
        Column("provider", TEXT, nullable=False, comment="empty: not given"),
        Column("account", TEXT, nullable=False),
        Column("resource", TEXT, nullable=False, comment="empty: not given"),
        Column("sku", TEXT, nullable=False),
        Column("meter", TEXT, comment="a second name of the SKU"),
        Column("service_category", TEXT),
        Column("charge_category", TEXT),
        Column("start", BIG, nullable=False),
        Column("end", BIG, nullable=False),
        Column(
            "used_s", BIG, comment="charged time of all instances; NULL: not known, not positive: a credit"
        ),
        Column("quantity", BIG, comment="instances at a time"),
        Column("cost", TEXT, comment="decimal, as given"),
        Column("currency", TEXT),
        Column("flags", TEXT, nullable=False),
        Column("line", BIG, nullable=False),
        Column("raw", BYTES, nullable=False),
        **LIKE_BYTES,
    )

    op.create_table(
        "feed_reject",
        _id(),
        _import(index=True),
        Column("account", TEXT, comment="NULL: whose row it is, is not known"),
        Column("digest", DIGEST, nullable=False, comment="of the row as received"),
        Column("repetition", BIG, nullable=False, comment="n-th row of that text in one import"),
        Column("line", BIG, nullable=False),
        Column("reason", TEXT, nullable=False),
        Column("raw", BYTES, nullable=False),
        Column("resolved_by", BIG, comment="later import of the same input that could read it"),
        UniqueConstraint("digest", "repetition"),
        **LIKE_BYTES,
    )


def downgrade() -> None:
    op.drop_table("feed_reject")
    op.drop_table("feed_charge")
