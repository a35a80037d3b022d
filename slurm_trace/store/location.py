"""Where the store lives: a URL, the path of a SQLite file, or the default path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from slurm_trace.errors import EnvironmentProblem, UsageProblem

MOUNTINFO = Path("/proc/self/mountinfo")

NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fhgfs", "gfs", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("virtiofs", "wekafs"),
    )
)
"""Kernel names of file systems shared between machines: SQLite's locks and its WAL do not hold there."""

NETWORK_FUSE = frozenset(
    (
        *(
            "ceph",
            "ceph-fuse",
            "davfs2",
            "glusterfs",
            "juicefs",
            "lizardfs",
            "mfs",
            "moosefs",
            "rclone",
            "s3fs",
        ),
        *("sshfs", "weka"),
    )
)
"""What follows `fuse.` for the same."""

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "mysql": "mariadb+pymysql",
    "mariadb": "mariadb+pymysql",
    "mysql+pymysql": "mariadb+pymysql",
    "mariadb+pymysql": "mariadb+pymysql",
}


def default_path() -> Path:
    """The SQLite file that is used where nobody names a store."""
    if os.geteuid() == 0:
        return Path("/var/lib/slurm-trace/store.sqlite")
    data_home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data_home) if Path(data_home).is_absolute() else _of_user("~/.local/share")
    return base / "slurm-trace" / "store.sqlite"


def _of_user(path: str) -> Path:
    """An absolute path, a `~` at its beginning resolved."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise UsageProblem(f"{path}: no home directory is known; give the whole path with --store") from error


def parse_location(location: str | None) -> URL | Path:
    """Read what `--store` said.

    Args:
        location: A URL, a path, or None (or "") for the default.

    Returns:
        The path of a SQLite file, or the URL of a server with the driver that we use.
    """
    if not location:
        return default_path()
    if "://" not in location:
        return _of_user(location)
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise UsageProblem(
            "the store's URL cannot be read; expected e.g. postgresql://user@host/database"
        ) from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if not url.database or url.database == ":memory:":
            raise UsageProblem("a store in memory would be gone at once; give the path of a file")
        return _of_user(url.database)
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise UsageProblem(
            f"{url.drivername} is no database that a store can be in; use sqlite, postgresql or mariadb"
        )
    if not url.database:
        raise UsageProblem(f"the store's URL names no database; add it: {shown(url)}/DATABASE")
    url = url.set(drivername=driver)
    return url.update_query_dict({"charset": "utf8mb4"}) if driver == "mariadb+pymysql" else url


def shown(url: URL) -> str:
    """The URL for messages, without its password."""
    return url.render_as_string(hide_password=True)


def network_file_system(path: Path, mounts: Iterable[str] | None = None) -> str | None:
    """The kind of network file system that a file is (or would be) on, or None.

    Args:
        path: The file; it need not exist.
        mounts: Lines of mountinfo; the kernel's own table if None.
    """
    if mounts is None:
        try:
            mounts = MOUNTINFO.read_text(errors="surrogateescape").splitlines()
        except OSError:
            return None
    real = Path(os.path.realpath(path))
    deepest, kind = -1, ""
    for line in mounts:
        left, separator, right = line.partition(" - ")
        words = left.split(" ")
        if not separator or len(words) < 5:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4]))
        # The later of two mounts on one point covers the earlier one.
        if real.is_relative_to(point) and len(point.parts) >= deepest:
            deepest, kind = len(point.parts), right.split(" ")[0]
    family, _, member = kind.partition(".")
    shared = kind in NETWORK_FILE_SYSTEMS or (family == "fuse" and member in NETWORK_FUSE)
    return kind if shared else None


def refuse_network_file_system(path: Path, mounts: Iterable[str] | None = None) -> None:
    """Raise unless a SQLite file is safe at this path."""
    kind = network_file_system(path, mounts)
    if kind:
        raise EnvironmentProblem(
            f"{path} is on a network file system ({kind}), where SQLite loses data; "
            "give a path on a local disk, or a PostgreSQL or MariaDB URL, with --store"
        )
