"""Jobs of every kind on a real Slurm: each run leaves a lease on each of its nodes, with its GPUs, and it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from slurm_trace.node.lease import Lease, LeaseEnd
from support.cluster import NODES, Cluster, Gpus, Run
from support.daemons import wait_for

pytestmark = pytest.mark.cluster


def all_of(lab: Cluster, job: int) -> list[tuple[str, Lease, LeaseEnd | None]]:
    """The leases of a job on all nodes, open ones without an end, each node's in their order."""
    found: list[tuple[str, Lease, LeaseEnd | None]] = []
    for node in NODES:
        scan = lab.leases(node)
        assert not scan.refused
        found += [(node, lease, end) for lease, end in scan.ended if lease.job_id == job]
        found += [(node, lease, None) for lease in scan.open if lease.job_id == job]
        assert job not in {end.job_id for end in scan.orphans}
    return found


def expect(lab: Cluster, job: int, *runs: tuple[str, Mapping[str, Gpus]]) -> None:
    """A job that is over: its leases are those of these runs (how it ended, what it held), all closed by an epilog."""
    lab.wait_until_over([job])
    found = all_of(lab, job)
    for node in NODES:
        mine = [(lease, end) for name, lease, end in found if name == node]
        assert [lease.gpus for lease, _ in mine] == [held[node] for _, held in runs if node in held], (
            job,
            node,
        )
        for lease, end in mine:
            assert end is not None, (job, node)
            assert end.how == "epilog"
            assert (lease.node, lease.cluster, lease.user) == (node, lab.name, lease.user)
            assert lease.cuda == lease.gpus or lease.gpus is None
            assert lease.dropped == end.dropped == ()
            assert end.closed_cs is not None
            assert end.closed_cs >= lease.opened_cs
    lab.runs += [Run(job, state, held) for state, held in runs]


def everywhere(gpus: Gpus) -> dict[str, Gpus]:
    return dict.fromkeys(NODES, gpus)


EIGHT = tuple("01234567")


def test_batch(lab: Cluster) -> None:
    gate = lab.gated("-wn1", "--gres=gpu:2", "-Aphys")
    held = lab.allocation(gate.job)
    assert len(held["n1"] or ()) == 2
    ((node, lease, end),) = all_of(lab, gate.job)
    assert (node, lease.gpus, end) == ("n1", held["n1"], None)
    assert (lease.user, lease.uid, lease.account, lease.partition) == ("alice", 7001, "phys", "gpu")
    gate.open()
    expect(lab, gate.job, ("COMPLETED", held))


def test_a_job_that_fails(lab: Cluster) -> None:
    job = lab.sbatch("exit 3", "-wn2", "--gres=gpu:8")
    expect(lab, job, ("FAILED", {"n2": EIGHT}))
    ((_, _, end),) = all_of(lab, job)
    assert end is not None
    # A wait status, as waitpid(2) gives it.
    assert end.exit_code == 3 << 8


def test_without_gpus(lab: Cluster) -> None:
    job = lab.sbatch("true", "-wn3", user="bob")
    expect(lab, job, ("COMPLETED", {"n3": None}))


def test_four_nodes(lab: Cluster) -> None:
    gate = lab.gated("-N4", "--gres=gpu:8")
    assert lab.allocation(gate.job) == everywhere(EIGHT)
    assert {node for node, _, end in all_of(lab, gate.job) if end is None} == set(NODES)
    gate.open()
    expect(lab, gate.job, ("COMPLETED", everywhere(EIGHT)))


def test_two_jobs_on_a_node(lab: Cluster) -> None:
    gates = [lab.gated("-wn1", "--gres=gpu:3"), lab.gated("-wn1", "--gres=gpu:4", user="bob")]
    held = [lab.allocation(gate.job) for gate in gates]
    first, second = (set(one["n1"] or ()) for one in held)
    assert (len(first), len(second), first & second) == (3, 4, set())
    gates[0].open()
    expect(lab, gates[0].job, ("COMPLETED", held[0]))
    ((_, _, end),) = all_of(lab, gates[1].job)
    assert end is None
    gates[1].open()
    expect(lab, gates[1].job, ("COMPLETED", held[1]))


