"""Real database servers on free loopback ports, started by root as the users of their Debian packages."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

START_LIMIT_S = 60.0


@dataclass(frozen=True)
class Server:
    """A running server. `url` has no database."""

    url: str
    admin_database: str

    def create_database(self, name: str, options: str = "") -> str:
        """Make an empty database; its URL as a user would write it."""
        with contextlib.closing(
            create_engine(f"{self.url}/{self.admin_database}", isolation_level="AUTOCOMMIT").connect()
        ) as connection:
            connection.execute(text(f"CREATE DATABASE {name} {options}"))
        return f"{self.url.replace('+psycopg', '').replace('+pymysql', '')}/{name}"


def postgresql_programs() -> dict[str, str]:
    """Where initdb and postgres are; empty if they are not installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return {name: str(folder / name) for name in ("initdb", "postgres")}
    return {}


def mariadb_programs() -> dict[str, str]:
    """Where mariadb-install-db and mariadbd are; empty if they are not installed."""
    found = {
        name: shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        for name in ("mariadb-install-db", "mariadbd")
    }
    return {name: path for name, path in found.items() if path} if all(found.values()) else {}


@contextmanager
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server that trusts everyone on loopback."""
    programs = postgresql_programs()
    with _folder("postgres") as folder:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"]
        make = [
            programs["initdb"],
            "-D",
            f"{folder}/data",
            "-U",
            "trace",
            "-A",
            "trust",
            "--locale=C.UTF-8",
            "--no-sync",
        ]
        subprocess.run([*as_user, *make], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        port = _free_port()
        settings = [
            "-clisten_addresses=127.0.0.1",
            f"-cport={port}",
            f"-cunix_socket_directories={folder}",
            "-cfsync=off",
        ]
        # SIGINT is PostgreSQL's fast shutdown.
        with _running(
            [*as_user, programs["postgres"], "-D", f"{folder}/data", *settings], folder, signal.SIGINT
        ) as process:
            server = Server(f"postgresql+psycopg://trace@127.0.0.1:{port}", "postgres")
            _wait(process, folder, server)
            yield server


@contextmanager
def mariadb() -> Iterator[Server]:
    """A MariaDB server with a user that may do everything, and with its own idea of collations."""
    programs = mariadb_programs()
    with _folder("mysql") as folder:
        data = f"--datadir={folder}/data"
        make = [
            programs["mariadb-install-db"],
            "--no-defaults",
            "--user=mysql",
            data,
            "--auth-root-authentication-method=normal",
        ]
        subprocess.run(make, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = _free_port()
        command = [
            programs["mariadbd"], "--no-defaults", "--user=mysql", data, f"--socket={folder}/s.sock",
            f"--pid-file={folder}/pid", "--bind-address=127.0.0.1", f"--port={port}",
            "--innodb-flush-log-at-trx-commit=0", "--sql-mode=", "--collation-server=latin1_swedish_ci",
            "--character-set-server=latin1",
        ]  # fmt: skip
        with _running(command, folder, signal.SIGTERM) as process:
            server = Server(f"mariadb+pymysql://root@127.0.0.1:{port}", "mysql")
            _wait(process, folder, server)
            yield server


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"{user}-", ignore_cleanup_errors=True) as name:
        shutil.chown(name, user)
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def _running(command: list[str], folder: Path, stop: signal.Signals) -> Iterator[subprocess.Popen[bytes]]:
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            process.send_signal(stop)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], folder: Path, server: Server) -> None:
    def answers() -> bool:
        engine = create_engine(f"{server.url}/{server.admin_database}")
        try:
            engine.connect().close()
        except Exception:  # noqa: BLE001 (whatever a server that is not up yet says)
            return False
        finally:
            engine.dispose()
        return True

    deadline = time.monotonic() + START_LIMIT_S
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"the server did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}"
            )
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
