"""What lowers a bound: cycles, busy time, and what bears them out."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer

revision = "0004"
down_revision = "0003"

LIKE_BYTES: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
BIG = BigInteger().with_variant(Integer(), "sqlite")


def _part_of(name: str, target: str) -> Column[int]:
    return Column(name, BIG, ForeignKey(f"{target}.id"), primary_key=True, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "sample_interval",
        _part_of("spool_id", "spool_file"),
        Column("number", Integer, primary_key=True, autoincrement=False, comment="of the device"),
        Column("place", Integer, primary_key=True, autoincrement=False),
        Column("from_ns", BIG, nullable=False, comment="begin of the counter read before, or of the file"),
        Column("to_ns", BIG, nullable=False, comment="end of the counter read after, or of the file"),
        Column("sampled_ms", BIG, nullable=False, comment="between samples of the clock, without a gap"),
        Column("clock_mhz_ms", BIG, nullable=False, comment="sum of the larger clock of two samples x time"),
        Column("utilization_max_pct", BIG),
        Column("power_max_mw", BIG),
        Column("process_max", BIG),
        **LIKE_BYTES,
    )

    op.create_table(
        "ring_busy",
        _part_of("spool_id", "spool_file"),
        Column("number", Integer, primary_key=True, autoincrement=False, comment="of the device"),
        Column("place", Integer, primary_key=True, autoincrement=False),
        Column("from_ms", BIG, nullable=False, comment="the driver's ring buffer has no hole from here"),
        Column("to_ms", BIG, nullable=False, comment="to here"),
        Column("busy_ms", BIG, nullable=False, comment="(u + 1) % of each of its samples"),
        **LIKE_BYTES,
    )

    op.create_table(
        "run_cycles",
        _part_of("run_id", "job_run"),
        _part_of("kind_id", "interned"),
        Column("seconds", BIG, nullable=False, comment="summed over its devices, as what follows"),
        Column("elapsed_kcycles", BIG, nullable=False, comment="of one SM each, in thousands, rounded up"),
        Column("active_kcycles", BIG, nullable=False),
        Column("tensor_kcycles", BIG, nullable=False),
        Column("dmma_kcycles", BIG, nullable=False, comment="where nothing but DMMA moved"),
        Column("vector_kcycles", BIG, nullable=False),
        Column("vector_fp_kcycles", BIG, nullable=False, comment="without the integer pipe"),
        Column("busy_ms", BIG, nullable=False),
        **LIKE_BYTES,
    )

    op.add_column("lease_device", Column("power_mj", BIG, comment="sampled power x covered time"))


def downgrade() -> None:
    op.drop_column("lease_device", "power_mj")
    op.drop_table("run_cycles")
    op.drop_table("ring_busy")
    op.drop_table("sample_interval")