def test_different_gpus_on_each_node(lab: Cluster) -> None:
    other = lab.gated("-wn1", "--gres=gpu:2")
    taken = lab.allocation(other.job)
    gate = lab.gated("-wn1,n2", "-N2", "--gres=gpu:4")
    held = lab.allocation(gate.job)
    assert held["n1"] != held["n2"]
    for one in (other, gate):
        one.open()
    expect(lab, other.job, ("COMPLETED", taken))
    expect(lab, gate.job, ("COMPLETED", held))


def test_array(lab: Cluster) -> None:
    first = lab.sbatch("true", "--array=0-5%3", "-wn2", "--gres=gpu:8")
    lab.wait_until_over([first])
    tasks = sorted(lab.states(first))
    assert len(tasks) == 6
    assert first in tasks
    for task in tasks:
        expect(lab, task, ("COMPLETED", {"n2": EIGHT}))


def test_het(lab: Cluster) -> None:
    options = ("-wn3", "--gres=gpu:h100:2", ":", "-wn4", "--gres=gpu:a100:8")
    said = lab.run(
        "salloc",
        *options,
        "sh",
        "-c",
        "echo $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOB_ID_HET_GROUP_1",
        user="alice",
    )
    leader, other = map(int, said.split()[-2:])
    ((_, lease, _),) = all_of(lab, leader)
    assert len(lease.gpus or ()) == 2
    expect(lab, leader, ("COMPLETED", {"n3": lease.gpus}))
    expect(lab, other, ("COMPLETED", {"n4": EIGHT}))
    for job in (leader, other):
        ((_, lease, _),) = all_of(lab, job)
        assert lease.het_job_id == leader


def test_allocation_without_a_step(lab: Cluster) -> None:
    said = lab.run("salloc", "-wn1", "--gres=gpu:8", "sh", "-c", "echo $SLURM_JOB_ID", user="bob")
    expect(lab, int(said.split()[-1]), ("COMPLETED", {"n1": EIGHT}))


def test_srun(lab: Cluster) -> None:
    said = lab.run("srun", "-wn1", "--gres=gpu:8", "sh", "-c", "echo $SLURM_JOB_ID", user="bob")
    expect(lab, int(said.split()[-1]), ("COMPLETED", {"n1": EIGHT}))


def test_requeue(lab: Cluster) -> None:
    gate = lab.gated("-wn1", "--gres=gpu:8", "--requeue")
    lab.run("scontrol", "requeue", str(gate.job))
    gate.open()
    expect(lab, gate.job, ("REQUEUED", {"n1": EIGHT}), ("COMPLETED", {"n1": EIGHT}))
    (_, _, first_end), (_, second, _) = all_of(lab, gate.job)
    assert first_end is not None
    assert (first_end.closed_cs or 0) < second.opened_cs


def test_requeue_onto_another_node(lab: Cluster) -> None:
    gate = lab.gated("--gres=gpu:8", "--requeue", "--exclude=n2,n3,n4")
    lab.run("scontrol", "requeuehold", str(gate.job))
    lab.wait(gate.job, "PENDING")
    lab.run("scontrol", "update", f"jobid={gate.job}", "ExcNodeList=n1,n3,n4")
    lab.run("scontrol", "release", str(gate.job))
    gate.open()
    expect(lab, gate.job, ("REQUEUED", {"n1": EIGHT}), ("COMPLETED", {"n2": EIGHT}))


@pytest.mark.parametrize("user", ["alice", "root"])
def test_cancelled(lab: Cluster, user: str) -> None:
    gate = lab.gated("-N2", "-wn1,n2", "--gres=gpu:8")
    lab.run("scancel", str(gate.job), user=None if user == "root" else user)
    expect(lab, gate.job, ("CANCELLED", {"n1": EIGHT, "n2": EIGHT}))


