"""One poller each, by name: run by `node.py`, each in an environment of its own. Prints what it took as JSON.

python node_loops.py pynvml|nvitop|gpucm POLLS
python node_loops.py sampler POLLS ZIPAPP
python node_loops.py day INTERVAL_S ZIPAPP OUTBOX
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CARDS = 8
DAY_S = 86_400
S = 1_000_000_000


def report(work: Callable[[], object]) -> None:
    """Do it, and print CPU seconds, the highest resident set, and what it returned."""
    began = time.process_time()
    found = work()
    used = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(
        json.dumps({"cpu_s": used, "peak_mib": peak / 1024, **(found if isinstance(found, dict) else {})})
        + "\n"
    )


def loop_pynvml(polls: int) -> None:
    """The plain loop: what the sampler reads at each interval, as numbers; nothing checked, nothing kept.

    The same calls at the same moments, by the wrappers of nvidia-ml-py: the values of the moment and the driver's error
    events at every poll, the ring buffer at every eighth. Left out are the cumulative counters, which the sampler reads
    once in 600 polls.
    """
    import pynvml as nvml

    nvml.nvmlInit()
    cards = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    events = nvml.nvmlEventSetCreate()
    for card in cards:
        nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, events)
    since = dict.fromkeys(range(len(cards)), 0)
    clock = driver_clock()

    def read(card: Any) -> tuple[int, ...]:
        utilization = nvml.nvmlDeviceGetUtilizationRates(card)
        memory = nvml.nvmlDeviceGetMemoryInfo(card, nvml.nvmlMemory_v2)
        # Energy, power (mean, of the moment, of the module), bytes sent and received over PCIe.
        several = nvml.nvmlDeviceGetFieldValues(card, [83, 185, 186, (186, 1), 197, 198])
        return (
            utilization.gpu,
            utilization.memory,
            memory.used,
            *[entry.value.ullVal for entry in several],
            nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM),
            nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
            nvml.nvmlDeviceGetCurrentClocksEventReasons(card),
            len(nvml.nvmlDeviceGetComputeRunningProcesses(card)),
        )

    def ring(number: int) -> list[tuple[int, int]]:
        _, kept = nvml.nvmlDeviceGetSamples(cards[number], nvml.NVML_GPU_UTILIZATION_SAMPLES, since[number])
        entries = [(entry.timeStamp, entry.sampleValue.uiVal) for entry in kept]
        since[number] = entries[-1][0] if entries else since[number]
        return entries

    def work() -> None:
        for poll in range(polls):
            clock.sleep(1.0)
            if poll % 8 == 0:
                for number in range(len(cards)):
                    ring(number)
            with contextlib.suppress(nvml.NVMLError_Timeout):
                nvml.nvmlEventSetWait_v2(events, 0)
            for card in cards:
                read(card)

    report(work)


def loop_nvitop(polls: int) -> None:
    """nvitop's collector, as its documentation calls it."""
    from nvitop import Device, ResourceMetricCollector

    collector = ResourceMetricCollector(Device.all(), root_pids={1})

    def work() -> None:
        with collector(tag="bench"):
            for _ in range(polls):
                # What the collector's own thread does at each interval.
                collector.take_snapshots()
            collector.collect()

    report(work)


class Hurried:
    """gpucm's clock, in which nobody waits."""

    def __init__(self) -> None:
        self._now = 0.0

    def unixtime(self) -> int:
        """Whole seconds."""
        return int(self._now)

    def monotonic(self) -> float:
        """Seconds."""
        return self._now

    def sleep(self, duration_sec: float) -> None:
        """Time passes."""
        self._now += duration_sec


