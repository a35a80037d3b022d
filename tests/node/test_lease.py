"""The reader of leases trusts no file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.node import presence
from slurm_trace.node.lease import LeaseReader, LeaseScan, mark_sealed, read_leases

BOOT = "b1db0ff7-c4a9-4ae9-bb68-defd5fd72567"
OTHER_BOOT = "c1db0ff7-c4a9-4ae9-bb68-defd5fd72567"


def lease_text(job_id: int = 12, uptime: str = "100.00", boot_id: str = BOOT, more: str = "") -> str:
    return f"version=1\njob_id={job_id}\n{more}boot_id={boot_id}\nuptime={uptime}\n"


def put(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def scan(directory: Path, booted_at: float = 1000.0) -> LeaseScan:
    return read_leases(directory, BOOT, booted_at)


def only_reason(directory: Path) -> str:
    found = scan(directory)
    assert (found.open, found.ended, found.orphans) == ((), (), ())
    (refusal,) = found.refused
    return refusal.reason


def test_smallest_lease(tmp_path: Path) -> None:
    put(tmp_path, "12.10000.lease", lease_text())
    (lease,) = scan(tmp_path).open
    assert (lease.job_id, lease.moment, lease.opened_cs, lease.gpus, lease.node) == (
        12,
        10000,
        10000,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "version is missing"),
        (lease_text().removesuffix("uptime=100.00\n"), "uptime is missing"),
        (lease_text()[:-1], "last line is not whole"),
        (lease_text().replace("version=1", "version=2"), "version has a value"),
        (lease_text(13), "different jobs"),
        (lease_text(uptime="100.01"), "different moments"),
        (lease_text(uptime="99.59"), "different moments"),
        (lease_text(uptime="99.99") + "uptime=100.00\n", "given twice"),
        (lease_text(more="colour=red\n"), "no known key"),
        (lease_text(more="no equals sign\n"), "no known key"),
        (lease_text(more="user=a b\n"), "user has a value"),
        (lease_text(more="user=" + "a" * 257 + "\n"), "user has a value"),
        (lease_text(more="user=a\r\n"), "user has a value"),
        (lease_text(more="uid=-1\n"), "uid has a value"),
        (lease_text(more="uid=\n"), "uid has a value"),
        (lease_text(more="uid=\u0661\n"), "not ASCII"),
        (lease_text(more="gpus=0;1\n"), "gpus has a value"),
        (lease_text(boot_id="x"), "boot_id has a value"),
        (lease_text(more="user=" + "a" * 40000 + "\n"), "longer than"),
    ],
)
def test_refused_with_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    put(tmp_path, "12.10000.lease", text)
    assert reason in only_reason(tmp_path)


@pytest.mark.parametrize(
    "name", ["x.lease", "12.lease", "0.1.lease", "-1.1.lease", "12.1.lease.bak", "12.1.1.end", "12.1x.end"]
)
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, lease_text())
    assert only_reason(tmp_path) == "not the name of a lease"


def test_hidden_files_are_being_written(tmp_path: Path) -> None:
    put(tmp_path, ".12.10000.77.tmp", "vers")
    assert scan(tmp_path) == LeaseScan()


def test_links_pipes_and_directories(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    leases = tmp_path / "leases"
    leases.mkdir()
    (leases / "1.1.lease").symlink_to(put(elsewhere, "1.1.lease", lease_text(1, "0.01")))
    os.mkfifo(leases / "2.1.lease")
    (leases / "3.1.lease").mkdir()
    found = scan(leases)
    assert [one.name for one in found.refused] == ["1.1.lease", "2.1.lease", "3.1.lease"]
    assert found.open == ()


def test_file_of_another_user(tmp_path: Path) -> None:
    path = put(tmp_path, "12.10000.lease", lease_text())
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    os.chown(path, 65534, 65534)
    assert "written by user 65534" in only_reason(tmp_path)


def test_missing_directory_has_no_open_lease(tmp_path: Path) -> None:
    found = scan(tmp_path / "none")
    assert (found.open, len(found.refused)) == ((), 1)


def test_close_before_open_is_refused_and_the_lease_stays_open(tmp_path: Path) -> None:
    put(tmp_path, "12.10000.lease", lease_text())
    put(tmp_path, "12.10000.end", lease_text(uptime="99.00"))
    found = scan(tmp_path)
    assert [lease.stem for lease in found.open] == ["12.10000"]
    assert found.refused[0].reason == "closes the lease before it opened"


def test_damaged_close_leaves_the_lease_open(tmp_path: Path) -> None:
    put(tmp_path, "12.10000.lease", lease_text())
    put(tmp_path, "12.10000.end", "version=1\n")
    found = scan(tmp_path)
    assert len(found.open) == 1
    assert len(found.refused) == 1


def test_reboot_closes_at_the_latest_possible_moment(tmp_path: Path) -> None:
    path = put(tmp_path, "12.10000.lease", lease_text(boot_id=OTHER_BOOT))
    os.utime(path, (500.0, 500.0))
    ((lease, end),) = scan(tmp_path, booted_at=1000.0).ended
    assert (end.how, end.closed_cs, end.closed_at, lease.opened_at) == ("reboot", None, 1000.0, 500.0)


def test_close_of_the_last_boot_counts(tmp_path: Path) -> None:
    put(tmp_path, "12.10000.lease", lease_text(boot_id=OTHER_BOOT))
    put(tmp_path, "12.10000.end", lease_text(uptime="200.00", boot_id=OTHER_BOOT))
    ((_, end),) = scan(tmp_path).ended
    assert (end.how, end.closed_cs) == ("epilog", 20000)


def test_job_that_came_again_closes_its_earlier_lease(tmp_path: Path) -> None:
    for uptime in ("100.00", "200.00", "300.00"):
        put(tmp_path, f"12.{uptime.replace('.', '')}.lease", lease_text(uptime=uptime, more="node=n1\n"))
    put(tmp_path, "12.20000.end", lease_text(uptime="250.00", more="node=n1\n"))
    found = scan(tmp_path)
    assert [(lease.opened_cs, end.how, end.closed_cs) for lease, end in found.ended] == [
        (10000, "superseded", 20000),
        (20000, "epilog", 25000),
    ]
    assert [lease.opened_cs for lease in found.open] == [30000]


def test_same_job_on_another_node_supersedes_nothing(tmp_path: Path) -> None:
    put(tmp_path, "12.10000.lease", lease_text(more="node=n1\n"))
    put(tmp_path, "12.20000.lease", lease_text(uptime="200.00", more="node=n2\n"))
    assert len(scan(tmp_path).open) == 2


def test_reader_sees_each_change(tmp_path: Path) -> None:
    reader = LeaseReader(tmp_path, BOOT, 1000.0)
    assert reader.scan() == LeaseScan()
    put(tmp_path, "12.10000.lease", lease_text())
    assert len(reader.scan().open) == 1
    put(tmp_path, "13.20000.lease", lease_text(13, "200.00"))
    assert len(reader.scan().open) == 2
    put(tmp_path, "12.10000.end", lease_text(uptime="200.00"))
    assert len(reader.scan().ended) == 1
    (tmp_path / "13.20000.lease").unlink()
    assert reader.scan().open == ()


def test_reader_does_not_read_again_what_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "12.10000.lease", lease_text())
    past = time.time() - 60
    os.utime(tmp_path, (past, past))
    reader = LeaseReader(tmp_path, BOOT, 1000.0)
    first = reader.scan()
    monkeypatch.setattr(os, "scandir", lambda *_: pytest.fail("the directory was listed again"))
    assert reader.scan() is first


def test_sealed_mark_is_what_the_epilog_looks_for(tmp_path: Path) -> None:
    mark_sealed(tmp_path, "12.10000")
    assert [path.name for path in tmp_path.iterdir()] == ["12.10000.done"]


def test_presence_is_of_a_process_not_of_its_id(tmp_path: Path) -> None:
    assert presence.running(tmp_path) is None
    presence.announce(tmp_path)
    assert presence.running(tmp_path) == os.getpid()
    (tmp_path / "pid").write_text(f"{os.getpid()} 1\n")
    assert presence.running(tmp_path) is None
    presence.withdraw(tmp_path)
    assert (tmp_path / "pid").exists()
    presence.announce(tmp_path)
    presence.withdraw(tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(data=st.binary(max_size=300), name=st.sampled_from(["12.10000.lease", "12.10000.end"]))
def test_any_content_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    directory = tmp_path_factory.mktemp("leases")
    (directory / name).write_bytes(data)
    assert scan(directory).refused
