"""The sampler beside other pollers of eight GPUs, on the same fake driver, in the same run.

    make bench-node        # or: python -P bench/node.py [--polls N]; some three minutes

Beside it: a plain loop over pynvml that reads the same values and keeps nothing, nvitop's collector, and gpucm's
nvml_monitor, each from PyPI in an environment of its own. The sampler is the zipapp that `make node` builds, with
leases, watchdog, counters, ring buffers and spool file; only its clock is hurried, and once it runs by the real one.
They take turns, round after round, and the median of each is shown: machines are faster now and slower then. Needs
gcc, which builds the fake driver.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache"
LOOPS = Path(__file__).with_name("node_loops.py")
CARDS = 8
HZ_S = 30.0
ROUNDS = 5

CPU_TIMES_PLAIN = 1.5
PEAK_MIB = 32.0
CORE_SHARE = 0.01
DAY_BYTES = {1: 8_000_000, 10: 1_500_000}
SUMMARY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the result; `held` is None where there is no target."""

    what: str
    figure: str
    peak: str = ""
    target: str = ""
    held: bool | None = None


def environment(name: str, *packages: str) -> Path:
    """The Python of an environment that has these packages, made on first use."""
    home = CACHE / f"bench-{name}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        (home / "complete").touch()
    return python


def fake_driver(python: Path) -> Path:
    """The folder of the fake driver library."""
    paths = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    words = [str(python), "-P", "-m", "fake_nvml.build"]
    built = subprocess.run(words, env=paths, check=True, capture_output=True, text=True)
    return Path(built.stdout.strip())


def scenario(folder: Path) -> Mapping[str, str]:
    """Eight cards at work; the environment that makes the fake driver show them."""
    cards = [f"gpu H100 GPU-{n:08d}-0000-0000-0000-000000000000" for n in range(CARDS)]
    work = [f"work {n} 0 1000000 hmma=0.4 tx=5000 rx=9000" for n in range(CARDS)]
    (folder / "scenario").write_text("\n".join([f"epoch {int(time.time()) - 60}", *cards, *work]) + "\n")
    (folder / "clock").write_bytes(struct.pack("=d", time.time()))
    return {"FAKE_NVML": str(folder / "scenario"), "FAKE_NVML_CLOCK": str(folder / "clock")}


