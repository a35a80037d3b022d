"""A real slurmdbd over a restored accounting database: munged, MariaDB and slurmdbd of the host's packages.

Everything lives in one temporary directory and listens on loopback or on a socket there; no controller runs and no
job is ever started. The real `sacct` and `sacctmgr` answer over it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.daemons import (
    accounting_database,
    free_ports,
    missing,
    munge,
    slurmdbd_daemon,
    sql,
    write_dbd_conf,
)

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacct", "sacctmgr")


def missing_programs() -> list[str]:
    """What of the host's packages is not there."""
    return missing(PROGRAMS)


@dataclass(frozen=True)
class Accounting:
    """A running slurmdbd."""

    root: Path
    conf: Path
    socket: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment under which Slurm's commands reach it."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def sql(self, statement: str) -> str:
        """Run SQL on the accounting database."""
        return sql(self.socket, statement, "slurm_acct_db")

    def sacct(self, *arguments: str, **environment: str) -> bytes:
        """What the real sacct prints."""
        run = subprocess.run(
            ["sacct", *arguments],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
        return run.stdout


@contextmanager
def slurmdbd(dump: Path, cluster: str = "lab", extra: str = "") -> Iterator[Accounting]:
    """Start everything over a dump of slurm_acct_db; stop it at the end.

    Args:
        dump: SQL written by mariadb-dump.
        cluster: ClusterName of the client's slurm.conf.
        extra: More lines for slurmdbd.conf.
    """
    with ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="slurmdbd-", ignore_cleanup_errors=True))
        )
        root.chmod(0o755)
        run = root / "run"
        run.mkdir()
        run.chmod(0o1777)
        stack.enter_context(munge(root, run))
        sock = stack.enter_context(accounting_database(root, run))
        sql(sock, dump.read_text(), "slurm_acct_db")
        conf = _write_configuration(root, run, cluster, extra)
        stack.enter_context(slurmdbd_daemon(run, conf, sock))
        yield Accounting(root, conf, sock)


def _write_configuration(root: Path, run: Path, cluster: str, extra: str) -> Path:
    conf = root / "slurm.conf"
    host = socket.gethostname().split(".")[0]
    controller_port, port = free_ports(2)
    conf.write_text(
        f"""\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={run}/munge.socket
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={run}/munge.socket
TCPTimeout=2
NodeName=n[1-4] CPUs=64 State=UNKNOWN
PartitionName=gpu Nodes=n[1-4]
"""
    )
    write_dbd_conf(root, run, port, extra)
    return conf
