"""SIGKILL at random moments, 200 times over one set of folders: at most a chunk is lost, no file is damaged."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import signal
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_trace.node.spool import read_spool
from support.sampling import FakeClock, FakeSource, Node, S, adds_up

KILLS = 200
CHUNK_S = 10.0


class SharedClock(FakeClock):
    """A clock that goes on where a killed process left it."""

    def __init__(self, shared: mmap.mmap) -> None:
        (mono,) = struct.unpack_from("=q", shared)
        super().__init__(mono / S)
        self.mono = mono
        self.shared = shared

    def pass_s(self, seconds: float) -> None:
        super().pass_s(seconds)
        struct.pack_into("=q", self.shared, 0, self.mono)


def live(folder: Path, shared: mmap.mmap, seed: int) -> None:
    """A node's life, until somebody kills it."""
    chance = random.Random(seed)
    node = Node(folder, source=FakeSource(SharedClock(shared)), chunk_s=CHUNK_S, part_s=300.0)
    for _ in itertools.count():
        open_ = {path.stem for path in node.config.leases_folder.glob("*.lease")}
        ended = {path.stem for path in node.config.leases_folder.glob("*.end")}
        running = sorted(open_ - ended)
        if len(running) < 3:
            node.lease(chance.randrange(1, 10**6), cuda=f"GPU-{chance.randrange(8)}")
        elif chance.random() < 0.2:
            node.end(chance.choice(running))
        node.run_s(chance.randrange(1, 8))
        node.courier.deliver_all()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory, where there is such a place: a kill does not depend on the disk, and many more moments are met."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def test_killed_at_any_moment(folder: Path) -> None:
    shared = mmap.mmap(-1, 8)
    struct.pack_into("=q", shared, 0, 1000 * S)
    chance = random.Random(17)
    for seed in range(KILLS):
        child = os.fork()
        if not child:
            try:
                live(folder, shared, seed)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.003, 0.08))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it was still alive"

    node = Node(folder, source=FakeSource(SharedClock(shared)), chunk_s=CHUNK_S)
    node.run_s(5)
    for stem in node.sampler.leases:
        node.end(stem)
    node.run_s(5)
    spools = node.sealed()

    assert not list(folder.rglob("*.damaged"))
    assert not list(node.config.spool_folder.glob("*.open*"))
    assert len(spools) > 20
    begun = {path.stem for path in node.config.leases_folder.glob("*.lease")}
    ends = [f"{s.lease['job_id']}.{s.lease['moment']}" for s in spools if s.closed == "end"]
    assert sorted(ends) == sorted(begun), "every lease ends once"
    for spool in spools:
        adds_up(spool)
        for uuid in (device.uuid for device in spool.devices):
            for gap in spool.coverage(uuid).gaps:
                # The chunk that was in memory, the time to the next reading, and the turn that was under way.
                assert gap.to_ns is not None
                assert gap.reason != "sampler_down" or gap.to_ns - gap.from_ns <= (CHUNK_S + 9) * S
    killed = sum(gap.reason == "sampler_down" for spool in spools for gap in spool.gaps)
    assert killed > 50
    assert all(read_spool(spool.path).digest == spool.digest for spool in spools)
