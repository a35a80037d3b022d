"""The sampler as a process of its own, on a scenario and the machine's clock: signals, second starts, full disks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from fake_nvml.build import build

from slurm_trace.node.spool import Spool, read_spool
from support.sampling import S, adds_up

SCENARIO = """\
gpu H100 GPU-00000000-0000-0000-0000-000000000000
gpu H100 GPU-00000000-0000-0000-0000-000000000001
work 0 0 100000 hmma=0.5
"""


def within(seconds: float, done: Callable[[], object]) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


class Host:
    """A node's directories on this machine, and the samplers started over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool, self.outbox, self.run_folder = folder / "open", folder / "outbox", folder / "run"
        self.samplers: list[subprocess.Popen[bytes]] = []
        self.jobs = 0
        (self.run_folder / "leases").mkdir(parents=True)
        (folder / "scenario").write_text(SCENARIO)

    def words(self, *more: str, settings: str = "") -> list[str]:
        config = self.folder / "node.conf"
        config.write_text(
            f"directory={self.run_folder}\nspool={self.spool}\noutbox={self.outbox}\nsource=replay\n"
            f"replay={self.folder / 'scenario'}\ninterval_s=0.2\nchunk_s=0.6\nidle_s=0.5\n{settings}"
        )
        return ["--config", str(config), *more]

    def start(
        self,
        *more: str,
        errors: str = "errors",
        more_settings: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[bytes]:
        target = Path(errors) if errors.startswith("/") else self.folder / errors
        with target.open("ab") as stderr:
            words = self.words(*more, settings=more_settings)
            # Other tests' virtual clock, in the same interpreter, is not for this sampler.
            own = {key: value for key, value in os.environ.items() if not key.startswith("FAKE_NVML")}
            sampler = subprocess.Popen(
                [sys.executable, "-P", "-m", "slurm_trace.node", "run", *words],
                stderr=stderr,
                env={**own, **environment},
            )
        self.samplers.append(sampler)
        pid = self.run_folder / "sampler" / "pid"
        if errors == "errors":
            within(20, lambda: pid.exists() and pid.read_text().split()[0] == str(sampler.pid))
        return sampler

    def stop(self, sampler: subprocess.Popen[bytes]) -> int:
        sampler.send_signal(signal.SIGTERM)
        return sampler.wait(20)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "slurm_trace.node", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def lease(self, gpus: str = "0,1") -> str:
        self.jobs += 1
        uptime = Path("/proc/uptime").read_text().split()[0]
        stem = f"{self.jobs}.{uptime.replace('.', '')}"
        lines = f"version=1\njob_id={self.jobs}\ncluster=hill\nnode=n1\ngpus={gpus}\n"
        self._publish(f"{stem}.lease", lines, uptime)
        return stem

    def end(self, stem: str) -> None:
        uptime = Path("/proc/uptime").read_text().split()[0]
        self._publish(f"{stem}.end", f"version=1\njob_id={stem.split('.')[0]}\nexit_code=0\n", uptime)

    def _publish(self, name: str, lines: str, uptime: str) -> None:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        target = self.run_folder / "leases" / name
        claim = target.with_name(f".{name}")
        claim.write_text(f"{lines}boot_id={boot_id}\nuptime={uptime}\n")
        claim.rename(target)

    def sealed(self, count: int) -> list[Spool]:
        within(20, lambda: len(list(self.outbox.glob("*.spool"))) >= count)
        spools = [read_spool(path) for path in self.outbox.glob("*.spool")]
        assert len(spools) == count
        return sorted(spools, key=lambda spool: (int(spool.lease["job_id"]), spool.part))

    def chunks_of(self, stem: str, part: int = 0) -> int:
        """The size of an open spool file: it grows with each flush."""
        size = 0
        for path in self.spool.glob(f"{stem}.{part}.open*"):
            # SQLite's journal comes and goes.
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    for sampler in host.samplers:
        if sampler.poll() is None:
            sampler.kill()
            sampler.wait()


def grown(host: Host, stem: str, part: int = 0) -> None:
    """Wait until at least one more flush is on the disk."""
    before = host.chunks_of(stem, part)
    within(10, lambda: host.chunks_of(stem, part) > before)


def test_from_prolog_to_outbox(host: Host) -> None:
    sampler = host.start()
    stem = host.lease()
    grown(host, stem)
    status = host.call("status", *host.words())
    assert status.returncode == 0
    assert f"running={sampler.pid}" in status.stdout
    host.end(stem)
    (spool,) = host.sealed(1)
    assert spool.path.name.startswith(f"hill_n1_{stem.replace('.', '_')}.")
    assert (spool.closed, spool.attribution, len(spool.devices)) == ("end", "whole_node", 2)
    assert spool.meta["source"] == "replay"
    assert 0 < int(spool.meta["rss_kib"] or 0) < 64 * 1024
    used = [value for series in spool.samples() for value in series.columns["utilization_pct"]]
    assert {0, 100} <= set(used)
    adds_up(spool)
    within(5, lambda: (host.run_folder / "sampler" / f"{stem}.done").exists())
    assert host.stop(sampler) == 0
    assert not (host.run_folder / "sampler" / "pid").exists()
    assert (host.folder / "errors").read_text() == ""
    after = host.call("status", *host.words())
    assert after.returncode == 1
    assert "running=no" in after.stdout
    assert "outbox=1" in after.stdout


def test_killed_and_started_again(host: Host) -> None:
    sampler = host.start()
    stem = host.lease()
    grown(host, stem)
    sampler.kill()
    sampler.wait()
    time.sleep(1.0)
    sampler = host.start()
    grown(host, stem)
    host.end(stem)
    (spool,) = host.sealed(1)
    for device in spool.devices:
        reasons = [gap.reason for gap in spool.coverage(device.uuid).gaps]
        assert reasons[-1] == "sampler_down"
    adds_up(spool)
    assert host.stop(sampler) == 0


def test_sigterm_seals_and_the_next_start_goes_on(host: Host) -> None:
    sampler = host.start()
    stem = host.lease()
    grown(host, stem)
    assert host.stop(sampler) == 0
    (first,) = host.sealed(1)
    assert (first.closed, first.part) == ("stop", 0)
    sampler = host.start()
    grown(host, stem, 1)
    host.end(stem)
    first, second = host.sealed(2)
    assert (second.closed, second.part, second.from_ns) == ("end", 1, first.to_ns)
    assert {gap.reason for gap in second.gaps} == {"sampler_stopped"}
    adds_up(first)
    adds_up(second)
    assert host.stop(sampler) == 0


def test_a_card_that_hangs_costs_nobody_else_anything(host: Host, tmp_path: Path) -> None:
    """On the fake driver, in real time: the others are read on, and SIGTERM seals although a call is still out."""
    hang_s = 60
    scenario = tmp_path / "driver"
    scenario.write_text(SCENARIO)
    environment = {"FAKE_NVML": str(scenario), "LD_LIBRARY_PATH": str(build())}
    sampler = host.start(
        "--source", "nvml", more_settings="interval_s=0.5\nhang_s=0.5\n", environment=environment
    )
    stem = host.lease()
    grown(host, stem)
    sick_now = scenario.with_suffix(".next")
    sick_now.write_text(f"{SCENARIO}fault 0 DeviceGetMemoryInfo_v2 0 100000 hang:{hang_s}\n")
    sick_now.replace(scenario)
    time.sleep(4)
    started = time.monotonic()
    assert host.stop(sampler) == 0
    assert time.monotonic() - started < 10, "nobody waits for what hangs"
    (spool,) = host.sealed(1)
    adds_up(spool)
    sick, sound = (device.uuid for device in spool.devices)
    # The first is from the prolog to the first reading.
    assert [gap.reason for gap in spool.gaps if gap.uuid == sick][1:] == ["hung"]
    assert len([gap for gap in spool.gaps if gap.uuid == sound]) == 1
    assert max(end - start for start, end in spool.coverage(sound).intervals) < 2 * S
    assert [read.moment for read in spool.counters if read.uuid == sound][-1] == "stop"


def test_only_one_sampler_serves_a_spool(host: Host) -> None:
    sampler = host.start()
    second = host.call("run", *host.words())
    assert second.returncode == 4
    assert second.stderr.count("\n") == 1
    assert host.call("run", *host.words("--until-idle")).returncode == 0
    assert host.stop(sampler) == 0


def test_until_idle_ends_with_the_last_lease(host: Host) -> None:
    stem = host.lease()
    sampler = host.start("--until-idle")
    time.sleep(1.0)
    assert sampler.poll() is None
    host.end(stem)
    assert sampler.wait(10) == 0
    assert len(host.sealed(1)) == 1


def test_one_that_ends_is_waited_for(host: Host) -> None:
    """It looked for leases before this one came, and delivers its last files."""
    host.spool.mkdir()
    with (host.spool / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stem = host.lease()
        sampler = host.start("--until-idle", errors=str(host.folder / "errors"))
        time.sleep(1.0)
        assert sampler.poll() is None
        assert host.chunks_of(stem) == 0
    within(20, lambda: host.chunks_of(stem) > 0)
    host.end(stem)
    assert sampler.wait(10) == 0
    assert len(host.sealed(1)) == 1


def test_until_idle_does_not_stay_for_a_lease_that_was_given_up(host: Host) -> None:
    host.lease()
    sampler = host.start("--until-idle", more_settings="lost_s=1\n")
    assert sampler.wait(20) == 0
    (spool,) = host.sealed(1)
    assert spool.closed == "lost"


def test_a_spool_that_cannot_be_written_is_one_line(host: Host) -> None:
    (host.spool / ".lock").mkdir(parents=True)
    done = host.call("run", *host.words())
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)


def test_status_of_what_cannot_be_seen_is_unknown(host: Host) -> None:
    host.spool.parent.joinpath("outbox").write_text("no directory")
    told = host.call("status", *host.words()).stdout.splitlines()
    assert {"open=0", "outbox=unknown", "outbox_bytes=unknown"} <= set(told)


def test_wrong_settings_are_one_line(host: Host) -> None:
    for words, code in (
        (["--interval-s", "0.1"], 2),
        (["--source", "dcgm"], 2),
        (["--config", "/no/such"], 2),
    ):
        done = host.call("run", *host.words(), *words)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == 1


def test_a_log_that_cannot_be_written_stops_nothing(host: Host) -> None:
    (host.run_folder / "leases" / "odd.lease").write_text("")
    sampler = host.start(errors="/dev/full")
    stem = host.lease()
    within(20, lambda: host.chunks_of(stem) > 0)
    host.end(stem)
    host.sealed(1)
    assert host.stop(sampler) == 0


def test_an_outbox_on_another_file_system(host: Host, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Path("/dev/shm") / f"outbox-{os.getpid()}"
    assert other.parent.stat().st_dev != host.folder.stat().st_dev
    host.outbox = other
    try:
        sampler = host.start()
        stem = host.lease()
        grown(host, stem)
        host.end(stem)
        (spool,) = host.sealed(1)
        adds_up(spool)
        assert [path.name for path in other.iterdir()] == [spool.path.name]
        assert host.stop(sampler) == 0
    finally:
        for path in other.iterdir():
            path.unlink()
        other.rmdir()


@pytest.fixture
def small_disk(host: Host) -> Iterator[Path]:
    """A file system of 600 KiB under the spool directory."""
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    host.spool.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "spool", str(host.spool)], check=True)
    yield host.spool
    for sampler in host.samplers:
        sampler.kill()
        sampler.wait()
    subprocess.run(["umount", str(host.spool)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            return filler


def test_a_full_disk_costs_samples_never_the_sampler(host: Host, small_disk: Path) -> None:
    sampler = host.start()
    stem = host.lease()
    grown(host, stem)
    filler = fill(small_disk)
    time.sleep(2.0)
    other = host.lease("0,1")
    time.sleep(1.5)
    assert sampler.poll() is None
    host.end(other)
    time.sleep(1.0)
    filler.unlink()
    grown(host, stem)
    host.end(stem)
    first, second = host.sealed(2)
    assert sampler.poll() is None
    assert int(first.meta["dropped_samples"] or 0) > 0
    for spool in (first, second):
        assert "spool_full" in {
            gap.reason for device in spool.devices for gap in spool.coverage(device.uuid).gaps
        }
        adds_up(spool)
    assert second.to_ns is not None
    assert second.to_ns - second.from_ns > S
    lines = (host.folder / "errors").read_text().splitlines()
    assert 1 <= len(lines) <= 3
    assert host.stop(sampler) == 0


def test_no_space_at_all_and_the_sampler_stops_cleanly(host: Host, small_disk: Path) -> None:
    sampler = host.start()
    fill(small_disk)
    stem = host.lease()
    time.sleep(1.5)
    host.end(stem)
    time.sleep(0.5)
    assert sampler.poll() is None
    assert host.stop(sampler) == 0
