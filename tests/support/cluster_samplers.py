"""The project's sampler on every node of a cluster, each over eight fake GPUs of its own; one outbox for all."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fake_nvml.build import build

from slurm_trace.node.presence import running
from slurm_trace.node.spool import Spool, read_spool
from support.cluster import Cluster, Gpus
from support.cluster_conf import FIRST_MINOR, GPU_TYPES, GPUS, NODES
from support.daemons import start, stop, wait_for

INTERVAL_S = 0.5
CHUNK_S = 2.0


def uuid_of(node: str, gpu: str) -> str:
    """UUID of the card that Slurm means by an index."""
    return f"GPU-{node}000000-0000-0000-0000-{int(gpu) + FIRST_MINOR[node]:012d}"


class Samplers:
    """Samplers by node, and what they have sealed."""

    def __init__(self, lab: Cluster, source: str) -> None:
        self._lab = lab
        self._source = source
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._library = build() if source == "nvml" else Path()
        self.outbox = lab.root / "outbox"
        for node in NODES:
            self._configure(node)

    def _configure(self, node: str) -> None:
        # NVML's order runs against that of the minor numbers.
        cards = [
            f"gpu {GPU_TYPES[node].upper()} {uuid_of(node, str(gpu))} minor={gpu + FIRST_MINOR[node]}"
            for gpu in reversed(range(GPUS))
        ]
        work = [f"work {number} 0 100000 hmma=0.5" for number in range(GPUS)]
        self.scenario(node).write_text("\n".join([*cards, *work, ""]))
        self.config(node).write_text(
            f"directory={self._lab.node_directory(node)}\nspool={self.spool(node)}\noutbox={self.outbox}\n"
            f"interval_s={INTERVAL_S}\nchunk_s={CHUNK_S}\nidle_s=1\ngres_conf={self._lab.root}/etc/gres.conf\n"
            f"source={self._source}\nreplay={self.scenario(node)}\n"
        )

    def scenario(self, node: str) -> Path:
        """What the fake driver of a node shows; may be changed at any time."""
        return self._lab.root / "etc" / f"{node}.scenario"

    def config(self, node: str) -> Path:
        """The sampler's configuration."""
        return self._lab.root / "etc" / f"{node}.conf"

    def spool(self, node: str) -> Path:
        """Where its open spool files lie."""
        return self._lab.root / "spool" / node

    def command(self, node: str) -> list[str]:
        """How the sampler of a node is run."""
        return [sys.executable, "-P", "-m", "slurm_trace.node", "run", "--config", str(self.config(node))]

    def environment(self, node: str) -> dict[str, str]:
        """What makes it find the fake driver."""
        return {"LD_LIBRARY_PATH": str(self._library), "FAKE_NVML": str(self.scenario(node))}

    def start(self, node: str) -> None:
        """Start one, and wait until it has said that it runs."""
        log = self._lab.root / "log" / f"sampler.{node}.out"
        process = self._running[node] = start(self.command(node), log, self.environment(node))
        sign = self._lab.node_directory(node) / "sampler"
        wait_for(lambda: running(sign) == process.pid, f"the sampler of {node}", log)

    def stop(self, node: str) -> None:
        """Ask it to end, and wait."""
        stop(self._running.pop(node))

    def kill(self, node: str) -> None:
        """End it at once."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    @contextmanager
    def without(self, *nodes: str, kill: bool = False) -> Iterator[None]:
        """Nodes on which no sampler runs for the time of the block."""
        for node in nodes:
            (self.kill if kill else self.stop)(node)
        try:
            yield
        finally:
            for node in nodes:
                self.start(node)

    def alive(self) -> set[str]:
        """Nodes whose sampler runs."""
        return {node for node, process in self._running.items() if process.poll() is None}

    def stop_all(self) -> None:
        """End all of them."""
        for node in list(self._running):
            self.stop(node)

    def sealed(self, *jobs: int) -> list[Spool]:
        """What is in the outbox of these jobs, in the order of node, lease and part."""
        wanted = {str(job) for job in jobs}
        with contextlib.suppress(FileNotFoundError):
            found = [
                p for p in self.outbox.iterdir() if p.suffix == ".spool" and p.name.split("_")[2] in wanted
            ]
            return sorted((read_spool(path) for path in found), key=_order)
        return []

    def wait_for_spools(self, job: int, nodes: Sequence[str]) -> list[Spool]:
        """Until as many leases of a job are sealed as are named (a node once per run); then what is in the outbox."""

        def done() -> bool:
            ends = [spool for spool in self.sealed(job) if spool.closed != "stop"]
            return sorted(spool.lease["node"] for spool in ends) == sorted(nodes)

        wait_for(done, f"spools of job {job} from {nodes}: {[(s.lease, s.closed) for s in self.sealed(job)]}")
        return self.sealed(job)


def _order(spool: Spool) -> tuple[str, int, int]:
    return spool.lease.get("node", ""), int(spool.lease.get("moment", 0)), spool.part


def devices_of(node: str, gpus: Gpus) -> set[str]:
    """UUIDs that a lease of these GPUs has to name."""
    return {uuid_of(node, gpu) for gpu in gpus or ()}


@contextmanager
def samplers(lab: Cluster, source: str = "nvml") -> Iterator[Samplers]:
    """One on every node, until the end: on the fake driver (`nvml`), or on its scenario alone (`replay`)."""
    made = Samplers(lab, source)
    try:
        for node in NODES:
            made.start(node)
        yield made
    finally:
        made.stop_all()
