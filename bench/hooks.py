"""Prolog and epilog beside /bin/true, started in turn the way slurmd starts them, in every shell that may be /bin/sh.

    make bench runs this first; alone: python -P bench/hooks.py [--runs N]

Reach: p50 at most 5 ms and p99 at most 50 ms over /bin/true.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path

SHELLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dash": ("dash", ("dash",)),
    "bash as sh": ("bash", ("sh",)),
    "busybox sh": ("busybox", ("busybox", "sh")),
}
P50_MS, P99_MS = 5.0, 50.0
JOB = {
    "SLURM_CLUSTER_NAME": "bench",
    "SLURMD_NODENAME": "n1",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_GPUS": "0,1,2,3",
}


def timed_ms(program: str, words: Sequence[str], job_id: int) -> float:
    """Start, read the output to its end, wait."""
    began = time.perf_counter()
    subprocess.run(
        words,
        executable=program,
        env={**JOB, "SLURM_JOB_ID": str(job_id)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    return (time.perf_counter() - began) * 1000


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all lies below."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(shell: str, hooks: Path, runs: int) -> list[tuple[str, float, float]]:
    """(hook, p50, p99) in ms over /bin/true."""
    program, words = SHELLS[shell]
    executable = shutil.which(program) or program
    taken: dict[str, list[float]] = {"true": [], "prolog": [], "epilog": []}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "leases").mkdir()
        Path(folder, "sampler").mkdir()
        config = Path(folder, "hooks.conf")
        config.write_text(f"directory={folder}\n")
        for run in range(1, runs + 1):
            taken["true"].append(timed_ms("/bin/true", ["true"], run))
            for hook in ("prolog", "epilog"):
                command = [*words, str(hooks / hook), str(config)]
                taken[hook].append(timed_ms(executable, command, run))
            # What a sampler would have said, so that the directory stays as small as on a node.
            for lease in Path(folder, "leases").glob("*.lease"):
                Path(folder, "sampler", f"{lease.stem}.done").touch()
    return [
        (hook, *(quantile(taken[hook], share) - quantile(taken["true"], share) for share in (0.5, 0.99)))
        for hook in ("prolog", "epilog")
    ]


def main() -> int:
    """Print a table; 1 if a figure is out of reach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    held = True
    print(f"hooks over /bin/true, {runs} runs in turn; reach p50 {P50_MS:g} ms, p99 {P99_MS:g} ms")
    with as_file(files("slurm_trace.prolog_epilog")) as hooks:
        for shell in SHELLS:
            if shutil.which(SHELLS[shell][0]) is None:
                print(f"  {shell:<11} not installed: not measured")
                continue
            for hook, p50, p99 in measure(shell, hooks, runs):
                good = p50 <= P50_MS and p99 <= P99_MS
                held = held and good
                print(
                    f"  {shell:<11} {hook}  p50 {p50:5.1f} ms  p99 {p99:5.1f} ms  {'held' if good else 'NOT held'}"
                )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
