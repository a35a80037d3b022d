"""What the nodes saw: leases, spool files and what is worked out of them."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
)
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"

LIKE_BYTES: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
BIG = BigInteger().with_variant(Integer(), "sqlite")
TEXT = Text().with_variant(mysql.LONGTEXT(), "mariadb")
BYTES = LargeBinary().with_variant(mysql.LONGBLOB(), "mariadb")
DIGEST = LargeBinary(16).with_variant(mysql.BINARY(16), "mariadb")
NAME_MAX = 255


def _id() -> Column[int]:
    return Column("id", BIG, primary_key=True, autoincrement=False)


def _ref(name: str, target: str, **kwargs: Any) -> Column[int]:
    return Column(name, BIG, ForeignKey(f"{target}.id"), **kwargs)


def _part_of(name: str, target: str) -> Column[int]:
    return _ref(name, target, primary_key=True, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "interned",
        _id(),
        Column("digest", DIGEST, nullable=False, unique=True, comment="of the text"),
        Column("text", TEXT, nullable=False, comment="JSON that many rows share"),
        **LIKE_BYTES,
    )

    op.create_table(
        "lease",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        _ref("cluster_id", "cluster", nullable=False),
        Column(
            "digest",
            DIGEST,
            nullable=False,
            unique=True,
            comment="of the cluster and all that the hook wrote",
        ),
        Column("node", String(NAME_MAX), nullable=False, comment="empty: the hook did not know it"),
        Column("job_id_raw", BIG, nullable=False),
        Column("boot_id", String(64), nullable=False),
        Column("moment", BIG, nullable=False, comment="of the hook, in 1/100 s since boot"),
        Column("sluid", TEXT),
        Column("start_time", BIG),
        Column("het_job_id", BIG),
        Column("uid", BIG),
        Column("user", TEXT),
        Column("account", TEXT),
        Column("partition", TEXT),
        Column("gpus", TEXT, comment="Slurm's list of them; NULL: there was none"),
        Column("opened_at", BIG, comment="by the node's clock; NULL: an epilog without a prolog"),
        Column("seen_until", BIG, comment="end of the last part that is here"),
        Column("closed", String(32), comment="how it ended; NULL: its last part is not here"),
        Column("closed_at", BIG, comment="NULL: open, or when it ended is not known"),
        Column("attribution", String(32), nullable=False, comment="how its devices were found"),
        Column("device_count", BIG, comment="NULL: which devices it held is not known"),
        Column("part_count", BIG, nullable=False),
        Column("whole", Boolean, nullable=False, comment="every part up to the last is here, and once"),
        Column("covered_ms", BIG, nullable=False, comment="summed over its devices"),
        Column("gap_ms", BIG, nullable=False, comment="likewise"),
        _ref("run_id", "job_run", index=True),
        Column("joined_by", String(16), comment="sluid, start or overlap"),
        Column("joined_in", BIG, comment="import up to which its run was looked for"),
        Index("ix_lease_job", "cluster_id", "job_id_raw"),
        **LIKE_BYTES,
    )

    op.create_table(
        "spool_file",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        _ref("lease_id", "lease", nullable=False, index=True),
        Column("digest", String(64), nullable=False, unique=True, comment="SHA-256, as sealed on the node"),
        Column("name", TEXT, nullable=False),
        Column("size", BIG, nullable=False),
        _ref(
            "columns_id", "interned", nullable=False, comment="names and grains of the columns of its chunks"
        ),
        Column("part", BIG, nullable=False),
        Column(
            "from_ns", BIG, nullable=False, comment="CLOCK_BOOTTIME, as every _ns that is not of the wall"
        ),
        Column("to_ns", BIG),
        Column("from_at", BIG),
        Column("to_at", BIG),
        Column("closed", String(32), nullable=False),
        Column("attribution", String(32), nullable=False),
        Column("interval_ms", BIG),
        Column("version", TEXT),
        Column("driver_version", TEXT),
        Column("facts", TEXT, nullable=False, comment="JSON: the rest of its meta, clocks and tallies"),
        **LIKE_BYTES,
    )

    op.create_table(
        "lease_device",
        _part_of("spool_id", "spool_file"),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("uuid", String(NAME_MAX), nullable=False),
        Column("name", TEXT),
        Column("index", BIG),
        Column("minor", BIG),
        Column("pci", TEXT),
        Column("parent_uuid", TEXT),
        Column("mig_profile", TEXT),
        Column("sm_count", BIG),
        Column("memory_total_bytes", BIG),
        Column("power_scope", TEXT),
        _ref("facts_id", "interned", nullable=False, comment="the rest, with what could be read of it"),
        Column("covered_ms", BIG, nullable=False),
        Column("gap_ms", BIG, nullable=False),
        Column("samples", BIG, nullable=False),
        Column("invalid", BIG, nullable=False, comment="values that cannot be true, taken for none"),
        Column("utilization_ms", BIG, nullable=False, comment="covered time with a value"),
        Column("utilization_pct_ms", BIG, nullable=False, comment="sum of value x time"),
        Column("utilization_max_pct", BIG),
        Column("energy_mj", BIG),
        Column("energy_from", String(16), comment="counter, samples or power"),
        Column("energy_resets", BIG, nullable=False),
        Column("energy_first_mj", BIG, comment="first and last reading of the counter"),
        Column("energy_last_mj", BIG),
        Column("power_max_mw", BIG),
        Column("memory_used_max_bytes", BIG),
        Column("sm_clock_top_mhz", BIG, comment="highest seen"),
        Column("sm_clock_max_mhz", BIG, comment="highest that the driver allows"),
        **LIKE_BYTES,
    )

    op.create_table(
        "rollup_hour",
        _part_of("spool_id", "spool_file"),
        Column("number", Integer, primary_key=True, autoincrement=False, comment="of the device"),
        Column("hour", BIG, primary_key=True, autoincrement=False, comment="its begin, by the node's clock"),
        Column("covered_ms", BIG, nullable=False),
        Column("gap_ms", BIG, nullable=False),
        Column("utilization_ms", BIG, nullable=False),
        Column("utilization_pct_ms", BIG, nullable=False),
        Column("utilization_max_pct", BIG),
        Column("energy_mj", BIG),
        Column("energy_from", String(16), comment="samples or power"),
        Column("power_max_mw", BIG),
        Column("memory_used_max_bytes", BIG),
        Column("sm_clock_top_mhz", BIG),
        **LIKE_BYTES,
    )

    op.create_table(
        "counter_read",
        _part_of("spool_id", "spool_file"),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("number", Integer, nullable=False, comment="of the device"),
        Column("moment", String(32), nullable=False),
        Column("mono_ns", BIG, nullable=False),
        Column("took_ns", BIG, nullable=False),
        Column("wall_ns", BIG, nullable=False),
        Column("energy_mj", BIG),
        Column("pcie_tx_bytes", BIG),
        Column("pcie_rx_bytes", BIG),
        Column("sm_clock_max_mhz", BIG),
        Column("memory_clock_max_mhz", BIG),
        Column("gpm_sm_cycles_elapsed", BIG),
        Column("gpm_sm_cycles_active", BIG),
        Column("gpm_mma_cycles_active", BIG),
        Column("gpm_dmma_cycles_active", BIG),
        Column("gpm_hmma_cycles_active", BIG),
        Column("gpm_imma_cycles_active", BIG),
        Column("gpm_dfma_cycles_active", BIG),
        Column("gpm_pcie_tx_bytes", BIG),
        Column("gpm_pcie_rx_bytes", BIG),
        Column("gpm_integer_cycles_active", BIG),
        Column("gpm_fp64_cycles_active", BIG),
        Column("gpm_fp32_cycles_active", BIG),
        Column("gpm_fp16_cycles_active", BIG),
        **LIKE_BYTES,
    )

    op.create_table(
        "lease_gap",
        _part_of("spool_id", "spool_file"),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("number", Integer, comment="of the device; NULL: of all"),
        Column("from_ns", BIG, nullable=False),
        Column("to_ns", BIG, comment="NULL: until the end"),
        Column("reason", TEXT, nullable=False),
        **LIKE_BYTES,
    )

    op.create_table(
        "lease_event",
        _part_of("spool_id", "spool_file"),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("uuid", TEXT, comment="a device, or the card of one; NULL: the node"),
        Column("mono_ns", BIG, nullable=False),
        Column("wall_ns", BIG, nullable=False),
        Column("kind", TEXT, nullable=False),
        Column("detail", TEXT, nullable=False),
        **LIKE_BYTES,
    )

    op.create_table(
        "sample_chunk",
        _part_of("spool_id", "spool_file"),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("kind", TEXT, nullable=False),
        Column("first_ns", BIG, nullable=False),
        Column("last_ns", BIG, nullable=False),
        Column("last_at", BIG, nullable=False, index=True, comment="by the node's clock"),
        Column("samples", BIG, nullable=False),
        Column("data", BYTES, nullable=False, comment="as received"),
        **LIKE_BYTES,
    )

    op.create_table(
        "job_summary",
        _part_of("run_id", "job_run"),
        Column("leases", BIG, nullable=False),
        Column("nodes", BIG, nullable=False, comment="with a lease"),
        Column("gpus", BIG, comment="that its leases are known to have held; NULL: of none it is known"),
        Column("lease_end", BIG, comment="latest close of a lease"),
        Column("release_proven", Boolean, nullable=False, comment="every node of the run closed its lease"),
        Column("covered_ms", BIG, nullable=False, comment="summed over the devices, as what follows"),
        Column("gap_ms", BIG, nullable=False),
        Column("utilization_ms", BIG, nullable=False),
        Column("utilization_pct_ms", BIG, nullable=False),
        Column("utilization_max_pct", BIG),
        Column("energy_mj", BIG, comment="NULL: of some device it is not known"),
        Column("energy_from", String(16), comment="the weakest source that it rests on"),
        Column("energy_resets", BIG, nullable=False),
        Column("power_max_mw", BIG),
        Column("memory_used_max_bytes", BIG),
        Column("sm_clock_top_mhz", BIG),
        Column("sm_clock_max_mhz", BIG),
        Column("flags", TEXT, nullable=False, comment="kinds of its disagreements"),
        **LIKE_BYTES,
    )

    op.create_table(
        "disagreement",
        _part_of("run_id", "job_run"),
        Column("kind", String(32), primary_key=True),
        Column("node", String(NAME_MAX), primary_key=True, comment="empty: the run as a whole"),
        Column("recorded", BIG, comment="by accounting"),
        Column("seen", BIG, comment="on the node"),
        **LIKE_BYTES,
    )

    op.create_table(
        "spool_reject",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        Column("digest", DIGEST, nullable=False, unique=True, comment="of name and content"),
        Column("name", TEXT, nullable=False),
        Column("size", BIG),
        Column("sealed_as", String(64), index=True, comment="the SHA-256 in its name"),
        Column("reason", TEXT, nullable=False),
        Column("kept", TEXT, nullable=False, comment="where the file is"),
        Column("resolved_by", BIG, comment="later import that had the file undamaged"),
        **LIKE_BYTES,
    )


def downgrade() -> None:
    op.drop_table("spool_reject")
    op.drop_table("disagreement")
    op.drop_table("job_summary")
    op.drop_table("sample_chunk")
    op.drop_table("lease_event")
    op.drop_table("lease_gap")
    op.drop_table("counter_read")
    op.drop_table("rollup_hour")
    op.drop_table("lease_device")
    op.drop_table("spool_file")
    op.drop_table("lease")
    op.drop_table("interned")
