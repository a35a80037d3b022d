"""A real slurmdbd over a restored accounting database: munged, MariaDB and slurmdbd of the host's packages.

Everything lives in one temporary directory and listens on loopback or on a socket there; no controller runs and no
job is ever started. The real `sacct` and `sacctmgr` answer over it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacct", "sacctmgr")


def missing_programs() -> list[str]:
    """What of the host's packages is not there."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


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
        return _sql(self.socket, statement, "slurm_acct_db")

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
        stack.enter_context(_munge(root, run))
        sock = stack.enter_context(_mariadb(root, run))
        _sql(sock, "create database slurm_acct_db; create user slurm@localhost identified by 'slurm'")
        _sql(sock, "grant all on slurm_acct_db.* to slurm@localhost")
        _sql(sock, dump.read_text(), "slurm_acct_db")
        conf = _write_configuration(root, run, cluster, _free_port(), extra)
        stack.enter_context(_slurmdbd(run, conf, sock))
        yield Accounting(root, conf, sock)


@contextmanager
def _munge(root: Path, run: Path) -> Iterator[None]:
    key = root / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    with _daemon(
        [
            "munged",
            "--foreground",
            "--force",
            f"--socket={run}/munge.socket",
            f"--key-file={key}",
            f"--pid-file={run}/munged.pid",
            f"--log-file={run}/munged.log",
            f"--seed-file={run}/munge.seed",
        ],
        run / "munged.out",
        {},
    ):
        _wait_for((run / "munge.socket").is_socket, "munged", run / "munged.out")
        yield


@contextmanager
def _mariadb(root: Path, run: Path) -> Iterator[Path]:
    data, sock = root / "db", run / "mysql.sock"
    data.mkdir()
    shutil.chown(data, "mysql")
    common = ["--no-defaults", "--user=mysql", f"--datadir={data}"]
    subprocess.run(
        ["mariadb-install-db", *common, "--skip-test-db", "--auth-root-authentication-method=socket"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    options = [
        f"--socket={sock}",
        f"--pid-file={data}/mariadbd.pid",
        f"--log-error={data}/mariadb.log",
        "--skip-networking",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-lock-wait-timeout=900",
        "--loose-innodb-snapshot-isolation=OFF",
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_general_ci",
    ]
    with _daemon(["mariadbd", *common, *options], run / "mariadbd.out", {}):
        _wait_for(lambda: _answers(sock), "mariadbd", data / "mariadb.log")
        yield sock


@contextmanager
def _slurmdbd(run: Path, conf: Path, sock: Path) -> Iterator[None]:
    environment = {"SLURM_CONF": str(conf), "MYSQL_UNIX_PORT": str(sock)}
    with _daemon(["slurmdbd", "-D"], run / "slurmdbd.out", environment):

        def ready() -> bool:
            try:
                probe = subprocess.run(
                    ["sacctmgr", "--noheader", "show", "cluster"],
                    env={**os.environ, "SLURM_CONF": str(conf)},
                    capture_output=True,
                    timeout=5,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
            return probe.returncode == 0

        _wait_for(ready, "slurmdbd", run / "slurmdbd.out")
        yield


def _write_configuration(root: Path, run: Path, cluster: str, port: int, extra: str) -> Path:
    conf, dbd = root / "slurm.conf", root / "slurmdbd.conf"
    host = socket.gethostname().split(".")[0]
    conf.write_text(
        f"""\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={_free_port()}
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
    dbd.write_text(
        f"""\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={run}/munge.socket
CommunicationParameters=NoInAddrAny
PidFile={run}/slurmdbd.pid
LogFile={run}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
{extra}
"""
    )
    shutil.chown(dbd, "slurm")
    dbd.chmod(0o600)
    return conf


@contextmanager
def _daemon(argv: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path, **environment},
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait_for(ready: Callable[[], bool], what: str, log: Path, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-2000:] if log.exists() else "(no log)"
            raise RuntimeError(f"{what} did not start: {said}")
        time.sleep(0.05)


def _answers(sock: Path) -> bool:
    try:
        _sql(sock, "select 1")
    except subprocess.CalledProcessError:
        return False
    return True


def _sql(sock: Path, statement: str, database: str | None = None) -> str:
    argv = [
        "mariadb",
        "--no-defaults",
        f"--socket={sock}",
        "--skip-column-names",
        *([database] if database else []),
    ]
    run = subprocess.run(argv, input=statement, text=True, capture_output=True, timeout=60, check=True)
    return run.stdout


def _free_port() -> int:
    """A port below the ephemeral range, in which Slurm's daemons sometimes find theirs taken."""
    for port in range(20_000 + secrets.randbelow(5_000), 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")
