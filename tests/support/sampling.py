"""A clock that the test turns, a source that does what it is told, and a node made of folders."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_trace.node.config import NodeConfig
from slurm_trace.node.courier import Courier
from slurm_trace.node.devices.base import CounterRead, DeviceInfo, Reading, SourceInfo, XidEvent
from slurm_trace.node.errors import DeviceLost, SourceGone
from slurm_trace.node.fields import COUNTER_NAMES, SAMPLE_NAMES
from slurm_trace.node.lease import LeaseReader
from slurm_trace.node.log import Log
from slurm_trace.node.probe import Limits, Probe
from slurm_trace.node.sampler import Sampler, Tools
from slurm_trace.node.spool import Spool, read_spool
from slurm_trace.node.watchdog import Caller, Direct

BOOT = "11111111-2222-3333-4444-555555555555"
NEXT_BOOT = "99999999-2222-3333-4444-555555555555"
S = 1_000_000_000
WALL_AT_BOOT_S = 1_700_000_000


class FakeClock:
    """Time passes when somebody sleeps, or when the test says so."""

    def __init__(self, mono_s: float = 1000.0) -> None:
        self.mono = int(mono_s * S)
        self.wall = self.mono + WALL_AT_BOOT_S * S

    def mono_ns(self) -> int:
        return self.mono

    def wall_ns(self) -> int:
        return self.wall

    def sleep(self, seconds: float) -> None:
        self.pass_s(max(seconds, 0.001))

    def pass_s(self, seconds: float) -> None:
        self.mono += round(seconds * S)
        self.wall += round(seconds * S)


def card(number: int, **facts: object) -> DeviceInfo:
    """One of eight alike cards; minor numbers run the other way round."""
    info = DeviceInfo(
        f"GPU-{number}", "NVIDIA H100 80GB HBM3", number, 7 - number, f"00000000:0{number}:00.0"
    )
    return replace(
        info, max_sm_mhz=1980, max_mem_mhz=2619, capability={"ring:utilization_pct": "ok"}, **facts
    )  # type: ignore[arg-type]


@dataclass
class FakeSource:
    """Devices whose readings follow the clock; what the test puts into `broken` is raised."""

    clock: FakeClock
    cards: list[DeviceInfo] = field(default_factory=lambda: [card(n) for n in range(8)])
    broken: dict[str, Exception] = field(default_factory=dict)
    unreachable: Exception | None = None
    fault_counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    xids: list[XidEvent] = field(default_factory=list)
    values: dict[str, int | None] = field(default_factory=dict)
    entries: Callable[[int], Sequence[tuple[int, int | None]]] | None = None
    read_takes_s: float = 0.002
    opened: int = 0
    is_open: bool = False
    reads: Counter[str] = field(default_factory=Counter)

    @property
    def info(self) -> SourceInfo:
        return SourceInfo("fake", "550.54.15", "12.550.54.15", "12.4")

    @property
    def faults(self) -> Mapping[tuple[str, str, str], int]:
        return self.fault_counts

    def open(self, uuids: Iterable[str] | None = None) -> None:
        if self.unreachable is not None:
            raise self.unreachable
        assert not self.is_open, "opened twice"
        self.is_open = True
        self.opened += 1

    def close(self) -> None:
        self.is_open = False

    def devices(self) -> list[DeviceInfo]:
        return list(self.cards)

    def read(self, uuid: str) -> Reading:
        self._check(uuid)
        self.clock.pass_s(self.read_takes_s)
        self.reads[uuid] += 1
        values = dict.fromkeys(SAMPLE_NAMES, 1) | {"energy_mj": self.clock.mono // 1_000_000} | self.values
        return Reading(uuid, tuple(values[name] for name in SAMPLE_NAMES), {})

    def counters(self, uuid: str) -> CounterRead:
        self._check(uuid)
        values = dict.fromkeys(COUNTER_NAMES, self.clock.mono // 1_000_000)
        return CounterRead(uuid, tuple(values[name] for name in COUNTER_NAMES), {})

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        self._check(uuid)
        now_us = self.clock.wall // 1000
        kept = range(now_us // 250_000 - 79, now_us // 250_000 + 1)
        entries = self.entries(now_us) if self.entries else [(place * 250_000, 40) for place in kept]
        return [entry for entry in entries if entry[0] > since_us]

    def xid_events(self) -> list[XidEvent]:
        found, self.xids = self.xids, []
        return found

    def _check(self, uuid: str) -> None:
        if not self.is_open:
            raise SourceGone("not open", "closed")
        if uuid in self.broken:
            raise self.broken[uuid]


def lost(uuid: str) -> DeviceLost:
    return DeviceLost(uuid, "lost")


class Node:
    """The directories of one node, with a sampler that the test turns by hand."""

    def __init__(
        self,
        folder: Path,
        *,
        source: FakeSource | None = None,
        caller: Caller | None = None,
        **settings: object,
    ) -> None:
        self.folder = folder
        self.clock = source.clock if source else FakeClock()
        self.source = source or FakeSource(self.clock)
        self.caller = caller or Direct()
        self.lines: list[str] = []
        self.config = NodeConfig(
            directory=str(folder / "run"),
            spool=str(folder / "open"),
            outbox=str(folder / "outbox"),
            **settings,  # type: ignore[arg-type]
        )
        for path in (
            self.config.leases_folder,
            self.config.sampler_folder,
            self.config.spool_folder,
            self.config.outbox_folder,
        ):
            path.mkdir(parents=True, exist_ok=True)
        self.boot_id = BOOT
        self.sampler = self.new_sampler()
        self.sampler.resume()
        self.run_s(1)

    def new_sampler(self) -> Sampler:
        """A sampler as a new process would make it."""
        config = self.config
        log = Log(lambda: self.clock.mono / S, self.lines.append)
        limits = Limits(config.hang_s, config.open_s, config.ring_s)
        self.probe = Probe(self.source, self.caller, self.clock, log, limits)
        self.courier = Courier(config.spool_folder, config.outbox_folder, log.trouble)
        # Deliveries are made by the test, in its own thread.
        self.courier.notify = lambda: None  # type: ignore[method-assign]
        reader = LeaseReader(config.leases_folder, self.boot_id, self.clock.wall / S - self.clock.mono / S)
        self.sampler = Sampler(Tools(config, self.probe, self.clock, log, reader, self.courier, self.boot_id))
        return self.sampler

    def lease(self, job: int, gpus: str | None = "0", cuda: str | None = "GPU-0", **more: str) -> str:
        """What the prolog writes, now; the stem."""
        moment = self.clock.mono // 10_000_000
        lines = {
            "version": "1",
            "job_id": str(job),
            "cluster": "hill",
            "node": "n1",
            "uid": "1000",
            "user": "ada",
        }
        lines |= {key: value for key, value in (("gpus", gpus), ("cuda", cuda)) if value is not None}
        stem = f"{job}.{moment}"
        self._publish(f"{stem}.lease", lines | more | self._moment())
        return stem

    def end(self, stem: str, **more: str) -> None:
        """What the epilog writes, now."""
        job = stem.split(".")[0]
        self._publish(
            f"{stem}.end", {"version": "1", "job_id": job, "exit_code": "0"} | more | self._moment()
        )

    def orphan(self, job: int) -> str:
        """What an epilog writes that finds no lease."""
        stem = f"{job}.{self.clock.mono // 10_000_000}"
        self.end(stem, orphan="1")
        return stem

    def _moment(self) -> dict[str, str]:
        centiseconds = self.clock.mono // 10_000_000
        return {"boot_id": self.boot_id, "uptime": f"{centiseconds // 100}.{centiseconds % 100:02d}"}

    def _publish(self, name: str, lines: Mapping[str, str]) -> None:
        target = self.config.leases_folder / name
        claim = target.with_name(f".{name}.tmp")
        claim.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="ascii")
        claim.rename(target)

    def run_s(self, seconds: float) -> None:
        """Turn the sampler until the clock has moved on by `seconds`."""
        until = self.clock.mono + round(seconds * S)
        while self.clock.mono < until:
            self.sampler.turn()
            left = (until - self.clock.mono) / S
            if left > 0:
                self.clock.sleep(min(self.sampler.pause_s(), left))

    def kill(self) -> None:
        """The sampler is gone, and what it had not written with it."""
        for kept in self.sampler._leases.values():
            kept.log.suspend()
        self.source.close()

    def sealed(self) -> list[Spool]:
        """What is in the outbox, in the order of part and job."""
        self.courier.deliver_all()
        spools = [read_spool(path) for path in self.config.outbox_folder.glob("*.spool")]
        return sorted(spools, key=lambda spool: (int(spool.lease["job_id"]), spool.from_ns, spool.part))


def adds_up(spool: Spool) -> None:
    """Intervals and gaps of every device tile the part, with nothing left over and nothing twice."""
    assert spool.to_ns is not None
    for device in spool.devices:
        coverage = spool.coverage(device.uuid)
        pieces = sorted([*coverage.intervals, *((gap.from_ns, gap.to_ns or 0) for gap in coverage.gaps)])
        assert coverage.covered_ns + coverage.gap_ns == spool.to_ns - spool.from_ns
        assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
