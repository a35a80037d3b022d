"""The thread that works is given up in any call that it makes: the next one loses no lease, reading or file by that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_trace.node.lease import LeaseReader, LeaseScan
from slurm_trace.node.probe import DRIVER
from slurm_trace.node.spool import Spool
from slurm_trace.node.watchdog import Call, Direct, GivenUp, Hung
from support.sampling import FakeClock, FakeSource, Node, S, adds_up

HANG_S, BACK_S = 5.0, 8.0


class GivesUp:
    """A caller of which one call hangs, and comes back later; `at` None: none does."""

    def __init__(self, clock: FakeClock, at: int | None) -> None:
        self.made = 0
        self.hung = ""
        self._clock = clock
        self._at = at
        self._back_ns = 0

    @property
    def stuck(self) -> tuple[str, ...]:
        return (self.hung,) if self.hung and self._clock.mono < self._back_ns else ()

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        results = []
        for name, call in calls:
            if name in self.stuck:
                results.append(Hung(name))
                continue
            self.made += 1
            if self.made - 1 == self._at:
                self.hung = name
                self._clock.pass_s(limit_s)
                self._back_ns = self._clock.mono + round(BACK_S * S)
                raise GivenUp(name)
            results += Direct().run([(name, call)], limit_s)
        return results


def served(folder: Path, at: int | None) -> tuple[Node, GivesUp]:
    """Two leases, the second within the first, of which call number `at` hangs."""
    clock = FakeClock()
    caller = GivesUp(clock, at)
    settings = {"counters_s": 7.0, "ring_s": 4.0, "hang_s": HANG_S, "open_s": HANG_S}
    node = Node(folder, source=FakeSource(clock), caller=caller, **settings)

    def go_on(seconds: float) -> None:
        until = clock.mono + round(seconds * S)
        while clock.mono < until:
            try:
                node.sampler.turn()
                clock.sleep(node.sampler.pause_s())
            except GivenUp:
                continue

    first = node.lease(1, gpus="0,1", cuda="GPU-0,GPU-1")
    go_on(6)
    second = node.lease(2, gpus="2", cuda="GPU-2")
    go_on(12)
    node.end(first)
    go_on(6)
    node.end(second)
    go_on(2 * HANG_S)
    while True:
        try:
            node.sampler.shut()
            break
        except GivenUp:
            continue
    return node, caller


def whole(spool: Spool, hung: str) -> None:
    adds_up(spool)
    assert spool.closed == "end"
    for device in spool.devices:
        moments = [read.moment for read in spool.counters if read.uuid == device.uuid]
        if hung in (device.uuid, DRIVER):
            continue
        assert moments[0] == "start"
        assert moments[-1] == "end"
        reasons = {gap.reason for gap in spool.gaps if gap.uuid == device.uuid}
        assert reasons <= {"before_first_read"}, f"{device.uuid} has nothing to do with {hung}"
        (first,) = [gap for gap in spool.gaps if gap.uuid == device.uuid]
        assert first.to_ns is not None
        assert first.to_ns - first.from_ns <= (HANG_S + 2) * S


def test_in_whatever_call_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look, seen = LeaseReader.scan, dict[LeaseReader, LeaseScan]()

    def settled(reader: LeaseReader) -> LeaseScan:
        """As after a tenth of a second in which nothing changed: what was seen once is not shown as new again."""
        found = look(reader)
        if found != seen.get(reader):
            seen[reader] = found
        return seen[reader]

    monkeypatch.setattr(LeaseReader, "scan", settled)
    node, caller = served(tmp_path / "sound", None)
    assert [spool.closed for spool in node.sealed()] == ["end", "end"]
    kinds = set()
    for at in range(caller.made):
        node, hanging = served(tmp_path / str(at), at)
        spools = node.sealed()
        assert [spool.lease["job_id"] for spool in spools] == ["1", "2"], f"call {at}"
        for spool in spools:
            whole(spool, hanging.hung)
        kinds.add(hanging.hung)
        if not hanging.stuck:
            assert not node.source.is_open, "the driver is let go once nothing is in it"
    assert kinds == {DRIVER, "GPU-0", "GPU-1", "GPU-2"}
    assert caller.made > 100
