"""Open a store: SQLite by default, PostgreSQL or MariaDB for a site."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from slurm_trace.errors import EnvironmentProblem
from slurm_trace.store import models
from slurm_trace.store.location import parse_location, refuse_network_file_system, shown
from slurm_trace.store.lock import WAIT_S, writer_lock

BUSY_S = 10
"""How long SQLite waits for another process's transaction."""

_CONNECT: dict[str, dict[str, str]] = {
    # Whatever the server is set to: never cut a value to what fits, never make a NULL 0.
    "mariadb": {"sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"},
    "postgresql": {"client_encoding": "UTF8"},
}
_EXTRA = {"postgresql": "postgresql", "mariadb": "mariadb"}


@dataclass(frozen=True, slots=True)
class Store:
    """An open store.

    Attributes:
        engine: Where to get connections.
        url: The store's name for messages, without a password.
        path: The file, if the store is one.
    """

    engine: Engine
    url: str
    path: Path | None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from; whatever fails comes out as one line."""
        with failures_of(self.url), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection inside a transaction that is committed at the end."""
        with failures_of(self.url), self.connect_writer() as connection, connection.begin():
            yield connection

    def connect_writer(self) -> Connection:
        """A connection whose transactions take SQLite's write lock at their beginning."""
        return self.engine.connect().execution_options(slurm_trace_writes=True)

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


@contextmanager
def failures_of(name: str) -> Iterator[None]:
    """Turn what a database raises into one line that names the store and the remedy."""
    try:
        yield
    except DBAPIError as error:
        raise EnvironmentProblem(f"store {name}: {_explain(str(error.orig))}") from error
    except SQLAlchemyError as error:
        raise EnvironmentProblem(f"store {name}: {_first_line(str(error))}") from error


def open_store(location: str | None = None, *, create: bool = False) -> Store:
    """Open a store, and create it where that was asked for.

    Args:
        location: URL or path; the default store if None.
        create: Create a missing store.

    Raises:
        EnvironmentProblem: There is no store, it is of another schema, or it cannot be reached.
        UsageProblem: The location cannot be read.
    """
    store = connect(location, create=create)
    try:
        with failures_of(store.url):
            _require_schema(store, create=create)
    except BaseException:
        store.close()
        raise
    return store


def upgrade_store(location: str | None = None, *, create: bool = False, wait_s: float = WAIT_S) -> Store:
    """Open a store and bring its schema up to date."""
    store = connect(location, create=create)
    try:
        with failures_of(store.url):
            _upgrade(store, create=create, wait_s=wait_s)
    except BaseException:
        store.close()
        raise
    return store


def connect(location: str | None, *, create: bool) -> Store:
    """Reach the database, whatever it holds."""
    target = parse_location(location)
    if isinstance(target, Path):
        return _connect_file(target, create=create)
    return _connect_server(target)


def schema_revision(connection: Connection) -> str | None:
    """The schema's revision; None if the database is empty.

    Raises:
        EnvironmentProblem: The database holds something, but no store.
    """
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" in tables and "job_run" in tables:
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if connection.dialect.name == "sqlite" and tables:
        raise EnvironmentProblem("the file is a database of something else; give another path with --store")
    clash = sorted(tables & set(models.metadata.tables) | tables & {"alembic_version"})
    if clash:
        raise EnvironmentProblem(
            f"the database already has a table {clash[0]} of something else; use an empty one"
        )
    return None


def _require_schema(store: Store, *, create: bool) -> None:
    with store.engine.connect() as connection:
        revision = schema_revision(connection)
    if revision is None and create:
        _upgrade(store, create=True, wait_s=WAIT_S)
    elif revision is None:
        raise EnvironmentProblem(
            f"{store.url} holds no store yet; create it with `slurm-trace store init` or an import"
        )
    else:
        _refuse_unknown(store, revision)
        if revision != models.REVISIONS[-1]:
            raise EnvironmentProblem(
                f"{store.url} has schema {revision}, this version needs {models.REVISIONS[-1]}; "
                "run `slurm-trace store upgrade`"
            )