def loop_gpucm(polls: int) -> None:
    """gpucm's nvml_monitor with its own defaults: six polls to a push, a sink that drops everything."""
    from gcm.monitoring.cli import nvml_monitor

    class Bounded(nvml_monitor.CliObjectImpl):  # type: ignore[misc]
        def looptimes(self, once: bool) -> range:
            return range(-(-polls // 6))

    with tempfile.TemporaryDirectory() as logs:
        words = ["--sink", "do_nothing", "--cluster", "bench", "--log-folder", logs]
        report(lambda: nvml_monitor.main(words, obj=Bounded(clock=Hurried()), standalone_mode=False))


class Clock:
    """The node's clock, in which nobody waits; the fake driver reads the same time."""

    def __init__(self, driver_clock: Path | None) -> None:
        self._mono = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._offset = time.time_ns() - self._mono
        self._shown = None
        if driver_clock:
            with driver_clock.open("r+b") as file:
                self._shown = mmap.mmap(file.fileno(), 8)

    def mono_ns(self) -> int:
        """Nanoseconds, never set."""
        return self._mono

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self._mono + self._offset

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self._mono += max(1_000_000, int(seconds * S)) + 137_000
        if self._shown:
            struct.pack_into("=d", self._shown, 0, self.wall_ns() / S)


def driver_clock() -> Clock:
    """A clock that the fake driver follows."""
    clock = Clock(Path(os.environ["FAKE_NVML_CLOCK"]))
    clock.sleep(0)
    return clock


def sampler_over(source: Any, clock: Clock, folder: Path, interval_s: float, outbox: str = "") -> Any:
    """The sampler as `slurm-trace-node run` makes it, but for its clock; job 1 is about to begin."""
    from slurm_trace.node.config import NodeConfig
    from slurm_trace.node.courier import Courier
    from slurm_trace.node.lease import LeaseReader, read_boot_id
    from slurm_trace.node.log import Log, to_stderr
    from slurm_trace.node.probe import Limits, Probe
    from slurm_trace.node.sampler import Sampler, Tools
    from slurm_trace.node.watchdog import Watchdog

    config = NodeConfig(
        directory=str(folder),
        spool=str(folder / "open"),
        outbox=outbox,
        interval_s=interval_s,
        part_s=2 * DAY_S,
    )
    for path in (config.leases_folder, config.sampler_folder, config.spool_folder, config.outbox_folder):
        path.mkdir(parents=True, exist_ok=True)
    log = Log(time.monotonic, to_stderr)
    watchdog = Watchdog(config.hang_s)
    probe = Probe(source, watchdog, clock, log, Limits(config.hang_s, config.open_s, config.ring_s))
    courier = Courier(config.spool_folder, config.outbox_folder, log.trouble)
    boot_id = read_boot_id()
    gpus = ",".join(map(str, range(CARDS)))
    hook(config.leases_folder, "lease", clock, f"cluster=bench\nnode=n1\ngpus={gpus}\n")
    reader = LeaseReader(config.leases_folder)
    sampler = Sampler(Tools(config, probe, clock, log, reader, courier, boot_id))
    return sampler, watchdog, probe, courier, config


def hook(leases: Path, kind: str, clock: Clock, lines: str) -> None:
    """What prolog (`lease`) or epilog (`end`) of job 1 write, by the clock's time."""
    centiseconds = clock.mono_ns() // 10_000_000
    uptime = f"{centiseconds // 100}.{centiseconds % 100:02d}"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    stem = next((path.stem for path in leases.glob("1.*.lease")), f"1.{centiseconds}")
    target = leases / f"{stem}.{kind}"
    claim = target.with_name(f".{target.name}")
    claim.write_text(f"version=1\njob_id=1\n{lines}boot_id={boot_id}\nuptime={uptime}\n")
    os.utime(claim, ns=(clock.wall_ns(), clock.wall_ns()))
    claim.rename(target)


def loop_sampler(polls: int, zipapp: str) -> None:
    """Everything that the sampler does: leases, watchdog, readings, counters, ring buffers, the spool file."""
    sys.path.insert(0, zipapp)
    from slurm_trace.node.devices.nvml import NvmlSource

    with tempfile.TemporaryDirectory() as folder:
        clock = driver_clock()
        sampler, watchdog, probe, courier, _ = sampler_over(NvmlSource(), clock, Path(folder), 1.0)

        def turn_until(count: int) -> None:
            while probe.polls < count:
                sampler.turn()
                clock.sleep(sampler.pause_s())

        # The others' start is not counted either.
        watchdog.watch(lambda: turn_until(5))
        report(lambda: watchdog.watch(lambda: turn_until(polls + 5)))
        sampler.shut()
        courier.stop(30)


class BusyCards:
    """Eight cards under a load that never rests: every figure that can be restless is."""

    def __init__(self, clock: Clock) -> None:
        from slurm_trace.node.devices.base import CounterRead, DeviceInfo, Reading, SourceInfo

        self._clock, self._reading, self._counter_read = clock, Reading, CounterRead
        self.info = SourceInfo("bench")
        self.faults: dict[tuple[str, str, str], int] = {}
        self._chance = random.Random(7)
        self._cards = [
            DeviceInfo(f"GPU-{n:08d}-0000-0000-0000-000000000000", "bench", n, n, None) for n in range(CARDS)
        ]
        self._busy = {card.uuid: 90.0 for card in self._cards}
        self._energy = {card.uuid: 10**12 for card in self._cards}

    def open(self) -> None:
        """Nothing to do."""
        return

    def close(self) -> None:
        """Nothing to do."""
        return

    def devices(self) -> list[Any]:
        """All cards."""
        return self._cards

    def read(self, uuid: str) -> Any:
        """A restless reading."""
        chance = self._chance
        if chance.random() < 0.02:
            self._busy[uuid] = chance.choice((30.0, 70.0, 95.0, 99.0))
        used = min(100, max(0, round(chance.gauss(self._busy[uuid], 3))))
        power = round(chance.gauss(250_000 + 4_500 * used, 6_000))
        self._energy[uuid] += power
        values = (
            used, min(100, round(used * 0.6 + chance.random() * 8)), 60 << 30, power,
            power + chance.randrange(-3000, 3000), None, self._energy[uuid],
            chance.choice((1980, 1965, 1950, 1980)), 2619, 60 + chance.randrange(2), chance.randrange(1 << 17),
            chance.randrange(1 << 18), 4 if power > 650_000 else 0, 1,
        )  # fmt: skip
        return self._reading(uuid, values, {})

    def counters(self, uuid: str) -> Any:
        """Counters that grow."""
        now = self._clock.mono_ns()
        return self._counter_read(uuid, tuple(now // 7 + n for n in range(18)), {})

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int]]:
        """Six entries a second."""
        now_us = self._clock.wall_ns() // 1000
        first = max(since_us, now_us - 16_000_000) // 166_667 + 1
        return [
            (place * 166_667, min(100, max(0, round(self._chance.gauss(self._busy[uuid], 6)))))
            for place in range(first, now_us // 166_667 + 1)
            if place * 166_667 > since_us
        ]

    def xid_events(self) -> list[Any]:
        """None."""
        return []


def whole_day(interval_s: float, zipapp: str, outbox: str) -> None:
    """A lease of a day over eight restless cards; its spool file goes to the outbox."""
    sys.path.insert(0, zipapp)
    from slurm_trace.node import sampler as module

    module.LOOK_S = 1.0
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(None)
        until = clock.mono_ns() + DAY_S * S
        source = BusyCards(clock)
        sampler, _, probe, courier, config = sampler_over(source, clock, Path(folder), interval_s, outbox)

        def work() -> dict[str, Any]:
            while clock.mono_ns() < until or sampler.leases:
                sampler.turn()
                clock.sleep(sampler.pause_s())
                if clock.mono_ns() >= until and not list(config.leases_folder.glob("*.end")):
                    hook(config.leases_folder, "end", clock, "exit_code=0\n")
            sampler.shut()
            courier.stop(60)
            return {"polls": probe.polls}

        report(work)


if __name__ == "__main__":
    name, count, *rest = sys.argv[1:]
    if name == "day":
        whole_day(float(count), *rest)
    else:
        {"pynvml": loop_pynvml, "nvitop": loop_nvitop, "gpucm": loop_gpucm, "sampler": loop_sampler}[name](
            int(count), *rest
        )