def poll(python: Path, words: Sequence[str], driver: Mapping[str, str]) -> dict[str, float]:
    """What a loop took."""
    command = [str(python), "-P", str(LOOPS), *words]
    done = subprocess.run(command, env={**os.environ, **driver}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def pollers(polls: int, zipapp: Path, driver: Mapping[str, str]) -> list[Line]:
    """CPU and memory of each, per 1,000 polls: the median of some rounds, and the highest peak."""
    plain_python = environment("pynvml", "nvidia-ml-py", "nvidia-nvml-dev")
    count = str(polls)
    loops: dict[str, tuple[Path, list[str]]] = {
        "sampler, 1,000 polls of 8 GPUs": (Path(sys.executable), ["sampler", count, str(zipapp)]),
        "  plain pynvml loop": (plain_python, ["pynvml", count]),
        "  nvitop, collector": (environment("nvitop", "nvitop"), ["nvitop", count]),
        "  gpucm, nvml_monitor": (environment("gpucm", "gpucm", "pynvml"), ["gpucm", count]),
    }
    rounds = [
        {name: poll(python, words, driver) for name, (python, words) in loops.items()} for _ in range(ROUNDS)
    ]
    peaks = {name: max(found[name]["peak_mib"] for found in rounds) for name in loops}
    lines = []
    for name in loops:
        cpu_s = statistics.median(found[name]["cpu_s"] for found in rounds) * 1000 / polls
        lines.append(Line(name, f"{cpu_s:.2f} s CPU", f"{peaks[name]:.1f} MiB"))
    sampler, plain, *others = loops
    times = statistics.median(found[sampler]["cpu_s"] / found[plain]["cpu_s"] for found in rounds)
    less = statistics.median(
        min(found[name]["cpu_s"] for name in others) / found[sampler]["cpu_s"] for found in rounds
    )
    ours = replace(lines[0], target=f"<= {PEAK_MIB:.0f} MiB", held=peaks[sampler] <= PEAK_MIB)
    ratios = [
        Line("  times the plain loop", f"{times:.2f}", "", f"<= {CPU_TIMES_PLAIN}", times <= CPU_TIMES_PLAIN),
        Line("  less than both others", f"{less:.1f} times", "", "> 1", less > 1),
    ]
    return [ours, *lines[1:], *ratios]


def by_the_clock(zipapp: Path, driver: Mapping[str, str], folder: Path) -> Line:
    """The zipapp as a service: one reading a second, for half a minute, start and end left out."""
    real = {key: value for key, value in driver.items() if key != "FAKE_NVML_CLOCK"}
    leases = folder / "run" / "leases"
    leases.mkdir(parents=True)
    words = [
        str(zipapp),
        "run",
        "--directory",
        str(folder / "run"),
        "--spool",
        str(folder / "open"),
        "--chunk-s",
        "10",
    ]
    sampler = subprocess.Popen([sys.executable, "-I", *words], env={**os.environ, **real})
    try:
        time.sleep(2)
        uptime = Path("/proc/uptime").read_text().split()[0]
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        lease = leases / f"1.{uptime.replace('.', '')}.lease"
        gpus = ",".join(map(str, range(CARDS)))
        lease.write_text(f"version=1\njob_id=1\ngpus={gpus}\nboot_id={boot_id}\nuptime={uptime}\n")
        time.sleep(3)
        before, began = _cpu_s(sampler.pid), time.monotonic()
        time.sleep(HZ_S)
        share = (_cpu_s(sampler.pid) - before) / (time.monotonic() - began)
        status = Path(f"/proc/{sampler.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    finally:
        sampler.send_signal(signal.SIGTERM)
        sampler.wait()
    held = share <= CORE_SHARE and peak <= PEAK_MIB
    target = f"<= {CORE_SHARE:.0%}, {PEAK_MIB:.0f} MiB"
    return Line("sampler at 1 Hz, 8 GPUs", f"{share:.2%} of a core", f"{peak:.1f} MiB", target, held)


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def days(zipapp: Path, folder: Path) -> list[Line]:
    """A job of a day over eight cards that never rest: its spool file, and its summary in the store."""
    lines = []
    for interval, limit in DAY_BYTES.items():
        outbox = folder / f"outbox-{interval}"
        poll(Path(sys.executable), ["day", str(interval), str(zipapp), str(outbox)], {})
        (spool,) = outbox.glob("*.spool")
        size = spool.stat().st_size
        what = f"spool of a node-day, every {interval} s"
        lines.append(Line(what, f"{size / 1e6:.2f} MB", "", f"<= {limit / 1e6:.1f} MB", size <= limit))
    size = summary_bytes(outbox, folder)
    target = f"<= {SUMMARY_BYTES} bytes"
    return [*lines, Line("summary of that job, as JSON", f"{size} bytes", "", target, size <= SUMMARY_BYTES)]


def summary_bytes(outbox: Path, folder: Path) -> int:
    """The one row that the store keeps of a job's samples for good, with the names of its columns."""
    store, record = folder / "store.sqlite", folder / "sacct.txt"
    start = int(time.time()) - 60
    times = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) for at in (start, start, start + 2 * 86_400)]
    tres = f"cpu=64,gres/gpu={CARDS},node=1"
    record.write_text(
        "JobIDRaw|Cluster|State|Submit|Start|End|Elapsed|NNodes|NodeList|AllocTRES\n"
        f"1|bench|COMPLETED|{'|'.join(times)}|2-00:00:00|1|n1|{tres}\n"
    )
    command = [str(Path(sys.executable).with_name("slurm-trace")), "--store", f"sqlite:///{store}", "import"]
    for words in (["sacct", str(record), "--tz", "UTC"], ["spool", str(outbox)]):
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
    with contextlib.closing(sqlite3.connect(store)) as file:
        file.row_factory = sqlite3.Row
        (row,) = file.execute("SELECT * FROM job_summary").fetchall()
    if row["gpus"] != CARDS or row["energy_mj"] is None:
        raise SystemExit(f"the summary does not hold what was sampled: {dict(row)}")
    return len(json.dumps(dict(row)))


def show(lines: Sequence[Line]) -> bool:
    """Print, and say whether all targets were held."""
    for line in lines:
        mark = {None: "", True: "held", False: "MISSED"}[line.held]
        sys.stdout.write(f"{line.what:<34} {line.figure:>16} {line.peak:>10}  {line.target:<16} {mark}\n")
    return all(line.held is not False for line in lines)


def main() -> int:
    """Measure and print; 1 if a target was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--polls", type=int, default=1000)
    polls: int = parser.parse_args().polls
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        builder = environment("pynvml", "nvidia-ml-py", "nvidia-nvml-dev")
        driver = {**scenario(folder), "LD_LIBRARY_PATH": str(fake_driver(builder))}
        zipapp = folder / "slurm-trace-node.pyz"
        script = str(ROOT / "prolog_epilog" / "zipapp_node.py")
        subprocess.run([sys.executable, script, str(zipapp)], check=True, stdout=subprocess.DEVNULL)
        lines = [*pollers(polls, zipapp, driver), by_the_clock(zipapp, driver, folder), *days(zipapp, folder)]
    return 0 if show(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
