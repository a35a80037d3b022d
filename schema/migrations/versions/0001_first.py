"""The first schema."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

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


def upgrade() -> None:
    op.create_table(
        "cluster", _id(), Column("name", String(NAME_MAX), nullable=False, unique=True), **LIKE_BYTES
    )

    op.create_table(
        "import_log",
        _id(),
        Column("kind", String(32), nullable=False),
        Column("name", TEXT, nullable=False),
        Column("digest", String(64)),
        Column("clusters", TEXT, nullable=False, comment="JSON list of the clusters whose rows it brought"),
        Column("version", String(64), nullable=False, comment="version of slurm-trace that read it"),
        Column("started_at", BIG, nullable=False),
        Column("finished_at", BIG),
        Column("complete", Boolean, nullable=False),
        Column("completed_by", BIG, comment="later import of the same source that did finish"),
        Column("problem", TEXT, comment="why it did not finish"),
        Column("covers_from", BIG),
        Column("covers_to", BIG),
        Column("header", BYTES, comment="first line of the input as received"),
        Column("fields", TEXT),
        Column("delimiter", TEXT),
        Column("zone", TEXT),
        Column("flags", TEXT, nullable=False, comment="JSON object: what was asked of the source"),
        Column("read", BIG, nullable=False),
        Column("jobs", BIG, nullable=False),
        Column("inserted", BIG, nullable=False),
        Column("updated", BIG, nullable=False),
        Column("unchanged", BIG, nullable=False),
        Column("steps_skipped", BIG, nullable=False),
        Column("rejected", BIG, nullable=False),
        Column("warnings", TEXT, nullable=False, comment="JSON list"),
        **LIKE_BYTES,
    )

    op.create_table(
        "allocation",
        _id(),
        Column("digest", DIGEST, nullable=False, unique=True, comment="of the two texts below"),
        Column("alloc_tres", TEXT),
        Column("alloc_gres", TEXT),
        **LIKE_BYTES,
    )

    op.create_table(
        "allocation_gres",
        Column("allocation_id", BIG, ForeignKey("allocation.id"), primary_key=True, autoincrement=False),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("name", TEXT, nullable=False),
        Column("type", TEXT),
        Column("count", BIG, nullable=False),
        **LIKE_BYTES,
    )

    op.create_table(
        "raw_block",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        Column("raw", BYTES, nullable=False, comment="rows as received, joined"),
        **LIKE_BYTES,
    )

    op.create_table(
        "job_run",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        _ref("cluster_id", "cluster", nullable=False),
        Column("job_id_raw", BIG, nullable=False),
        Column("run_key", BIG, nullable=False, comment="submit, else start, else a negative digest"),
        Column("submit", BIG),
        Column("job_id", TEXT, nullable=False),
        Column("array_job_id", BIG),
        Column("het_job_id", BIG),
        Column("sluid", TEXT),
        Column("db_index", TEXT, comment="text: passes 2^63"),
        Column("name", TEXT),
        Column("user", TEXT),
        Column("uid", BIG),
        Column("account", TEXT),
        Column("partition", TEXT),
        Column("state", TEXT, nullable=False),
        Column("cancelled_by", BIG),
        Column("final", Boolean, nullable=False),
        Column("started", Boolean, nullable=False),
        Column("start", BIG),
        Column("end", BIG),
        Column("elapsed_s", BIG),
        Column("suspended_s", BIG),
        Column("limit_s", BIG),
        Column("node_count", BIG),
        Column("cpu_count", BIG),
        Column("node_list", TEXT),
        _ref("allocation_id", "allocation", comment="NULL: the source had neither AllocTRES nor AllocGRES"),
        Column("work_dir", TEXT),
        Column("step_end", BIG),
        Column("step_count", BIG),
        Column("queried_at", BIG),
        Column("source", TEXT, nullable=False),
        Column("flags", TEXT, nullable=False),
        Column("line", BIG, nullable=False),
        _ref("raw_block_id", "raw_block", comment="NULL: known by its steps alone, see step_row"),
        Column("raw_at", BIG),
        Column("raw_size", BIG),
        UniqueConstraint("cluster_id", "job_id_raw", "run_key"),
        **LIKE_BYTES,
    )

    op.create_table(
        "step_row",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        _ref("cluster_id", "cluster", nullable=False),
        Column("job_id_raw", BIG, nullable=False),
        Column("digest", DIGEST, nullable=False, comment="of what it says of the step"),
        _ref("run_id", "job_run", index=True, comment="the run it was counted for"),
        Column("job_id", TEXT, nullable=False),
        Column("start", BIG),
        Column("end", BIG),
        Column("finished", Boolean, nullable=False),
        Column("line", BIG, nullable=False),
        Column("raw", BYTES, nullable=False),
        UniqueConstraint("cluster_id", "job_id_raw", "digest"),
        **LIKE_BYTES,
    )

    op.create_table(
        "rejected_row",
        _id(),
        _ref("import_id", "import_log", nullable=False, index=True),
        _ref("cluster_id", "cluster", comment="NULL: which cluster it belongs to is not known"),
        Column("digest", DIGEST, nullable=False, comment="of the row as received"),
        Column("repetition", BIG, nullable=False, comment="n-th row of that text in one import"),
        Column("line", BIG, nullable=False),
        Column("reason", TEXT, nullable=False),
        Column("raw", BYTES, nullable=False),
        Column("resolved_by", BIG, comment="later import of the same input that could read it"),
        UniqueConstraint("digest", "repetition"),
        **LIKE_BYTES,
    )

    op.create_table(
        "event",
        _id(),
        _ref("import_id", "import_log", nullable=False),
        _ref("cluster_id", "cluster", nullable=False),
        Column("node", String(NAME_MAX), nullable=False, comment="empty: the cluster itself"),
        Column("start", BIG, nullable=False),
        Column("end", BIG, comment="NULL: still open"),
        Column("state", TEXT, nullable=False),
        Column("reason", TEXT, nullable=False),
        Column("tres", TEXT),
        Column("user", TEXT, nullable=False),
        UniqueConstraint("cluster_id", "node", "start"),
        **LIKE_BYTES,
    )

    op.create_table(
        "watermark",
        Column("cluster_id", BIG, ForeignKey("cluster.id"), primary_key=True, autoincrement=False),
        Column("source", String(32), primary_key=True),
        Column("until", BIG, nullable=False),
        _ref("import_id", "import_log", nullable=False),
        **LIKE_BYTES,
    )

    op.create_table(
        "verdict",
        Column("run_id", BIG, ForeignKey("job_run.id"), primary_key=True, autoincrement=False),
        Column("threshold", String(64), primary_key=True),
        Column("basis", String(32), primary_key=True),
        Column("trust", String(32), primary_key=True),
        Column("rates", String(64), nullable=False, comment="digest of the rate registry"),
        Column("evaluator", String(64), nullable=False),
        Column("bound", TEXT, comment="decimal digits: passes 2^63; NULL: unknown"),
        Column("verdict", String(32), nullable=False),
        Column("verdict_strict", String(32), nullable=False),
        Column("generated_at", BIG, nullable=False),
        **LIKE_BYTES,
    )


def downgrade() -> None:
    op.drop_table("verdict")
    op.drop_table("watermark")
    op.drop_table("event")
    op.drop_table("rejected_row")
    op.drop_table("step_row")
    op.drop_table("job_run")
    op.drop_table("raw_block")
    op.drop_table("allocation_gres")
    op.drop_table("allocation")
    op.drop_table("import_log")
    op.drop_table("cluster")