def _upgrade(store: Store, *, create: bool, wait_s: float) -> None:
    with store.connect_writer() as connection, writer_lock(connection, store.path, wait_s):
        with connection.begin():
            revision = schema_revision(connection)
        if revision is None and not create:
            raise EnvironmentProblem(f"{store.url} holds no store; create it with `slurm-trace store init`")
        _refuse_unknown(store, revision)
        if revision is None:
            _refuse_narrow_encoding(connection)
            with connection.begin():
                models.create_schema(connection)
        elif revision != models.REVISIONS[-1]:
            # Alembic takes a fifth of a second to import, and only an old store needs it.
            from slurm_trace.store.migrate import upgrade_schema

            with connection.begin():
                upgrade_schema(connection)


def _refuse_unknown(store: Store, revision: str | None) -> None:
    if revision is not None and revision not in models.REVISIONS:
        raise EnvironmentProblem(
            f"{store.url} was written by a newer slurm-trace (schema {revision}); upgrade slurm-trace"
        )


def _refuse_narrow_encoding(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        with connection.begin():
            encoding = connection.execute(text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            raise EnvironmentProblem(
                f"the database is encoded in {encoding}, which cannot hold every name; "
                "create it with ENCODING 'UTF8' TEMPLATE template0"
            )


def _connect_file(path: Path, *, create: bool) -> Store:
    refuse_network_file_system(path)
    try:
        if path.is_dir():
            raise EnvironmentProblem(f"{path} is a directory; --store takes the path of a file")
        if create:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        elif not path.exists():
            raise EnvironmentProblem(
                f"there is no store at {path}; create it with `slurm-trace store init` or an import"
            )
    except OSError as error:
        raise EnvironmentProblem(f"store {path}: {error.strerror}; give another path with --store") from error
    engine = create_engine("sqlite://", creator=lambda: _connect_sqlite(path, create), poolclass=NullPool)
    event.listen(engine, "begin", _begin)
    return Store(engine, str(path), path)


def _connect_sqlite(path: Path, create: bool) -> sqlite3.Connection:
    mode = "rwc" if create else "rw"
    if not create and not os.access(path, os.W_OK):
        mode = "ro"
    if not create and not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        # A finished store on a medium that cannot be written: no log beside it, none can be made.
        mode = "ro&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA cache_size = -32768")
    if mode in ("rwc", "rw"):
        # Where the log cannot be had, the slower rollback journal is as safe.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 8192")
    return connection


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("slurm_trace_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect_server(url: URL) -> Store:
    name = shown(url)
    server = url.get_backend_name()
    try:
        # An import must see what another one committed while it waited for the lock.
        engine = create_engine(
            url, poolclass=NullPool, isolation_level="READ COMMITTED", connect_args=_CONNECT[server]
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise EnvironmentProblem(
            f"{error}: the driver for {server} is missing; pip install 'slurm-trace[{_EXTRA[server]}]'"
        ) from error
    return Store(engine, name, None)


def _first_line(message: str) -> str:
    return " ".join(message.split("\n(Background")[0].split())


def _explain(message: str) -> str:
    message = _first_line(message)
    remedies = {
        "file is not a database": "is no SQLite database; give another path with --store",
        "unable to open database file": "cannot be opened; check the permissions of the file and its folder",
        "attempt to write a readonly database": "cannot be written; check the permissions of file and folder",
        "database or disk is full": "the disk is full; make room and run the command again",
        "disk I/O error": "the disk fails or is full; check it and run the command again",
        "database is locked": "another process is writing to it; run the command again when it is done",
        "database disk image is malformed": "the file is damaged; restore it, or import into a new store",
    }
    for symptom, remedy in remedies.items():
        if symptom in message:
            return remedy
    return f"{message}; check that the server runs and the URL, user and password are right"