def test_cancelled_before_it_began(lab: Cluster) -> None:
    job = lab.sbatch("true", "--gres=gpu:8", "--begin=now+1hour")
    lab.run("scancel", str(job))
    expect(lab, job, ("CANCELLED", {}))


def test_preempted(lab: Cluster) -> None:
    gate = lab.gated("-pyielding", "-N2", "-wn1,n2", "--gres=gpu:8", "--requeue")
    urgent = lab.gated("-purgent", "-wn2", "--gres=gpu:5", user="bob")
    held = lab.allocation(urgent.job)
    gate.open()
    urgent.open()
    expect(lab, urgent.job, ("COMPLETED", held))
    both = {"n1": EIGHT, "n2": EIGHT}
    expect(lab, gate.job, ("PREEMPTED", both), ("COMPLETED", both))


def test_over_its_time(lab: Cluster) -> None:
    # A minute is Slurm's shortest limit; an end can be set to any second. It is looked for every 30 s.
    gate = lab.gated("-wn3", "--gres=gpu:8", "--time=1")
    lab.run("scontrol", "update", f"jobid={gate.job}", "EndTime=now+1")
    expect(lab, gate.job, ("TIMEOUT", {"n3": EIGHT}))


def test_hundreds_at_once(lab: Cluster) -> None:
    first = lab.sbatch("true", "--array=1-240", "--gres=gpu:1", "--mem=1")
    lab.wait_until_over([first], limit_s=120)
    tasks = sorted(lab.states(first))
    assert len(tasks) == 240
    found = {task: [] for task in tasks}  # type: dict[int, list[tuple[str, Lease, LeaseEnd]]]
    for node in NODES:
        scan = lab.leases(node)
        assert not scan.refused
        for lease, end in scan.ended:
            if lease.job_id in found:
                found[lease.job_id].append((node, lease, end))
    assert {task: len(held) for task, held in found.items()} == dict.fromkeys(tasks, 1)
    by_gpu: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for ((node, lease, end),) in found.values():
        assert len(lease.gpus or ()) == 1
        by_gpu.setdefault((node, (lease.gpus or ("",))[0]), []).append((lease.opened_cs, end.closed_cs or 0))
        lab.runs.append(Run(lease.job_id, "COMPLETED", {node: lease.gpus}))
    # No GPU was held twice at a time.
    for spans in by_gpu.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_slurmd_started_anew(lab: Cluster) -> None:
    gate = lab.gated("-wn2", "--gres=gpu:8")
    lab.kill_slurmd("n2")
    lab.start_slurmd("n2")
    lab.wait_for_nodes()
    ((_, _, end),) = all_of(lab, gate.job)
    assert end is None
    gate.open()
    expect(lab, gate.job, ("COMPLETED", {"n2": EIGHT}))


def test_node_that_fails(lab: Cluster) -> None:
    gate = lab.gated("-N2", "-wn3,n4", "--gres=gpu:8", "--no-requeue")
    lab.kill_slurmd("n4")
    lab.wait(gate.job, "NODE_FAIL", limit_s=90)
    # The node itself knows nothing of it: its lease stays open until its epilog has run.
    assert [end for node, _, end in all_of(lab, gate.job) if node == "n4"] == [None]
    lab.start_slurmd("n4")
    lab.wait_for_nodes()
    wait_for(lambda: all(end for _, _, end in all_of(lab, gate.job)), "the epilog of n4")
    expect(lab, gate.job, ("NODE_FAIL", {"n3": EIGHT, "n4": EIGHT}))


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


def test_odd_names(lab: Cluster) -> None:
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
        expect(lab, job, ("COMPLETED", {"n1": EIGHT}))


def test_no_node_was_drained(lab: Cluster) -> None:
    assert lab.node_states() == dict.fromkeys(NODES, "idle")
