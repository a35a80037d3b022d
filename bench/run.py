"""Import, ranking and start-up, measured; the import beside slurm2sql on the same rows in the same run.

    make bench                      # 100,000 and 1,000,000 runs: about twenty minutes on two cores
    make bench BENCH="--rows 100000"

The rows come from the generator of `examples/`; leases and counters are put beside them by `telemetry_store.py`, and
reports over these are measured again, down to the rung `pipe_cycles`. slurm2sql is installed into a folder of its own
and reads the rows as the CSV that it asks for; it keeps one row a job id, slurm-trace one row a run. Peak memory is the
sum of the resident sets of a command and its children, looked at every 20 ms.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from slurm_trace.examples.generate import write

CACHE = Path(__file__).parents[1] / ".cache"
SLURM_TRACE = Path(sys.executable).with_name("slurm-trace")
TELEMETRY = Path(__file__).with_name("telemetry_store.py")
PAGE_B = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20

# rows → how many times slurm2sql's rows a second the import has to reach
IMPORT_RATIO = {100_000: 9.0, 1_000_000: 12.0}
IMPORT_PEAK_MIB = 400.0
CORPUS_S = 60.0
MANY = "groups, 3 kinds, worst 90 days"
KINDS = ("--by", "user", "--by", "account", "--by", "lineage", "--within", "90d")
COUNTED = ("--trust", "pipe_cycles")
RANK_COUNTED, MANY_COUNTED, BOTH = "rank, with counters", "groups, with counters", "both, with counters"
HELP_MS = 150.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took."""

    seconds: float
    peak_mib: float


REACH = {
    "rank": Cost(10.0, 1024.0),
    MANY: Cost(30.0, 1536.0),
    RANK_COUNTED: Cost(30.0, 1536.0),
    MANY_COUNTED: Cost(30.0, 1536.0),
}
"""What reports over the largest number of runs have to stay below."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the result; `held` is None where there is no target."""

    what: str
    figure: str
    peak: str = ""
    target: str = ""
    held: bool | None = None


