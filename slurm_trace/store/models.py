"""The tables of the store. Times are UTC epoch seconds, durations seconds; NULL means "not given", never 0.

Migrations spell the same tables out by hand, and a test holds the two together on every supported database.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

from slurm_trace.node.fields import COUNTER_NAMES

REVISIONS: tuple[str, ...] = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Every schema revision this code knows, oldest first; the last one is the one it reads and writes."""

LIKE_BYTES: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
"""Otherwise MariaDB compares without case and trailing blanks: `a`, `A` and `a ` would be one name."""

BIG = BigInteger().with_variant(Integer(), "sqlite")
TEXT = Text().with_variant(mysql.LONGTEXT(), "mariadb")
BYTES = LargeBinary().with_variant(mysql.LONGBLOB(), "mariadb")
DIGEST = LargeBinary(16).with_variant(mysql.BINARY(16), "mariadb")

NAME_MAX = 255
"""Longest name that is part of a key (clusters and nodes; Slurm itself keeps them in 255 bytes)."""

metadata = MetaData()


def _id() -> Column[int]:
    return Column("id", BIG, primary_key=True, autoincrement=False)


def _ref(name: str, target: str, **kwargs: Any) -> Column[int]:
    return Column(name, BIG, ForeignKey(f"{target}.id"), **kwargs)


def _part_of(name: str, target: str) -> Column[int]:
    return _ref(name, target, primary_key=True, autoincrement=False)


cluster = Table(
    "cluster", metadata, _id(), Column("name", String(NAME_MAX), nullable=False, unique=True), **LIKE_BYTES
)

