"""A whole Slurm on this machine: munge, MariaDB, slurmdbd, slurmctld and four slurmd with eight fake GPUs each.

Built of the host's packages, in one directory, on loopback, with the project's hooks as Prolog and Epilog. Needs root.
`make cluster` keeps one up by hand (cluster_by_hand.py).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from slurm_trace.node.install import HOOK_FILES
from slurm_trace.node.lease import LeaseScan, read_leases
from support.cluster_conf import (
    FIRST_MINOR,
    GPUS,
    NODES,
    NVIDIA_MAJOR,
    Ports,
    cgroup_conf,
    gres_conf,
    slurm_conf,
)
from support.daemons import (
    accounting_database,
    free_ports,
    missing,
    munge,
    slurmdbd_daemon,
    start,
    stop,
    wait_for,
    write_dbd_conf,
)
from support.slurmdbd import PROGRAMS

USERS = {"alice": 7001, "bob": 7002}
ACCOUNTS = ("ml", "phys")
UNDER_WAY = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "STOPPED"}


def why_not() -> str | None:
    """What keeps a cluster from starting here, if anything does."""
    if os.geteuid() != 0:
        return "needs root: Slurm's and MariaDB's daemons run as their own users"
    lacking = missing((*PROGRAMS, "slurmctld", "slurmd", "sbatch", "scontrol"))
    return f"not installed: {', '.join(lacking)}" if lacking else None


Gpus = tuple[str, ...] | None
"""Slurm's indexes of a job's GPUs on a node; None if it asked for none."""


@dataclass(frozen=True)
class Run:
    """One run of a job as it has to be found again: how it ended, and what it held on each node."""

    job: int
    state: str
    held: Mapping[str, Gpus]


@dataclass
class Gate:
    """A job that says when it is up, and ends when it is let go."""

    job: int
    path: Path

    def open(self) -> None:
        """Let it go."""
        self.path.unlink(missing_ok=True)


@dataclass
class Cluster:
    """A running cluster. `name` is its ClusterName."""

    root: Path
    name: str
    prolog_flags: str
    runs: list[Run] = field(default_factory=list)
    _scripts: int = 0
    _slurmd: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """slurm.conf."""
        return self.root / "etc" / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Environment under which Slurm's commands reach it."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def run(self, *argv: str, user: str | None = None, check: bool = True) -> str:
        """What one of Slurm's commands prints."""
        as_user = {"user": user, "group": user, "extra_groups": []} if user else {}
        plain = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(self.conf), "HOME": "/tmp", "LANG": "C.UTF-8"}
        done = subprocess.run(
            argv,
            env=plain,
            cwd=self.jobs,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
            **as_user,  # type: ignore[call-overload]
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{argv}: {done.returncode}: {done.stderr.strip()}")
        return str(done.stdout)

    # Jobs.

    @property
    def jobs(self) -> Path:
        """Where jobs run and write."""
        return self.root / "jobs"

    def sbatch(self, script: str, *options: str, user: str = "alice") -> int:
        """Submit a script of one or more lines; its (leading) job id."""
        self._scripts += 1
        fresh = self.jobs / f"script.{self._scripts}"
        fresh.write_text(f"#!/bin/sh\n{script}\n")
        fresh.chmod(0o755)
        said = self.run("sbatch", "--parsable", "-o", f"{self.jobs}/%j.out", *options, str(fresh), user=user)
        return int(said.strip().split(";")[0])

    def gated(self, *options: str, user: str = "alice", then: str = "") -> Gate:
        """Submit a job that runs until its gate is opened, and wait until it is up."""
        gate = self.jobs / f"gate.{self._scripts + 1}"
        gate.touch()
        script = f"echo up\nwhile [ -e {gate} ]; do sleep 0.1; done\n{then}"
        job = self.sbatch(script, *options, user=user)
        self.wait_until_up(job)
        return Gate(job, gate)

    def wait_until_up(self, job: int) -> None:
        """Until a gated job's script has begun, so that its prologs are over."""
        output = self.jobs / f"{job}.out"
        log = self.root / "log" / "slurmctld.log"
        wait_for(lambda: output.exists() and "up" in output.read_text(), f"job {job} to be up", log, 60)

    def states(self, *jobs: int) -> dict[int, str]:
        """State of each job that the controller remembers, array tasks and het parts by their own ids."""
        said = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%A %F %T")
        words = [line.split() for line in said.splitlines()]
        return {int(own): state for own, first, state in words if int(own) in jobs or int(first) in jobs}

    def wait(self, job: int, *wanted: str, limit_s: float = 60) -> None:
        """Until a job is in one of these states."""
        wait_for(
            lambda: self.states(job).get(job) in wanted,
            f"job {job} to be {'/'.join(wanted)}, it is {self.states(job)}",
            self.root / "log" / "slurmctld.log",
            limit_s,
        )

    def wait_until_over(self, jobs: Collection[int], limit_s: float = 120) -> None:
        """Until none of the jobs waits, runs, or has an epilog that runs."""
        wait_for(
            lambda: not UNDER_WAY.intersection(self.states(*jobs).values()),
            f"the end of jobs {sorted(jobs)[:9]}",
            self.root / "log" / "slurmctld.log",
            limit_s,
        )

    def allocation(self, job: int) -> dict[str, Gpus]:
        """What a running job holds on each node."""
        return self.allocation_in(self.run("scontrol", "show", "job", "-d", str(job)))

    def allocation_in(self, text: str) -> dict[str, Gpus]:
        """What a job holds on each node, from the text of `scontrol show job -d`."""
        found: dict[str, Gpus] = {}
        for nodes, gres in re.findall(r"^\s+Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S*)", text, re.M):
            index = re.search(r"IDX:([0-9,-]+)\)", gres)
            gpus = tuple(_numbers(index[1])) if index else None
            names = self.run("scontrol", "show", "hostnames", nodes).split()
            found |= dict.fromkeys(names, gpus)
        return found

    # Nodes.

    def node_states(self) -> dict[str, str]:
        """State of every node, and the reason if one was given.

        An idle node that the backfill scheduler keeps for a job that waits is called "planned"; here it is idle.
        """
        said = self.run("sinfo", "-h", "-N", "-o", "%N|%T|%E").replace("|planned|", "|idle|")
        split = (line.split("|", 2) for line in said.splitlines())
        return {node: state if reason == "none" else f"{state}: {reason}" for node, state, reason in split}

    def start_slurmd(self, node: str) -> None:
        """Start the slurmd of a node that has none."""
        log = self.root / "log" / f"slurmd.{node}.out"
        self._slurmd[node] = start(["slurmd", "-D", "-N", node], log, {"SLURM_CONF": str(self.conf)})

    def kill_slurmd(self, node: str) -> None:
        """End it as a crash does; the steps of its jobs live on."""
        process = self._slurmd.pop(node)
        process.kill()
        process.wait()

    def wait_for_nodes(self, limit_s: float = 30) -> None:
        """Until all nodes can take jobs."""

        def ready() -> bool:
            states = self.node_states()
            return len(states) == len(NODES) and all(
                s.startswith(("idle", "mixed", "allocated", "completing")) and "*" not in s
                for s in states.values()
            )

        wait_for(ready, f"the nodes: {self.node_states()}", self.root / "log" / "slurmctld.log", limit_s)

    def stop_slurmds(self) -> None:
        """End all of them."""
        for node in list(self._slurmd):
            stop(self._slurmd.pop(node))

    # Hooks.

    def node_directory(self, node: str) -> Path:
        """What is /run/slurm-trace on a real node."""
        return self.root / "nodes" / node

    def leases(self, node: str) -> LeaseScan:
        """The leases that lie on a node."""
        return read_leases(self.node_directory(node) / "leases")

    @contextmanager
    def before_hooks(self, text: str) -> Iterator[None]:
        """Shell that Prolog and Epilog of every node run first, in their own process."""
        path = self.root / "etc" / "before"
        path.write_text(text)
        try:
            yield
        finally:
            path.unlink()

    @contextmanager
    def hooks_configured(self, text: str) -> Iterator[None]:
        """Another hooks.conf."""
        path = self.root / "etc" / "hooks.conf"
        usual = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(usual)


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from map(str, range(int(first), int(last or first) + 1))


@contextmanager
def cluster(name: str = "lab", prolog_flags: str = "Alloc", extra: str = "") -> Iterator[Cluster]:
    """Bring everything up; at the end stop it, and what is left of its jobs.

    Args:
        name: ClusterName.
        prolog_flags: PrologFlags of slurm.conf.
        extra: More lines for slurm.conf.
    """
    with ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-", ignore_cleanup_errors=True))
        )
        made = Cluster(root, name, prolog_flags)
        _make_directories(root)
        stack.enter_context(_users())
        ports = free_ports(2 + len(NODES))
        _write_configuration(made, Ports(ports[0], ports[1], tuple(ports[2:])), extra)
        run = root / "run"
        stack.enter_context(munge(root / "etc", run))
        sock = stack.enter_context(accounting_database(root, run))
        stack.enter_context(slurmdbd_daemon(run, made.conf, sock))
        _register(made)
        stack.callback(_kill_processes_of_jobs, made)
        stack.enter_context(_slurmctld(made))
        stack.callback(made.stop_slurmds)
        for node in NODES:
            made.start_slurmd(node)
        made.wait_for_nodes()
        stack.callback(_cancel_all, made)
        yield made


