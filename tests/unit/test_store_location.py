from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import event

from slurm_trace.accounting.records import RejectedRow, block_of
from slurm_trace.errors import EnvironmentProblem, TraceError, UsageProblem
from slurm_trace.store import engine, lock
from slurm_trace.store.engine import open_store, upgrade_store
from slurm_trace.store.ingest import ImportInfo, begin_import
from slurm_trace.store.load import count_runs, load_runs
from slurm_trace.store.location import (
    default_path,
    network_file_system,
    parse_location,
    refuse_network_file_system,
    shown,
)
from slurm_trace.store.verdicts import StoredVerdict, save_verdicts
from support.runs import ingest, run, step

MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw shared:2 - proc proc rw
30 21 0:40 / /home rw,relatime shared:20 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/local rw - xfs /dev/sdb1 rw
32 21 0:41 / /scratch rw shared:3 master:4 - lustre 10.0.0.1@o2ib:/s rw
33 21 0:42 / /mnt/my\040files rw - fuse.sshfs a@b: rw
34 21 0:43 / /over rw - nfs a:/b rw
35 21 8:3 / /over rw - ext4 /dev/sdc1 rw
36 21 0:44 / /pipe rw - fuse.gvfsd-fuse gvfsd-fuse rw
broken line
""".strip().splitlines()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/store.sqlite", "nfs4"),
        ("/home/local/store.sqlite", None),
        ("/home/localized/store.sqlite", "nfs4"),
        ("/scratch/a/b/c", "lustre"),
        ("/mnt/my files/store", "fuse.sshfs"),
        ("/over/store", None),
        ("/pipe/store", None),
        ("/var/lib/slurm-trace/store.sqlite", None),
        ("/scratch/../tmp/x", None),
    ],
)
def test_network_file_systems_are_found_in_the_mount_table(path, kind):
    assert network_file_system(Path(path), MOUNTS) == kind


def test_network_file_system_behind_a_symbolic_link(tmp_path):
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "near").symlink_to(far)
    mounts = [*MOUNTS, f"40 21 0:50 / {far} rw - cifs //a/b rw"]
    assert network_file_system(tmp_path / "near" / "store", mounts) == "cifs"
    with pytest.raises(EnvironmentProblem, match=r"cifs.*local disk"):
        refuse_network_file_system(tmp_path / "near" / "store", mounts)


def test_store_on_a_network_file_system_is_refused(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / {tmp_path} rw - gpfs b rw\n")
    monkeypatch.setattr("slurm_trace.store.location.MOUNTINFO", table)
    with pytest.raises(EnvironmentProblem, match="gpfs"):
        open_store(str(tmp_path / "store"), create=True)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("location", "driver"),
    [
        ("postgresql://u:p@h/d", "postgresql+psycopg"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("mysql://u@h/d", "mariadb+pymysql"),
        ("mariadb://u@h/d", "mariadb+pymysql"),
        ("mysql+pymysql://u@h/d", "mariadb+pymysql"),
    ],
)
def test_server_urls_name_our_drivers(location, driver):
    url = parse_location(location)
    assert url.drivername == driver
    assert (url.query.get("charset") == "utf8mb4") == (driver == "mariadb+pymysql")
    assert ":p@" not in shown(url)


def test_paths_and_sqlite_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert parse_location("a.db") == tmp_path / "a.db"
    assert parse_location("~/a.db") == Path("/home/ada/a.db")
    assert parse_location("sqlite:///a.db") == tmp_path / "a.db"
    assert parse_location("sqlite:////x/a.db") == Path("/x/a.db")


@pytest.mark.parametrize(
    "location",
    [
        "oracle://u@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://u@h",
        "://",
        "http://[bad",
        "mariadb://h:x/d",
    ],
)
def test_locations_that_make_no_sense(location):
    with pytest.raises(UsageProblem) as caught:
        parse_location(location)
    assert "\n" not in str(caught.value)


def test_default_path(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_path() == Path("/var/lib/slurm-trace/store.sqlite")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_path() == Path("/data/slurm-trace/store.sqlite")
    for relative in ("", "data"):
        monkeypatch.setenv("XDG_DATA_HOME", relative)
        assert default_path() == Path("/home/ada/.local/share/slurm-trace/store.sqlite")
    assert parse_location(None) == default_path()


def one_line(action, *arguments, **options):
    with pytest.raises(TraceError) as caught:
        action(*arguments, **options)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_directory(tmp_path):
    assert "directory" in one_line(open_store, str(tmp_path))
    assert "directory" in one_line(open_store, str(tmp_path), create=True)


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    one_line(open_store, str(tmp_path / "file" / "store"), create=True)
    one_line(open_store, str(tmp_path / "file" / "store"))


@pytest.mark.parametrize(
    "content", [b"JobID|State\n1|COMPLETED\n" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_file_that_is_no_database(tmp_path, content):
    path = tmp_path / "store"
    path.write_bytes(content)
    for create in (False, True):
        one_line(open_store, str(path), create=create)
    one_line(upgrade_store, str(path))
    assert path.read_bytes() == content


def test_database_of_something_else(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    assert "something else" in one_line(open_store, str(path), create=True)
    assert "something else" in one_line(upgrade_store, str(path), create=True)


def test_empty_file_is_no_store_but_can_become_one(tmp_path):
    path = tmp_path / "store"
    path.touch()
    assert "store init" in one_line(open_store, str(path))
    open_store(str(path), create=True).close()
    open_store(str(path)).close()


def test_server_that_does_not_answer():
    for url in ("postgresql://u:secret@127.0.0.1:1/d", "mariadb://u:secret@127.0.0.1:1/d"):
        message = one_line(open_store, url)
        assert "secret" not in message
        assert "check that the server runs" in message


def test_damaged_store(tmp_path):
    path = tmp_path / "store"
    store = open_store(str(path), create=True)
    ingest(store, block_of([run(job) for job in range(2000)]))
    store.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = os.urandom(len(data) - len(data) // 2)
    path.write_bytes(data)
    store = open_store(str(path))
    assert "damaged" in one_line(load_runs, store)


def test_locked_store(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_S", 0.1)
    path = tmp_path / "store"
    store = open_store(str(path), create=True)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    assert "another process" in one_line(ingest, store, run(1))
    blocker.close()
    ingest(store, run(1))


def test_full_disk(tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    ingest(store, run(1))

    @event.listens_for(store.engine, "connect")
    def limit(connection, record):
        connection.execute("PRAGMA max_page_count = 60")

    message = one_line(ingest, store, block_of([run(job) for job in range(2, 3000)]))
    assert "disk is full" in message
    event.remove(store.engine, "connect", limit)
    assert count_runs(store) == {"c": 1}
    ingest(store, run(2))


def test_sqlite_of_an_older_system(tmp_path):
    """Before 3.32 a statement took 999 values."""
    store = open_store(str(tmp_path / "store"), create=True)

    @event.listens_for(store.engine, "connect")
    def limit(connection, record):
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)

    block = block_of(
        [run(job * 1000) for job in range(3000)],
        steps=[step(job * 7001, 1, 2) for job in range(1500)],
        steps_skipped=1500,
        rejected=[RejectedRow(i, "odd", str(i).encode()) for i in range(1500)],
    )
    for unchanged in (0, 3000):
        assert ingest(store, block).unchanged == unchanged
    numbers = [int(number) for number in load_runs(store)["run_id"]]
    save_verdicts(store, [StoredVerdict(n, "t", "b", "a", "r", "e", None, "v", "v", 1) for n in numbers])
    save_verdicts(store, [StoredVerdict(n, "t", "b", "a", "r", "e", "1", "v", "v", 2) for n in numbers])


def test_lock_file_that_cannot_be_made(tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    (tmp_path / "store.lock").unlink(missing_ok=True)
    (tmp_path / "store.lock").mkdir()
    assert "store.lock" in one_line(ingest, store, run(1))


def test_store_on_a_medium_that_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "store"
    store = open_store(str(path), create=True)
    ingest(store, run(1))
    store.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert count_runs(open_store(str(path))) == {"c": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store", "store.lock"]
    assert "cannot be written" in one_line(ingest, open_store(str(path)), run(2))


def test_store_is_private_to_its_group(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    open_store(create=True).close()
    assert stat.S_IMODE((tmp_path / "slurm-trace").stat().st_mode) & 0o007 == 0


def test_reader_during_an_import(tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    with begin_import(store, ImportInfo("file", "f")) as importing:
        importing.add(block_of([run(1)]))
        other = open_store(str(tmp_path / "store"))
        assert count_runs(other) == {"c": 1}
        importing.add(block_of([run(2)]))
        assert count_runs(other) == {"c": 2}


def test_waiting_for_the_lock_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_POLL_S", 0.01)
    store = open_store(str(tmp_path / "store"), create=True)
    with (
        begin_import(store, ImportInfo("file", "f")),
        pytest.raises(EnvironmentProblem, match="another import"),
    ):
        upgrade_store(str(tmp_path / "store"), wait_s=0.05)
