"""Hooks in every trouble, on a real Slurm: no node is drained, no job is delayed, and afterwards all is as before."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.cluster_conf import NODES
from support.cluster_samplers import Samplers
from support.cluster_trouble import TROUBLES
from support.daemons import wait_for

pytestmark = pytest.mark.cluster

# A hook's cap is one second; the rest is Slurm's own way from submission to a script on a busy machine.
DELAY_S = 4.0


def run_job(lab: Cluster) -> tuple[int, float]:
    """A job on both nodes; how long from its submission to its script, and from its end to the end of its epilogs."""
    submitted = time.time()
    job = lab.sbatch("date +%s.%N", "-N2", "-wn1,n2", "--gres=gpu:8")
    lab.wait_until_over([job])
    began = float((lab.jobs / f"{job}.out").read_text())
    return job, max(began - submitted, time.time() - began)


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_neither_drains_nor_delays(lab: Cluster, traced: Samplers, name: str) -> None:
    with TROUBLES[name](lab):
        job, waited = run_job(lab)
        assert lab.states(job) == {job: "COMPLETED"}
        assert waited < DELAY_S
        assert lab.node_states() == dict.fromkeys(NODES, "idle")
    assert not (lab.root / "was-here").exists()
    job, _ = run_job(lab)
    for node in ("n1", "n2"):
        scan = lab.leases(node)
        assert [end.how for lease, end in scan.ended if lease.job_id == job] == ["epilog"]
        assert not scan.refused
    traced.wait_for_spools(job, ["n1", "n2"])
    assert traced.alive() == set(NODES)


def test_process_that_a_prolog_starts_outlives_the_job_and_holds_nothing_up(
    lab: Cluster, traced: Samplers
) -> None:
    started = lab.root / "started"
    program = lab.root / "etc" / "fake-sampler"
    program.write_text(f"#!/bin/sh\necho $$ >>{started}\nexec sleep 60\n")
    program.chmod(0o755)
    settings = (
        f"directory={lab.root}/nodes/%n\nsampler_start=setsid\nsampler_user=root\nsampler_command={program}\n"
    )
    started.touch()
    with traced.without("n1", "n2"), lab.hooks_configured(settings):
        try:
            _, waited = run_job(lab)
            assert waited < DELAY_S
            wait_for(lambda: len(started.read_text().split()) == 2, "two samplers")
            for pid in started.read_text().split():
                process = Path("/proc", pid)
                wait_for(lambda process=process: (process / "comm").read_text() == "sleep\n", "its exec")
                assert {one.readlink() for one in (process / "fd").iterdir()} == {Path("/dev/null")}
            assert lab.node_states() == dict.fromkeys(NODES, "idle")
        finally:
            for pid in started.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