def _make_directories(root: Path) -> None:
    root.chmod(0o755)
    for name in ("etc", "run", "log", "dev", "state", "slurmd", "jobs", "nodes", "hooks"):
        (root / name).mkdir()
    for name in ("run", "log", "jobs"):
        (root / name).chmod(0o1777)
    shutil.chown(root / "state", "slurm")
    for minor in range(GPUS + max(FIRST_MINOR.values())):
        os.mknod(root / "dev" / f"nvidia{minor}", 0o600 | stat.S_IFCHR, os.makedev(NVIDIA_MAJOR, minor))
    for node in NODES:
        (root / "slurmd" / node).mkdir()
        # As systemd-tmpfiles makes them at boot.
        for name in ("leases", "sampler"):
            (root / "nodes" / node / name).mkdir(parents=True, mode=0o750)


def _write_configuration(made: Cluster, ports: Ports, extra: str) -> None:
    root, etc = made.root, made.root / "etc"
    made.conf.write_text(slurm_conf(root, made.name, ports, made.prolog_flags, extra))
    (etc / "gres.conf").write_text(gres_conf(root))
    (etc / "cgroup.conf").write_text(cgroup_conf())
    (etc / "hooks.conf").write_text(f"directory={root}/nodes/%n\n")
    write_dbd_conf(etc, root / "run", ports.slurmdbd)
    for name in HOOK_FILES:
        target = root / "hooks" / name
        target.write_bytes((files("slurm_trace.prolog_epilog") / name).read_bytes())
        target.chmod(0o755)
    for name in ("prolog", "epilog"):
        # The hooks as they are, told where their directory is; a test may put something before them.
        wrapper = etc / name
        wrapper.write_text(
            f"#!/bin/sh\nif [ -f {etc}/before ]; then . {etc}/before; fi\nexec {root}/hooks/{name} {etc}/hooks.conf\n"
        )
        wrapper.chmod(0o755)


