"""What a real Slurm's jobs have to leave behind on its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from slurm_trace.node.spool import Spool
from support.cluster import Cluster, Gpus, Run
from support.cluster_conf import NODES
from support.cluster_samplers import Samplers, devices_of
from support.sampling import S, adds_up

# A lease that lasts this long has been seen by the sampler, and all but so much of it has samples.
SEEN_S = 2.0


def check(lab: Cluster, spool: Spool, held: Gpus) -> None:
    """A spool file is of one whole lease of these GPUs."""
    node = spool.lease["node"]
    assert spool.lease.get("gpus") == (None if held is None else ",".join(held))
    assert spool.lease["cluster"] == lab.name
    assert spool.lease["dropped"] == spool.end["dropped"] == ""
    assert (spool.part, spool.closed, spool.end["how"]) == (0, "end", "epilog")
    assert spool.from_ns == int(spool.lease["opened_cs"]) * 10_000_000
    assert spool.to_ns == int(spool.end["closed_cs"]) * 10_000_000
    if spool.attribution == "unknown":
        # Over before the sampler looked: a lease, and no samples.
        assert spool.to_ns - spool.from_ns < SEEN_S * S
        assert spool.devices == ()
        return
    assert spool.attribution == ("none" if held is None else "whole_node" if len(held) == 8 else "gres")
    assert {device.uuid for device in spool.devices} == devices_of(node, held)
    adds_up(spool)
    if spool.to_ns - spool.from_ns >= SEEN_S * S:
        for device in spool.devices:
            covered_ns = spool.coverage(device.uuid).covered_ns
            assert covered_ns > spool.to_ns - spool.from_ns - SEEN_S * S
            moments = {read.moment for read in spool.counters if read.uuid == device.uuid}
            assert {"start", "end"} <= moments


@dataclass(frozen=True)
class Expect:
    """Waits for the end of jobs; their spool files are those of the runs that are named."""

    lab: Cluster
    traced: Samplers

    def __call__(self, job: int, *runs: tuple[str, Mapping[str, Gpus]]) -> list[Spool]:
        """Check a job, and note its runs (how each ended, what it held) for what is asked of accounting later."""
        self.lab.wait_until_over([job])
        spools = self.traced.wait_for_spools(job, [node for _, held in runs for node in held])
        for node in NODES:
            mine = [spool for spool in spools if spool.lease["node"] == node]
            for spool, gpus in zip(mine, [held[node] for _, held in runs if node in held], strict=True):
                check(self.lab, spool, gpus)
            for before, after in pairwise(mine):
                assert (before.to_ns or 0) <= after.from_ns
        self.lab.runs += [Run(job, state, held) for state, held in runs]
        return spools
