"""All jobs that the tests before ran, from the live Slurm and the outbox, in one store: right runs, leases, bounds."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.cluster import Cluster, Run
from support.cluster_checks import SEEN_S, Expect
from support.cluster_conf import NODES, release
from support.cluster_samplers import Samplers
from support.daemons import wait_for

pytestmark = pytest.mark.cluster

# Slurm tells its database of a job some seconds late, and what ended in the last ten is not taken for final.
SETTLED_S = 40


class Tool:
    """The command, on a store of its own, on a cluster."""

    def __init__(self, lab: Cluster, store: Path) -> None:
        self.lab = lab
        self.store = store

    def __call__(self, *words: str) -> dict[str, Any]:
        """What a command says as JSON."""
        run = "from slurm_trace.cli.main import run; run()"
        done = subprocess.run(
            [sys.executable, "-P", "-c", run, "--store", str(self.store), *words, "--json"],
            env={**os.environ, "SLURM_CONF": str(self.lab.conf)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def rows(self, query: str, *values: object) -> list[Any]:
        """Rows of the store."""
        file = sqlite3.connect(f"{self.store.as_uri()}?mode=ro", uri=True)
        try:
            return file.execute(query, values).fetchall()
        finally:
            file.close()

    def runs(self, job: int) -> list[tuple[str, bool]]:
        """State of each run of a job, and whether it is final."""
        query = "SELECT state, final FROM job_run WHERE job_id_raw = ? ORDER BY run_key"
        return [(state, bool(final)) for state, final in self.rows(query, job)]


def wanted(lab: Cluster) -> dict[int, list[Run]]:
    """The expected runs by job, in order."""
    found: dict[int, list[Run]] = {}
    for run in lab.runs:
        found.setdefault(run.job, []).append(run)
    return found


@pytest.fixture(scope="module")
def tool(lab: Cluster, traced: Samplers, expect: Expect, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """A store into which everything has been brought, samples before accounting and after it."""
    tool = Tool(lab, tmp_path_factory.mktemp("store") / "store.db")
    gate = lab.gated("-N2", "-wn1,n3", "--gres=gpu:3")
    held = lab.allocation(gate.job)
    time.sleep(SEEN_S)
    # While it runs: half of what there will be.
    tool("import", "spool", str(traced.outbox))
    tool("import", "sacct")
    gate.open()
    expect(gate.job, ("COMPLETED", held))
    tool("import", "spool", str(traced.outbox))
    until = time.monotonic() + SETTLED_S
    while time.monotonic() < until:
        tool("import", "sacct")
        if all(tool.runs(job) == [(run.state, True) for run in runs] for job, runs in wanted(lab).items()):
            break
        time.sleep(1)
    return tool


def test_the_runs_are_those_of_slurm(lab: Cluster, tool: Tool) -> None:
    found = {job: tool.runs(job) for job in wanted(lab)}
    assert found == {job: [(run.state, True) for run in runs] for job, runs in wanted(lab).items()}


def test_every_run_has_its_leases_and_no_other(lab: Cluster, tool: Tool) -> None:
    query = """
        SELECT l.node, l.gpus FROM lease l JOIN job_run r ON l.run_id = r.id
        WHERE r.job_id_raw = ? ORDER BY r.run_key, l.node"""
    for job, runs in wanted(lab).items():
        held = [
            (node, None if gpus is None else ",".join(gpus))
            for run in runs
            for node, gpus in sorted(run.held.items())
        ]
        assert tool.rows(query, job) == held, job


def test_every_lease_is_of_a_run(tool: Tool) -> None:
    assert tool.rows("SELECT count(*) FROM lease")[0][0] > 0
    assert tool.rows("SELECT node, job_id_raw, closed FROM lease WHERE run_id IS NULL") == []


def test_how_a_lease_found_its_run(tool: Tool) -> None:
    # What the hooks are told depends on the release: nothing but the job id, its start too, its SLUID too.
    how = "sluid" if release() >= (26, 5) else "start" if release() >= (24, 11) else "overlap"
    assert tool.rows("SELECT DISTINCT joined_by FROM lease") == [(how,)]


def test_node_and_accounting_agree(lab: Cluster, tool: Tool) -> None:
    query = """
        SELECT r.job_id_raw, d.kind, d.node, d.recorded, d.seen,
            EXISTS (SELECT 1 FROM lease l WHERE l.run_id = r.id AND l.attribution = 'unknown')
        FROM disagreement d JOIN job_run r ON d.run_id = r.id"""
    jobs = wanted(lab)
    for job, kind, *told, unseen in tool.rows(query):
        # A lease that was over before the sampler looked has no devices: that is said, and nothing else.
        assert job not in jobs or (kind == "gpus_unknown" and unseen), (job, kind, told)


def test_every_end_is_proven(lab: Cluster, tool: Tool) -> None:
    query = "SELECT r.job_id_raw, s.release_proven FROM job_summary s JOIN job_run r ON s.run_id = r.id"
    proven = Counter(job for job, sure in tool.rows(query) if sure)
    assert {job: proven[job] for job in wanted(lab)} == {
        job: sum(bool(run.held) for run in runs) for job, runs in wanted(lab).items()
    }


def test_again_changes_nothing(traced: Samplers, tool: Tool) -> None:
    again = tool("import", "spool", str(traced.outbox))
    assert (again["inserted"], again["rejected"]) == (0, [])
    assert again["unchanged"] == again["read"] == len(list(traced.outbox.glob("*.spool")))
    assert tool("import", "sacct")["updated"] == 0


def test_bounds_of_all_runs(lab: Cluster, tool: Tool) -> None:
    ranked: dict[int, list[dict[str, Any]]] = {}
    for job in tool("rank", "--threshold", "1e18")["jobs"]:
        ranked.setdefault(job["job_id_raw"], []).append(job)
    for job, runs in wanted(lab).items():
        began = [run for run in runs if run.held]
        found = sorted(ranked.get(job, []), key=lambda one: one["start"])
        assert [one["state"] for one in found] == [run.state for run in began]
        for one, run in zip(found, began, strict=True):
            gpus = sum(len(held or ()) for held in run.held.values())
            assert (one["gpu_count"], one["nodes"]) == (gpus, len(run.held))
            assert one["bound_flop"] is not None
            assert one["bound_flop"] >= one["bound_gpu_flop"] >= 0
            assert (one["bound_gpu_flop"] > 0) == (gpus > 0)


def test_samplers_let_go_of_the_driver_without_leases(lab: Cluster, traced: Samplers) -> None:
    # Not of n1 and n2: there the troubles made leases vanish, which are waited for.
    for node in ("n3", "n4"):
        assert not lab.leases(node).open
        status = lab.node_directory(node) / "sampler" / "status"
        wait_for(lambda status=status: "driver_open=0" in status.read_text(), f"{node}, idle", status, 40)
    assert traced.alive() == set(NODES)
