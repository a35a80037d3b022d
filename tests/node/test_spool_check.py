"""Spool files come from nodes where a job may have been root: whatever one holds, it is taken in or kept aside."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_trace.node.columns import Part, encode
from slurm_trace.node.spool import Event
from slurm_trace.store import spool_check, spool_copy
from slurm_trace.store.spool_prepare import PreparedSpool, RejectedSpool, prepare
from support.spools import counter, gap, seal, spool

EVERYTHING = {
    "counters": [counter(10, energy_mj=5, moment="start"), counter(110, energy_mj=9, moment="end")],
    "gaps": [gap(10, 11), gap(20, 30, None)],
    "events": [Event(6_000 * 10**9, 1_700_000_000 * 10**9, "GPU-0", "xid", "48")],
}


@pytest.fixture
def scratch(tmp_path):
    """Where copies go."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def outbox(tmp_path):
    folder = tmp_path / "outbox"
    folder.mkdir()
    return folder


def sql(*statements):
    def change(file):
        for statement in statements:
            file.execute(*statement) if isinstance(statement, tuple) else file.execute(statement)

    return change


def test_a_good_file(outbox, scratch):
    path = spool(outbox, **EVERYTHING, sluid="s0123", start_time="1700000009", gpus="0,1")
    found = prepare(path, scratch)
    assert isinstance(found, PreparedSpool)
    lease = found.checked.lease
    assert (lease.job_id, lease.sluid, lease.start_time, lease.uid) == (1, "s0123", 1_700_000_009, 1000)
    assert path.exists()


CHUNK = "UPDATE chunk SET data = ?"
BOMB = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
BOMB_BYTES = BOMB.compress(bytes(1 << 28)) + BOMB.flush()
WIDE = encode([Part(1, tuple([[1] * ((1 << 19) + 1)] * 16))], [1] * 16)
MANY = encode([Part(1, tuple([[None] * 1000] * 16))] * 20_000, [1] * 16)