@contextmanager
def _users() -> Iterator[None]:
    made = []
    for name, uid in USERS.items():
        try:
            pwd.getpwnam(name)
        except KeyError:
            argv = ["useradd", f"--uid={uid}", "--user-group", "--no-create-home", "--home-dir=/tmp", name]
            subprocess.run(argv, check=True, capture_output=True)
            made.append(name)
    try:
        yield
    finally:
        for name in made:
            # Refused, and rightly, while something else runs as that user.
            subprocess.run(["userdel", name], check=False, capture_output=True)


def _register(made: Cluster) -> None:
    def add(*what: str) -> None:
        made.run("sacctmgr", "-iQ", "add", *what)

    add("cluster", made.name)
    for account in ACCOUNTS:
        add("account", account, f"cluster={made.name}", f"description={account}", "organization=lab")
    for user in USERS:
        add(
            "user",
            user,
            f"account={','.join(ACCOUNTS)}",
            f"defaultaccount={ACCOUNTS[0]}",
            f"cluster={made.name}",
        )


@contextmanager
def _slurmctld(made: Cluster) -> Iterator[None]:
    log = made.root / "log" / "slurmctld.out"
    process = start(["slurmctld", "-D", "-i"], log, {"SLURM_CONF": str(made.conf)})
    try:
        wait_for(lambda: "UP" in made.run("scontrol", "ping", check=False), "slurmctld", log)
        yield
    finally:
        stop(process)


def _cancel_all(made: Cluster) -> None:
    with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
        for user in ("root", *USERS):
            made.run("scancel", "--quiet", f"--user={user}")
        wait_for(lambda: not made.run("squeue", "-h", "-t", "R,S,CG"), "the last jobs", limit_s=10)


def _kill_processes_of_jobs(made: Cluster) -> None:
    """Steps and jobs outlive their daemons, as on a real cluster: end those of this one."""
    mark = f"SLURM_CONF={made.conf}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            on_node = any(one.startswith(b"SLURMD_NODENAME=") for one in environment)
            if mark in environment and (on_node or (entry / "exe").readlink().name == "slurmstepd"):
                os.kill(int(entry.name), signal.SIGKILL)
