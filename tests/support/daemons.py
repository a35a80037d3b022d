"""Daemons of the host's packages for as long as a test needs them: in one directory, on loopback, ended by pid."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing(programs: Sequence[str]) -> list[str]:
    """What of these programs is not installed."""
    return [name for name in programs if shutil.which(name, path=PATH) is None]


def start(argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a daemon in the foreground of a session of its own; what it says goes to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": PATH, **environment},
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], limit_s: float = 10) -> None:
    """Ask it to end, and make it."""
    process.terminate()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(limit_s)


@contextmanager
def daemon(
    argv: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon for the time of a block."""
    process = start(argv, log, environment)
    try:
        yield process
    finally:
        stop(process)


def wait_for(ready: Callable[[], bool], what: str, log: Path | None = None, limit_s: float = 30) -> None:
    """Wait until something is so.

    Raises:
        RuntimeError: It never was; with the end of the log.
    """
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-2000:] if log and log.exists() else "(no log)"
            raise RuntimeError(f"waited {limit_s:g} s in vain for {what}: {said}")
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Ports below the ephemeral range, in which Slurm's daemons sometimes find theirs taken."""
    found = []
    with ExitStack() as held:
        for port in range(20_000 + secrets.randbelow(5_000), 32_000):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no free port")


@contextmanager
def munge(root: Path, run: Path) -> Iterator[None]:
    """munged with a key of its own, at `run`/munge.socket."""
    key = root / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    argv = [
        "munged",
        "--foreground",
        "--force",
        f"--socket={run}/munge.socket",
        f"--key-file={key}",
        f"--pid-file={run}/munged.pid",
        f"--log-file={run}/munged.log",
        f"--seed-file={run}/munge.seed",
    ]
    with daemon(argv, run / "munged.out", {}):
        wait_for((run / "munge.socket").is_socket, "munged", run / "munged.out")
        yield


@contextmanager
def accounting_database(root: Path, run: Path) -> Iterator[Path]:
    """MariaDB with an empty slurm_acct_db that slurmdbd may use; yields its socket."""
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
    with daemon(["mariadbd", *common, *options], run / "mariadbd.out", {}):
        wait_for(lambda: _answers(sock), "mariadbd", data / "mariadb.log")
        sql(sock, "create database slurm_acct_db; create user slurm@localhost identified by 'slurm'")
        sql(sock, "grant all on slurm_acct_db.* to slurm@localhost")
        yield sock


def write_dbd_conf(root: Path, run: Path, port: int, extra: str = "") -> None:
    """slurmdbd.conf beside slurm.conf, readable for its user alone."""
    conf = root / "slurmdbd.conf"
    conf.write_text(
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
    shutil.chown(conf, "slurm")
    conf.chmod(0o600)


@contextmanager
def slurmdbd_daemon(run: Path, conf: Path, sock: Path) -> Iterator[None]:
    """slurmdbd over the database at `sock`, its configuration beside `conf`, the clients' slurm.conf."""

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

    environment = {"SLURM_CONF": str(conf), "MYSQL_UNIX_PORT": str(sock)}
    with daemon(["slurmdbd", "-D"], run / "slurmdbd.out", environment):
        wait_for(ready, "slurmdbd", run / "slurmdbd.out")
        yield


def sql(sock: Path, statement: str, database: str | None = None) -> str:
    """What MariaDB answers as root."""
    argv = [
        "mariadb",
        "--no-defaults",
        f"--socket={sock}",
        "--skip-column-names",
        *([database] if database else []),
    ]
    run = subprocess.run(argv, input=statement, text=True, capture_output=True, timeout=60, check=True)
    return run.stdout


def _answers(sock: Path) -> bool:
    try:
        sql(sock, "select 1")
    except subprocess.CalledProcessError:
        return False
    return True
