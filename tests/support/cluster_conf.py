"""Configuration of a Slurm that fits on one small machine, with every wait as short as Slurm allows."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
GPUS = 8
GPU_TYPES = {"n1": "h100", "n2": "h100", "n3": "h100", "n4": "a100"}
# Minor number of a node's first device: not everywhere the same as Slurm's index.
FIRST_MINOR = {"n1": 0, "n2": 0, "n3": 1, "n4": 0}
NVIDIA_MAJOR = 195


@dataclass(frozen=True)
class Ports:
    """One port per daemon."""

    slurmctld: int
    slurmdbd: int
    slurmd: tuple[int, ...]


def release() -> tuple[int, int]:
    """Slurm's version as (year, month)."""
    said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    year, month = said.split()[1].split(".")[:2]
    return int(year), int(month)


def slurm_conf(root: Path, cluster: str, ports: Ports, prolog_flags: str, extra: str) -> str:
    """slurm.conf: four nodes on one host, hooks, accounting, preemption by partition."""
    host = socket.gethostname().split(".")[0]
    run = root / "run"
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 Boards=1 SocketsPerBoard=2 "
        f"CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000 Gres=gpu:{GPU_TYPES[name]}:{GPUS} State=UNKNOWN"
        for name, port in zip(NODES, ports.slurmd, strict=True)
    )
    # cred_expire is also how long a requeued job waits before it may start again (default: two minutes).
    # slurmdbd's clients take munge's socket from AccountingStoragePass, all others from AuthInfo.
    return f"""\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports.slurmctld}
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={run}/munge.socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/slurmd/%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,bf_interval=1,sched_interval=5,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldTimeout=30
SlurmdTimeout=20
InactiveLimit=0
KillWait=2
MinJobAge=600
MessageTimeout=20
UnkillableStepTimeout=100
CompleteWait=0
ReturnToService=2
BatchStartTimeout=20
PrologEpilogTimeout=30
TCPTimeout=2
JobRequeue=1
Prolog={root}/etc/prolog
Epilog={root}/etc/epilog
PrologFlags={prolog_flags}
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports.slurmdbd}
AccountingStoragePass={run}/munge.socket
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu,gres/gpu:h100,gres/gpu:a100
GresTypes=gpu
SlurmdParameters=config_overrides
{nodes}
PartitionName=gpu Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP PriorityTier=10 OverSubscribe=NO
PartitionName=urgent Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=100
PartitionName=yielding Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
{extra}
"""


def gres_conf(root: Path) -> str:
    """Eight devices a node."""
    return "".join(
        f"NodeName={name} Name=gpu Type={GPU_TYPES[name]} File={root}/dev/nvidia[{first}-{first + GPUS - 1}]\n"
        for name, first in FIRST_MINOR.items()
    )


def cgroup_conf() -> str:
    """No cgroups: a container has none, or not those that this release knows."""
    return "CgroupPlugin=disabled\n" if release() >= (23, 0) else "CgroupPlugin=cgroup/v1\n"