CHANGES = {
    "a view in place of a table": ["DROP TABLE gap", "CREATE VIEW gap AS SELECT * FROM meta"],
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END"],
    "an index over an expression": ["CREATE INDEX i ON meta (length(key))"],
    "another table": ["CREATE TABLE other (x)"],
    "a missing table": ["DROP TABLE tally"],
    "a virtual table": [
        "DROP TABLE gap",
        "CREATE VIRTUAL TABLE gap USING fts5 (uuid, from_ns, to_ns, reason)",
    ],
    "a column that is worked out": [
        "DROP TABLE clock",
        "CREATE TABLE clock (mono_ns INTEGER, wall_ns AS (length(zeroblob(500000000))))",
        "INSERT INTO clock (mono_ns) VALUES (1)",
    ],
    "too many rows": [
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200001) "
        "INSERT INTO gap SELECT NULL, i, i + 1, 'x' FROM n"
    ],
    "too many devices": [
        "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
        "INSERT INTO device (number, uuid, name, capability) SELECT i, 'G' || i, 'x', '{}' FROM n"
    ],
    "a bomb of zeros": [(CHUNK, (BOMB_BYTES,))],
    "a bomb of equal values": [(CHUNK, (WIDE,))],
    "a bomb of nothing": [(CHUNK, (MANY,))],
    "a huge chunk": [(CHUNK, (bytes(5 << 20),))],
    "text for a chunk": [(CHUNK, ("x",))],
    "no bytes": [(CHUNK, (b"",))],
    "an unknown device in a chunk": ["UPDATE device SET number = number + 7"],
    "another format": ["UPDATE meta SET value = 99 WHERE key = 'format'"],
    "never closed": ["DELETE FROM meta WHERE key = 'closed'"],
    "no job": ["DELETE FROM meta WHERE key = 'lease.job_id'"],
    "SQL for a job": ["UPDATE meta SET value = '1; DROP TABLE job_run' WHERE key = 'lease.job_id'"],
    "SQL for a node": ["UPDATE meta SET value = 'n1''); DROP TABLE job_run; --' WHERE key = 'lease.node'"],
    "a job of nought": ["UPDATE meta SET value = '0' WHERE key = 'lease.job_id'"],
    "digits of another script": ["UPDATE meta SET value = '\u0661' WHERE key = 'lease.job_id'"],
    "a NUL in a name": ["UPDATE meta SET value = 'a' || char(0) || 'b' WHERE key = 'lease.user'"],
    "bytes that are no text": ["UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE key = 'lease.user'"],
    "a blob as a key": ["INSERT INTO meta VALUES (x'00', 5)"],
    "a long value": ["INSERT INTO meta SELECT 'long', group_concat(hex(zeroblob(10000)), '')"],
    "an end before the begin": ["UPDATE meta SET value = 5 WHERE key = 'to_ns'"],
    "a part of centuries": ["UPDATE meta SET value = 9000000000000000000 WHERE key = 'to_ns'"],
    "an end in the year 5000": ["UPDATE meta SET value = 9100000000000000000 WHERE key = 'to_wall_ns'"],
    "a part that is no number": ["UPDATE meta SET value = 'x' WHERE key = 'part'"],
    "an attribution of another kind": ["UPDATE meta SET value = 'sure' WHERE key = 'attribution'"],
    "columns without a time": ["UPDATE meta SET value = '[[\"x\", 1]]' WHERE key = 'sample_columns'"],
    "columns nested too deep": [
        ("UPDATE meta SET value = ? WHERE key = 'sample_columns'", ("[" * 10_000 + "]" * 10_000,))
    ],
    "a huge grain": [
        "UPDATE meta SET value = replace(value, '100]', '1' || hex(zeroblob(500)) || ']') "
        "WHERE key = 'sample_columns'"
    ],
    "a device of an empty name": ["UPDATE device SET uuid = '' WHERE number = 1"],
    "a device of no name": ["UPDATE device SET uuid = NULL"],
    "a capability that is no object": ["UPDATE device SET capability = '[1]'"],
    "a gap of a stranger": ["UPDATE gap SET uuid = 'GPU-9'"],
    "a gap of text": ["UPDATE gap SET from_ns = 'x'"],
    "a fraction of a nanosecond": ["UPDATE gap SET from_ns = 1.5"],
    "a time below nought": ["UPDATE gap SET from_ns = -1"],
    "infinity": ["UPDATE event SET mono_ns = 9e999"],
    "an event without a kind": ["UPDATE event SET kind = NULL"],
    "a read that ends beyond all time": ["UPDATE counter_read SET took_ns = 9223372036854775807"],
    "counters of text": ["UPDATE counter_read SET energy_mj = 'x'"],
    "counters of a fraction": ["UPDATE counter_read SET energy_mj = 1.5"],
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_forged_file_is_kept_aside(outbox, scratch, what):
    path = spool(outbox, **EVERYTHING, change=sql(*CHANGES[what]))
    began = time.monotonic()
    found = prepare(path, scratch)
    assert isinstance(found, RejectedSpool), what
    assert "\n" not in found.reason
    assert str(scratch) not in found.reason
    assert time.monotonic() - began < 20
    assert list(scratch.iterdir()) == []


def test_counters_that_cannot_be_true_are_none(outbox, scratch):
    path = spool(outbox, counters=[counter(10, energy_mj=2**63 - 1), counter(20, energy_mj=-5)])
    found = prepare(path, scratch)
    assert isinstance(found, PreparedSpool)
    assert [row[spool_check.COUNTER_HEAD] for row in found.checked.counters] == [None, None]
    assert found.figures["GPU-0"].invalid == 2


def test_a_file_that_was_cut_or_changed(outbox, scratch):
    path = spool(outbox)
    whole = path.read_bytes()
    for data in (b"", whole[:100], whole[:-1], whole + b"x", whole[:5000] + b"\xff" + whole[5001:]):
        path.write_bytes(data)
        os.utime(path, (1, 1))
        found = prepare(path, scratch)
        assert isinstance(found, RejectedSpool)
        assert "SHA-256" in found.reason
        assert found.kept == str(outbox / "damaged" / path.name)
        assert not path.exists()


def test_a_file_on_its_way_stays(outbox, scratch):
    path = spool(outbox)
    path.write_bytes(path.read_bytes()[:2000])
    found = prepare(path, scratch)
    assert isinstance(found, RejectedSpool)
    assert found.kept == str(path)
    assert path.exists()


