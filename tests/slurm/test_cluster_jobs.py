"""Jobs of every kind on a real Slurm: each run leaves a spool file per node, of its GPUs, from prolog to epilog."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from slurm_trace.node.lease import Lease
from support.cluster import Cluster, Gpus, Run
from support.cluster_checks import SEEN_S, Expect, check
from support.cluster_conf import NODES
from support.cluster_samplers import Samplers
from support.daemons import wait_for

pytestmark = pytest.mark.cluster


def open_leases(lab: Cluster, job: int) -> dict[str, Lease]:
    """The leases of a job that runs, by node."""
    return {node: lease for node in NODES for lease in lab.leases(node).open if lease.job_id == job}


def everywhere(gpus: Gpus) -> dict[str, Gpus]:
    return dict.fromkeys(NODES, gpus)


EIGHT = tuple("01234567")


def test_batch(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-wn1", "--gres=gpu:2", "-Aphys")
    held = lab.allocation(gate.job)
    assert len(held["n1"] or ()) == 2
    (lease,) = open_leases(lab, gate.job).values()
    assert (lease.node, lease.gpus, lease.cuda) == ("n1", held["n1"], held["n1"])
    assert (lease.user, lease.uid, lease.account, lease.partition) == ("alice", 7001, "phys", "gpu")
    time.sleep(SEEN_S)
    gate.open()
    expect(gate.job, ("COMPLETED", held))


def test_a_job_that_fails(lab: Cluster, expect: Expect) -> None:
    job = lab.sbatch("exit 3", "-wn2", "--gres=gpu:8")
    (spool,) = expect(job, ("FAILED", {"n2": EIGHT}))
    # A wait status, as waitpid(2) gives it. An Epilog that runs inside the job does not know it yet.
    assert spool.end["exit_code"] == ("0" if "RunInJob" in lab.prolog_flags else str(3 << 8))


def test_without_gpus(lab: Cluster, expect: Expect) -> None:
    job = lab.sbatch("true", "-wn3", user="bob")
    expect(job, ("COMPLETED", {"n3": None}))


def test_four_nodes(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-N4", "--gres=gpu:8")
    assert lab.allocation(gate.job) == everywhere(EIGHT)
    assert set(open_leases(lab, gate.job)) == set(NODES)
    time.sleep(SEEN_S)
    gate.open()
    expect(gate.job, ("COMPLETED", everywhere(EIGHT)))


def test_two_jobs_on_a_node(lab: Cluster, expect: Expect) -> None:
    gates = [lab.gated("-wn1", "--gres=gpu:3"), lab.gated("-wn1", "--gres=gpu:4", user="bob")]
    held = [lab.allocation(gate.job) for gate in gates]
    first, second = (set(one["n1"] or ()) for one in held)
    assert (len(first), len(second), first & second) == (3, 4, set())
    time.sleep(SEEN_S)
    gates[0].open()
    expect(gates[0].job, ("COMPLETED", held[0]))
    assert set(open_leases(lab, gates[1].job)) == {"n1"}
    gates[1].open()
    expect(gates[1].job, ("COMPLETED", held[1]))


def test_different_gpus_on_each_node(lab: Cluster, expect: Expect) -> None:
    other = lab.gated("-wn1", "--gres=gpu:2")
    taken = lab.allocation(other.job)
    gate = lab.gated("-wn1,n2", "-N2", "--gres=gpu:4")
    held = lab.allocation(gate.job)
    assert held["n1"] != held["n2"]
    time.sleep(SEEN_S)
    for one in (other, gate):
        one.open()
    expect(other.job, ("COMPLETED", taken))
    expect(gate.job, ("COMPLETED", held))


def test_array(lab: Cluster, expect: Expect) -> None:
    first = lab.sbatch("true", "--array=0-5%3", "-wn2", "--gres=gpu:8")
    lab.wait_until_over([first])
    tasks = sorted(lab.states(first))
    assert len(tasks) == 6
    assert first in tasks
    for task in tasks:
        expect(task, ("COMPLETED", {"n2": EIGHT}))


def test_het(lab: Cluster, expect: Expect) -> None:
    options = ("-wn3", "--gres=gpu:h100:2", ":", "-wn4", "--gres=gpu:a100:8")
    show = "scontrol show job -d $SLURM_JOB_ID_HET_GROUP_0"
    script = f"echo $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOB_ID_HET_GROUP_1; {show}"
    said = lab.run("salloc", *options, "sh", "-c", script, user="alice")
    leader, other = map(int, said.splitlines()[0].split())
    held = {node: gpus for node, gpus in lab.allocation_in(said).items() if node == "n3"}
    assert len(held["n3"] or ()) == 2
    for spool in expect(leader, ("COMPLETED", held)) + expect(other, ("COMPLETED", {"n4": EIGHT})):
        assert spool.lease["het_job_id"] == str(leader)


def test_allocation_without_a_step(lab: Cluster, expect: Expect) -> None:
    said = lab.run("salloc", "-wn1", "--gres=gpu:8", "sh", "-c", "echo $SLURM_JOB_ID", user="bob")
    expect(int(said.split()[-1]), ("COMPLETED", {"n1": EIGHT}))


def test_srun(lab: Cluster, expect: Expect) -> None:
    said = lab.run("srun", "-wn1", "--gres=gpu:8", "sh", "-c", "echo $SLURM_JOB_ID", user="bob")
    expect(int(said.split()[-1]), ("COMPLETED", {"n1": EIGHT}))


def test_requeue(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-wn1", "--gres=gpu:8", "--requeue")
    lab.run("scontrol", "requeue", str(gate.job))
    gate.open()
    expect(gate.job, ("REQUEUED", {"n1": EIGHT}), ("COMPLETED", {"n1": EIGHT}))


def test_requeue_onto_another_node(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("--gres=gpu:8", "--requeue", "--exclude=n2,n3,n4")
    lab.run("scontrol", "requeuehold", str(gate.job))
    lab.wait(gate.job, "PENDING")
    lab.run("scontrol", "update", f"jobid={gate.job}", "ExcNodeList=n1,n3,n4")
    lab.run("scontrol", "release", str(gate.job))
    gate.open()
    expect(gate.job, ("REQUEUED", {"n1": EIGHT}), ("COMPLETED", {"n2": EIGHT}))


@pytest.mark.parametrize("user", ["alice", "root"])
def test_cancelled(lab: Cluster, expect: Expect, user: str) -> None:
    gate = lab.gated("-N2", "-wn1,n2", "--gres=gpu:8")
    lab.run("scancel", str(gate.job), user=None if user == "root" else user)
    expect(gate.job, ("CANCELLED", {"n1": EIGHT, "n2": EIGHT}))


def test_cancelled_before_it_began(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-wn1", "--gres=gpu:8")
    job = lab.sbatch("true", "-wn1", "--gres=gpu:8", user="bob")
    lab.run("scancel", str(job))
    gate.open()
    expect(job, ("CANCELLED", {}))
    expect(gate.job, ("COMPLETED", {"n1": EIGHT}))


def test_preempted(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-pyielding", "-N2", "-wn1,n2", "--gres=gpu:8", "--requeue")
    urgent = lab.gated("-purgent", "-wn2", "--gres=gpu:5", user="bob")
    held = lab.allocation(urgent.job)
    time.sleep(SEEN_S)
    gate.open()
    urgent.open()
    expect(urgent.job, ("COMPLETED", held))
    both = {"n1": EIGHT, "n2": EIGHT}
    expect(gate.job, ("PREEMPTED", both), ("COMPLETED", both))


def test_over_its_time(lab: Cluster, expect: Expect) -> None:
    # A minute is Slurm's shortest limit; an end can be set to any second. It is looked for every 30 s.
    gate = lab.gated("-wn3", "--gres=gpu:8", "--time=1")
    lab.run("scontrol", "update", f"jobid={gate.job}", "EndTime=now+1")
    expect(gate.job, ("TIMEOUT", {"n3": EIGHT}))


def test_hundreds_at_once(lab: Cluster, traced: Samplers) -> None:
    first = lab.sbatch("true", "--array=1-240", "--gres=gpu:1", "--mem=1")
    lab.wait_until_over([first], limit_s=120)
    tasks = sorted(lab.states(first))
    assert len(tasks) == 240
    wait_for(lambda: len(traced.sealed(*tasks)) == 240, "240 spool files")
    by_gpu: dict[str, list[tuple[int, int]]] = {}
    for spool in traced.sealed(*tasks):
        tasks.remove(int(spool.lease["job_id"]))
        (gpu,) = spool.lease["gpus"].split(",")
        check(lab, spool, (gpu,))
        by_gpu.setdefault(f"{spool.lease['node']} {gpu}", []).append((spool.from_ns, spool.to_ns or 0))
        lab.runs.append(Run(int(spool.lease["job_id"]), "COMPLETED", {spool.lease["node"]: (gpu,)}))
    assert tasks == []
    # No GPU was held twice at a time.
    for spans in by_gpu.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def test_slurmd_started_anew(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-wn2", "--gres=gpu:8")
    lab.kill_slurmd("n2")
    lab.start_slurmd("n2")
    lab.wait_for_nodes()
    assert set(open_leases(lab, gate.job)) == {"n2"}
    time.sleep(SEEN_S)
    gate.open()
    expect(gate.job, ("COMPLETED", {"n2": EIGHT}))


def test_node_that_fails(lab: Cluster, expect: Expect) -> None:
    gate = lab.gated("-N2", "-wn3,n4", "--gres=gpu:8", "--no-requeue")
    lab.kill_slurmd("n4")
    lab.wait(gate.job, "NODE_FAIL", limit_s=90)
    # The node itself knows nothing of it: its lease stays open until its epilog has run.
    assert set(open_leases(lab, gate.job)) == {"n4"}
    lab.start_slurmd("n4")
    lab.wait_for_nodes()
    expect(gate.job, ("NODE_FAIL", {"n3": EIGHT, "n4": EIGHT}))


ODD_NAMES = [
    "pipe|name",
    "new\nline",
    "carriage\rreturn",
    "tab\tname",
    "escape\x1b[31mred",
    "quotes'\"`",
    "$(touch /tmp/slurm-trace-was-here)`id`",
    "ünï-训练-🚀",
    " leading and trailing ",
    "%j=%A;&&\\",
    "-J",
    "x" * 1000,
]


def test_odd_names(lab: Cluster, expect: Expect) -> None:
    folder = lab.jobs / "odd dir|ü\nx"
    folder.mkdir()
    folder.chmod(0o777)
    jobs = {
        lab.sbatch(
            "true", f"--job-name={name}", f"--comment={name}", "--chdir", str(folder), "-wn1", "--gres=gpu:8"
        ): name
        for name in ODD_NAMES
    }
    for job in jobs:
        expect(job, ("COMPLETED", {"n1": EIGHT}))


def test_no_node_was_drained_and_no_sampler_fell(lab: Cluster, traced: Samplers) -> None:
    assert lab.node_states() == dict.fromkeys(NODES, "idle")
    assert traced.alive() == set(NODES)
