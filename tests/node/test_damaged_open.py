"""Open spool files that somebody removes or a disk damages: the sampler goes on, and what was lost is a gap."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slurm_trace.node.spool import Spool, SpoolDamaged, read_spool
from support.sampling import Node, S, adds_up

TRIES = 150


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node", chunk_s=5.0)


def one_file(node: Node) -> Path:
    (path,) = node.config.spool_folder.glob("*.open")
    return path


def is_done(node: Node) -> bool:
    return not list(node.config.spool_folder.glob("*.open")) and node.sampler._keeper.is_done


def lost_of(spool: Spool) -> list[tuple[int, str]]:
    return [(gap.from_ns, gap.reason) for gap in spool.coverage("GPU-0").gaps]


@pytest.mark.parametrize("when", ["open", "over"])
def test_file_that_somebody_removed(node: Node, when: str) -> None:
    stem = node.lease(11)
    node.run_s(23)
    one_file(node).unlink()
    if when == "open":
        node.run_s(60)
    node.end(stem)
    node.run_s(25)
    (spool,) = node.sealed()
    adds_up(spool)
    assert lost_of(spool) == [(spool.from_ns, "spool_lost")]
    covered_s = spool.coverage("GPU-0").covered_ns / S
    assert (40 < covered_s < 60) if when == "open" else covered_s == 0
    assert (spool.closed, spool.part, is_done(node)) == ("end", 0, True)
    assert (node.config.sampler_folder / f"{stem}.done").exists()


def test_file_that_is_damaged_while_it_is_written(node: Node) -> None:
    stem = node.lease(11)
    node.run_s(23)
    path = one_file(node)
    path.with_name(path.name + "-wal").write_bytes(bytes(50_000))
    path.write_bytes(b"no database" * 5000)
    node.run_s(60)
    node.end(stem)
    node.run_s(25)
    for spool in node.sealed():
        adds_up(spool)
    assert is_done(node)
    assert (node.config.sampler_folder / f"{stem}.done").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("from_ns", "never"),
        ("dropped_samples", "x"),
        ("part", b"\xff"),
        ("part", -1),
        ("lease.opened_cs", 1e300),
        ("lease.moment", "77"),
        ("lease.user", b"\xff"),
    ],
)
def test_value_that_no_sampler_writes(node: Node, key: str, value: object) -> None:
    stem = node.lease(11)
    node.run_s(23)
    node.kill()
    with closing(sqlite3.connect(one_file(node))) as file, file:
        file.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    again = Node(node.folder, source=node.source, chunk_s=5.0)
    again.run_s(12)
    again.end(stem)
    again.run_s(25)
    (spool,) = again.sealed()
    assert lost_of(spool) == [(spool.from_ns, "sampler_down")]
    assert [path.name for path in node.config.spool_folder.glob("*.damaged")] == [f"{stem}.0.open.damaged"]


def test_damage_in_any_place(node: Node) -> None:
    """Whatever is damaged, the next sampler starts, ends both leases, and delivers what is whole."""
    stems = [node.lease(11), node.lease(12, gpus=None, cuda=None)]
    node.run_s(23)
    node.kill()
    whole = {path: path.read_bytes() for path in node.config.spool_folder.glob("*.open")}
    before = (node.clock.mono, node.clock.wall)
    chance = random.Random(5)
    unread = 0
    for _ in range(TRIES):
        for folder in (node.config.spool_folder, node.config.outbox_folder, node.config.sampler_folder):
            for path in folder.iterdir():
                path.unlink()
        for path in node.config.leases_folder.glob("*.end"):
            path.unlink()
        for path, content in whole.items():
            path.write_bytes(content)
        path = chance.choice(sorted(whole))
        content = bytearray(whole[path])
        at, length = chance.randrange(len(content)), chance.choice([1, 16, 512])
        content[at : at + length] = chance.randbytes(len(content[at : at + length]))
        path.write_bytes(content[: chance.choice([len(content), at + length])])
        node.clock.mono, node.clock.wall = before
        again = Node(node.folder, source=node.source, chunk_s=5.0)
        again.run_s(12)
        for stem in stems:
            again.end(stem)
        again.run_s(25)
        again.courier.deliver_all()
        assert is_done(again), again.lines
        assert all((node.config.sampler_folder / f"{stem}.done").exists() for stem in stems)
        for sealed in node.config.outbox_folder.iterdir():
            try:
                list(read_spool(sealed).samples())
            except SpoolDamaged:
                unread += 1
    assert unread < TRIES / 2