def test_a_damaged_file_in_the_folder_for_them_stays(outbox, scratch):
    (outbox / "damaged").mkdir()
    path = spool(outbox / "damaged")
    path.write_bytes(b"x")
    os.utime(path, (1, 1))
    found = prepare(path, scratch)
    assert isinstance(found, RejectedSpool)
    assert found.kept == str(path)


def test_the_folder_for_them_is_a_file(outbox, scratch):
    (outbox / "damaged").write_text("")
    path = spool(outbox)
    path.write_bytes(b"x")
    os.utime(path, (1, 1))
    found = prepare(path, scratch)
    assert isinstance(found, RejectedSpool)
    assert found.kept == str(path)


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "device", "gone", "large", "unnamed"])
def test_what_is_no_file(outbox, scratch, kind, monkeypatch):
    path = spool(outbox)
    if kind == "large":
        monkeypatch.setattr(spool_copy, "MAX_BYTES", 1000)
    elif kind == "unnamed":
        path = path.rename(outbox / "x.spool")
    else:
        other = path.rename(outbox / "x")
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to(other)
        elif kind == "folder":
            path.mkdir()
        elif kind == "device":
            path.symlink_to("/dev/zero")
    found = prepare(path, scratch)
    if kind == "gone":
        assert found is None
    else:
        assert isinstance(found, RejectedSpool)
        assert list(scratch.iterdir()) == []


def test_bytes_flipped_before_it_was_sealed(outbox, scratch):
    whole = spool(outbox, **EVERYTHING).read_bytes()
    chance = random.Random(5)
    kinds = set()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 50))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        raw = outbox / "raw"
        raw.write_bytes(data)
        path = seal(raw, "c_n1_1_500")
        found = prepare(path, scratch)
        kinds.add(type(found))
        for left in (path, scratch / path.name):
            left.unlink(missing_ok=True)
    assert kinds == {PreparedSpool, RejectedSpool}


CELLS = [
    ("meta", "value"), ("meta", "key"), ("clock", "mono_ns"), ("device", "number"), ("device", "uuid"),
    ("device", "name"),
    ("device", "minor"), ("device", "virtual"), ("device", "capability"), ("device", "max_sm_mhz"),
    ("counter_read", "moment"), ("counter_read", "mono_ns"), ("counter_read", "wall_ns"), ("counter_read", "energy_mj"),
    ("chunk", "kind"), ("chunk", "first_ns"), ("chunk", "last_ns"), ("chunk", "n"), ("chunk", "data"), ("gap", "uuid"),
    ("gap", "from_ns"), ("gap", "to_ns"), ("gap", "reason"), ("event", "uuid"), ("event", "mono_ns"), ("event", "kind"),
    ("event", "detail"), ("tally", "n"), ("tally", "reason"),
]  # fmt: skip
VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=20), st.binary(max_size=20),
    st.sampled_from(["", "0", "-1", "1e400", "nan", "x" * 9000, "';--", "[]", "{}", "null", "\x1b[31m"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cell=st.sampled_from(CELLS), value=VALUES, which=st.integers(0, 40))
def test_any_value_in_any_place(outbox, scratch, cell, value, which):
    table, column = cell

    def change(file):
        with contextlib.suppress(sqlite3.IntegrityError, UnicodeEncodeError):
            file.execute("INSERT INTO tally VALUES ('GPU-0', 'power_mw', 'lost', 3)")
            keys = {"meta": "key", "tally": "uuid"}
            key = keys.get(table, "rowid")
            rows = [row[0] for row in file.execute(f"SELECT {key} FROM {table} ORDER BY 1")]
            file.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, rows[which % len(rows)]))

    path = spool(outbox, **EVERYTHING, change=change)
    try:
        assert isinstance(prepare(path, scratch), (PreparedSpool, RejectedSpool))
    finally:
        for left in (path, scratch / path.name):
            left.unlink(missing_ok=True)


def test_samples_of_absurd_moments(outbox, scratch):
    for times, offsets in (
        ([2**70, 5], [0, 0]),
        ([None, 5], [0, 0]),
        ([-(2**60), 5], [0, 0]),
        (list(range(5_010_000, 5_110_000)), [(n % 50_000) * 3_600_000 for n in range(100_000)]),
    ):
        columns = [times, offsets, *[[None] * len(times)] * 14]
        path = spool(outbox, columns={"GPU-0": columns, "GPU-1": columns})
        assert isinstance(prepare(path, scratch), RejectedSpool), times[:2]