import_log = Table(
    "import_log",
    metadata,
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

allocation = Table(
    "allocation",
    metadata,
    _id(),
    Column("digest", DIGEST, nullable=False, unique=True, comment="of the two texts below"),
    Column("alloc_tres", TEXT),
    Column("alloc_gres", TEXT),
    **LIKE_BYTES,
)

allocation_gres = Table(
    "allocation_gres",
    metadata,
    Column("allocation_id", BIG, ForeignKey("allocation.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", TEXT, nullable=False),
    Column("type", TEXT),
    Column("count", BIG, nullable=False),
    **LIKE_BYTES,
)

raw_block = Table(
    "raw_block",
    metadata,
    _id(),
    _ref("import_id", "import_log", nullable=False),
    Column("raw", BYTES, nullable=False, comment="rows as received, joined"),
    **LIKE_BYTES,
)

job_run = Table(
    "job_run",
    metadata,
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

step_row = Table(
    "step_row",
    metadata,
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

rejected_row = Table(
    "rejected_row",
    metadata,
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

event = Table(
    "event",
    metadata,
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

watermark = Table(
    "watermark",
    metadata,
    Column("cluster_id", BIG, ForeignKey("cluster.id"), primary_key=True, autoincrement=False),
    Column("source", String(32), primary_key=True),
    Column("until", BIG, nullable=False),
    _ref("import_id", "import_log", nullable=False),
    **LIKE_BYTES,
)

verdict = Table(
    "verdict",
    metadata,
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

# What the nodes saw. A row that comes from a spool file is written once and never changed; what is told of a lease,
# and of a run by its leases, is worked out of those rows anew.

interned = Table(
    "interned",
    metadata,
    _id(),
    Column("digest", DIGEST, nullable=False, unique=True, comment="of the text"),
    Column("text", TEXT, nullable=False, comment="JSON that many rows share"),
    **LIKE_BYTES,
)

lease = Table(
    "lease",
    metadata,
    _id(),
    _ref("import_id", "import_log", nullable=False),
    _ref("cluster_id", "cluster", nullable=False),
    Column(
        "digest", DIGEST, nullable=False, unique=True, comment="of the cluster and all that the hook wrote"
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

spool_file = Table(
    "spool_file",
    metadata,
    _id(),
    _ref("import_id", "import_log", nullable=False),
    _ref("lease_id", "lease", nullable=False, index=True),
    Column("digest", String(64), nullable=False, unique=True, comment="SHA-256, as sealed on the node"),
    Column("name", TEXT, nullable=False),
    Column("size", BIG, nullable=False),
    _ref("columns_id", "interned", nullable=False, comment="names and grains of the columns of its chunks"),
    Column("part", BIG, nullable=False),
    Column("from_ns", BIG, nullable=False, comment="CLOCK_BOOTTIME, as every _ns that is not of the wall"),
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

lease_device = Table(
    "lease_device",
    metadata,
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
    Column("power_mj", BIG, comment="sampled power x covered time"),
    Column("energy_resets", BIG, nullable=False),
    Column("energy_first_mj", BIG, comment="first and last reading of the counter"),
    Column("energy_last_mj", BIG),
    Column("power_max_mw", BIG),
    Column("memory_used_max_bytes", BIG),
    Column("sm_clock_top_mhz", BIG, comment="highest seen"),
    Column("sm_clock_max_mhz", BIG, comment="highest that the driver allows"),
    Column("process_max", BIG, comment="most compute processes at once; NULL: not read"),
    **LIKE_BYTES,
)

rollup_hour = Table(
    "rollup_hour",
    metadata,
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

counter_read = Table(
    "counter_read",
    metadata,
    _part_of("spool_id", "spool_file"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, nullable=False, comment="of the device"),
    Column("moment", String(32), nullable=False),
    Column("mono_ns", BIG, nullable=False),
    Column("took_ns", BIG, nullable=False),
    Column("wall_ns", BIG, nullable=False),
    *(Column(name, BIG) for name in COUNTER_NAMES),
    **LIKE_BYTES,
)

device_ends = Table(
    "device_ends",
    metadata,
    _part_of("spool_id", "spool_file"),
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

card_clock = Table(
    "card_clock",
    metadata,
    _part_of("cluster_id", "cluster"),
    _ref(
        "card_id", "interned", primary_key=True, autoincrement=False, comment="JSON: its driver's name of it"
    ),
    Column("clock_mhz", BIG, nullable=False, comment="highest that a driver allowed, or that was seen"),
    Column("node", String(NAME_MAX), nullable=False, comment="where it was read"),
    Column("uuid", String(NAME_MAX), nullable=False, comment="of which device"),
    **LIKE_BYTES,
)

lease_gap = Table(
    "lease_gap",
    metadata,
    _part_of("spool_id", "spool_file"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, comment="of the device; NULL: of all"),
    Column("from_ns", BIG, nullable=False),
    Column("to_ns", BIG, comment="NULL: until the end"),
    Column("reason", TEXT, nullable=False),
    **LIKE_BYTES,
)

lease_event = Table(
    "lease_event",
    metadata,
    _part_of("spool_id", "spool_file"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("uuid", TEXT, comment="a device, or the card of one; NULL: the node"),
    Column("mono_ns", BIG, nullable=False),
    Column("wall_ns", BIG, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("detail", TEXT, nullable=False),
    **LIKE_BYTES,
)

sample_chunk = Table(
    "sample_chunk",
    metadata,
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

sample_interval = Table(
    "sample_interval",
    metadata,
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

ring_busy = Table(
    "ring_busy",
    metadata,
    _part_of("spool_id", "spool_file"),
    Column("number", Integer, primary_key=True, autoincrement=False, comment="of the device"),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("from_ms", BIG, nullable=False, comment="the driver's ring buffer has no hole from here"),
    Column("to_ms", BIG, nullable=False, comment="to here"),
    Column("busy_ms", BIG, nullable=False, comment="(u + 1) % of each of its samples"),
    **LIKE_BYTES,
)

run_cycles = Table(
    "run_cycles",
    metadata,
    _part_of("run_id", "job_run"),
    _ref("kind_id", "interned", primary_key=True, autoincrement=False),
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

job_summary = Table(
    "job_summary",
    metadata,
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
    Column("process_max", BIG, comment="most at once on one device; NULL: of some device it is not known"),
    **LIKE_BYTES,
)

disagreement = Table(
    "disagreement",
    metadata,
    _part_of("run_id", "job_run"),
    Column("kind", String(32), primary_key=True),
    Column("node", String(NAME_MAX), primary_key=True, comment="empty: the run as a whole"),
    Column("recorded", BIG, comment="by accounting"),
    Column("seen", BIG, comment="on the node"),
    **LIKE_BYTES,
)

spool_reject = Table(
    "spool_reject",
    metadata,
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

# What a cloud provider charged for. Nothing here belongs to a cluster.

feed_charge = Table(
    "feed_charge",
    metadata,
    _id(),
    _ref("import_id", "import_log", nullable=False),
    Column(
        "digest", DIGEST, nullable=False, unique=True, comment="of its key and its repetition in one import"
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
    Column("used_s", BIG, comment="charged time of all instances; NULL: not known, not positive: a credit"),
    Column("quantity", BIG, comment="instances at a time"),
    Column("cost", TEXT, comment="decimal, as given"),
    Column("currency", TEXT),
    Column("flags", TEXT, nullable=False),
    Column("line", BIG, nullable=False),
    Column("raw", BYTES, nullable=False),
    **LIKE_BYTES,
)

feed_reject = Table(
    "feed_reject",
    metadata,
    _id(),
    _ref("import_id", "import_log", nullable=False, index=True),
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


def create_schema(connection: Connection) -> None:
    """Create every table of the newest revision in an empty database, as the migrations would one after the other.

    Args:
        connection: A connection inside a transaction; the caller commits.
    """
    metadata.create_all(connection, checkfirst=False)
    # Alembic's own table, written by hand: it is read at every opening, and Alembic is slow to import.
    version = Table(
        "alembic_version", MetaData(), Column("version_num", String(32), primary_key=True), **LIKE_BYTES
    )
    version.create(connection)
    connection.execute(version.insert().values(version_num=REVISIONS[-1]))
