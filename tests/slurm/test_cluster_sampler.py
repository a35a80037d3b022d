"""The sampler on a real Slurm: killed, stopped, late, started by the prolog; what it missed is a gap."""

from __future__ import annotations

import time

import pytest

from slurm_trace.node.presence import running
from support.cluster import Cluster
from support.cluster_conf import NODES
from support.cluster_samplers import Samplers, devices_of
from support.daemons import wait_for
from support.sampling import S, adds_up

pytestmark = pytest.mark.cluster

EIGHT = tuple("01234567")


def test_killed_while_a_job_runs(lab: Cluster, traced: Samplers) -> None:
    gate = lab.gated("-wn1", "--gres=gpu:2")
    held = lab.allocation(gate.job)["n1"]
    time.sleep(4)
    with traced.without("n1", kill=True):
        time.sleep(1.5)
    time.sleep(2)
    gate.open()
    lab.wait_until_over([gate.job])
    (spool,) = traced.wait_for_spools(gate.job, ["n1"])
    assert (spool.closed, spool.part) == ("end", 0)
    assert {device.uuid for device in spool.devices} == devices_of("n1", held)
    adds_up(spool)
    for device in spool.devices:
        gaps = [gap for gap in spool.coverage(device.uuid).gaps if gap.reason != "before_first_read"]
        assert [gap.reason for gap in gaps] == ["sampler_down"]
        assert (gaps[0].to_ns or 0) - gaps[0].from_ns >= 1.5 * S
        # What it had read before it was killed is there but for one chunk.
        assert gaps[0].from_ns - spool.from_ns > 1.5 * S


def test_stopped_while_a_job_runs(lab: Cluster, traced: Samplers) -> None:
    gate = lab.gated("-wn2", "--gres=gpu:8")
    time.sleep(2)
    with traced.without("n2"):
        time.sleep(1)
    time.sleep(2)
    gate.open()
    lab.wait_until_over([gate.job])
    traced.wait_for_spools(gate.job, ["n2"])
    first, second = traced.sealed(gate.job)
    assert (first.part, first.closed) == (0, "stop")
    assert (second.part, second.closed) == (1, "end")
    assert first.to_ns == second.from_ns
    for spool in (first, second):
        assert {device.uuid for device in spool.devices} == devices_of("n2", EIGHT)
        adds_up(spool)
    longest = max((g.to_ns or 0) - g.from_ns for g in second.coverage(second.devices[0].uuid).gaps)
    assert longest >= 1 * S


def test_no_sampler_for_the_whole_job(lab: Cluster, traced: Samplers) -> None:
    with traced.without("n1", kill=True):
        job = lab.sbatch("true", "-wn1", "--gres=gpu:8")
        lab.wait_until_over([job])
    (spool,) = traced.wait_for_spools(job, ["n1"])
    assert spool.closed == "end"
    assert spool.lease["gpus"] == ",".join(EIGHT)
    assert all(not spool.coverage(device.uuid).intervals for device in spool.devices)


def test_one_sampler_fell_the_other_nodes_go_on(lab: Cluster, traced: Samplers) -> None:
    with traced.without("n3", kill=True):
        gate = lab.gated("-N4", "--gres=gpu:8")
        time.sleep(2)
        gate.open()
        lab.wait_until_over([gate.job])
    spools = {spool.lease["node"]: spool for spool in traced.wait_for_spools(gate.job, NODES)}
    for node in {"n1", "n2", "n4"}:
        assert spools[node].coverage(spools[node].devices[0].uuid).covered_ns > 1 * S


def test_a_card_is_lost_and_comes_back(lab: Cluster, traced: Samplers) -> None:
    scenario = traced.scenario("n4")
    usual = scenario.read_text()
    gate = lab.gated("-wn4", "--gres=gpu:8")
    time.sleep(1.5)
    scenario.write_text(usual + "fault 3 * start end lost\n")
    time.sleep(2)
    scenario.write_text(usual)
    time.sleep(3)
    gate.open()
    lab.wait_until_over([gate.job])
    (spool,) = traced.wait_for_spools(gate.job, ["n4"])
    adds_up(spool)
    lost = next(device for device in spool.devices if device.index == 3)
    assert any(gap.reason == "lost" for gap in spool.coverage(lost.uuid).gaps)
    for device in spool.devices:
        covered_s = spool.coverage(device.uuid).covered_ns / S
        assert covered_s > (0.5 if device is lost else 4)


def test_started_by_the_prolog_and_gone_with_the_last_job(lab: Cluster, traced: Samplers) -> None:
    variables = " ".join(f"{key}={value}" for key, value in traced.environment("n1").items())
    command = f"/usr/bin/env {variables} {' '.join(traced.command('n1'))} --until-idle"
    usual = f"directory={lab.root}/nodes/%n\n"
    sign = lab.node_directory("n1") / "sampler"
    with (
        traced.without("n1"),
        lab.hooks_configured(f"{usual}sampler_start=setsid\nsampler_user=root\nsampler_command={command}\n"),
    ):
        gate = lab.gated("-wn1", "--gres=gpu:8")
        wait_for(lambda: running(sign) is not None, "the sampler that the prolog starts")
        pid = running(sign)
        other = lab.sbatch("true", "-wn1")
        lab.wait_until_over([other])
        assert running(sign) == pid
        time.sleep(2)
        gate.open()
        lab.wait_until_over([gate.job])
        (spool,) = traced.wait_for_spools(gate.job, ["n1"])
        assert spool.coverage(spool.devices[0].uuid).covered_ns > 1 * S
        wait_for(lambda: running(sign) is None, "its end", limit_s=20)