def measure(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end, its output thrown away.

    Raises:
        SystemExit: It failed; its last words are shown. Status 3 (some input was odd) is no failure.
    """
    peak = 0
    started = time.perf_counter()
    with subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    ) as process:
        while process.poll() is None:
            peak = max(peak, sum(_resident_b(pid) for pid in _family(process.pid)))
            time.sleep(0.02)
        seconds = time.perf_counter() - started
        words = process.stderr.read().decode(errors="replace") if process.stderr else ""
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{words[-2000:]}")
    return Cost(seconds, peak / MIB)


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:
            continue
        for child in pids:
            yield from _family(int(child))


def _resident_b(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_B
    except (OSError, IndexError):
        return 0  # it ended between two looks


def slurm2sql() -> Path:
    """The command, installed on first use."""
    home = CACHE / "bench-venv"
    command = home / "bin" / "slurm2sql"
    if not command.exists():
        venv.create(home, with_pip=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*map(str, pip), "slurm2sql"], check=True)
    return command


def write_csv(source: Path, target: Path) -> None:
    """The same rows as slurm2sql reads them."""
    with source.open(encoding="utf-8") as rows, target.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows(row.rstrip("\n").split("|") for row in rows)


def bench_import(rows: int, folder: Path) -> Iterator[Line]:
    """Both imports of one generated year."""
    write(folder, rows, seed=1)
    write_csv(folder / "sacct.txt", folder / "sacct.csv")
    store = folder / "store.db"
    ours = measure([SLURM_TRACE, "--store", store, "import", "sacct", folder / "sacct.txt", "--tz", "UTC"])
    # Without --update it stops at the first job that ran twice.
    theirs = measure([slurm2sql(), folder / "other.db", "--update", "--csv-input", folder / "sacct.csv"])
    measure([SLURM_TRACE, "--store", store, "import", "events", folder / "events.txt", "--tz", "UTC"])
    ratio, wanted = theirs.seconds / ours.seconds, IMPORT_RATIO.get(rows)
    yield Line(
        f"import of {rows:,}",
        f"{ours.seconds:.1f} s, {rows / ours.seconds:,.0f} rows/s",
        f"{ours.peak_mib:.0f} MiB",
        f"< {IMPORT_PEAK_MIB:.0f} MiB",
        ours.peak_mib < IMPORT_PEAK_MIB,
    )
    yield Line(
        "  slurm2sql, same rows",
        f"{theirs.seconds:.1f} s, {rows / theirs.seconds:,.0f} rows/s",
        f"{theirs.peak_mib:.0f} MiB",
    )
    yield Line(
        "  times as fast",
        f"{ratio:.1f}",
        target=f">= {wanted:.0f}" if wanted else "",
        held=ratio >= wanted if wanted else None,
    )
    again = measure([SLURM_TRACE, "--store", store, "import", "sacct", folder / "sacct.txt", "--tz", "UTC"])
    yield Line("  the same file again", f"{again.seconds:.1f} s", f"{again.peak_mib:.0f} MiB")


def bench_reports(rows: int, folder: Path) -> Iterator[Line]:
    """Ranking and groups over everything in the store."""
    for name, command in {
        "rank": ["rank"],
        "rank --json (all runs)": ["rank", "--json"],
        "groups --by all": ["groups"],
        "groups --by account": ["groups", "--by", "account"],
        "groups --by user": ["groups", "--by", "user"],
        "groups --by family --json": ["groups", "--by", "family", "--json"],
        MANY: ["groups", *KINDS],
    }.items():
        yield report(name, rows, _measured(folder, command))


def bench_counters(rows: int, folder: Path) -> Iterator[Line]:
    """The same where most runs have leases, and counters that may lower their bounds."""
    filled = measure([sys.executable, "-P", TELEMETRY, folder / "store.db"])
    yield Line(
        f"leases and counters beside {rows:,}", f"{filled.seconds:.1f} s", f"{filled.peak_mib:.0f} MiB"
    )
    rank = _measured(folder, ["rank", *COUNTED])
    yield report(RANK_COUNTED, rows, rank)
    groups = _measured(folder, ["groups", *KINDS, *COUNTED])
    yield report(MANY_COUNTED, rows, groups)
    yield report(BOTH, rows, Cost(rank.seconds + groups.seconds, max(rank.peak_mib, groups.peak_mib)))


def _measured(folder: Path, command: Sequence[str]) -> Cost:
    return measure([SLURM_TRACE, "--config", folder / "site.toml", "--store", folder / "store.db", *command])


def report(name: str, rows: int, cost: Cost) -> Line:
    """What a report took, beside its target."""
    reach = REACH.get(name) if rows == max(IMPORT_RATIO) else None
    return Line(
        f"{name}, {rows:,} runs",
        f"{cost.seconds:.1f} s",
        f"{cost.peak_mib:.0f} MiB",
        f"< {reach.seconds:.0f} s, < {reach.peak_mib:.0f} MiB" if reach else "",
        (cost.seconds < reach.seconds and cost.peak_mib < reach.peak_mib) if reach else None,
    )


def bench_corpus() -> Line:
    """The whole boundary corpus, judged and checked."""
    cost = measure([SLURM_TRACE, "corpus", "run", "--check"])
    return Line(
        "corpus run --check",
        f"{cost.seconds:.1f} s",
        f"{cost.peak_mib:.0f} MiB",
        f"< {CORPUS_S:.0f} s",
        cost.seconds < CORPUS_S,
    )


def bench_help(tries: int = 20) -> Line:
    """The quickest of some starts: what the program needs, not what else the machine did."""
    best_ms = min(
        _timed(lambda: subprocess.run([SLURM_TRACE, "--help"], capture_output=True, check=True))
        for _ in range(tries)
    )
    return Line(
        "slurm-trace --help", f"{best_ms:.0f} ms", target=f"< {HELP_MS:.0f} ms", held=best_ms < HELP_MS
    )


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, action="append", help="runs to import; may be repeated")
    sizes = parser.parse_args().rows or list(IMPORT_RATIO)
    folder = CACHE / "bench"
    print(f"{'':48}{'time':28}{'peak':>10}  target", flush=True)
    show(bench_help())
    show(bench_corpus())
    for rows in sizes:
        shutil.rmtree(folder, ignore_errors=True)
        for line in bench_import(rows, folder):
            show(line)
        for line in chain(bench_reports(rows, folder), bench_counters(rows, folder)):
            show(line)
    shutil.rmtree(folder, ignore_errors=True)


def show(line: Line) -> None:
    """Print one line of the result."""
    verdict = "" if line.held is None else ("held" if line.held else "MISSED")
    print(f"{line.what:48}{line.figure:28}{line.peak:>10}  {line.target:22}{verdict}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
