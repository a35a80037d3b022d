"""A real CPython 3.9, as Debian 11 built it, unpacked into the cache folder: nothing is installed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"
HOME = CACHE / "python3.9"
# The interpreter, its library, and what of theirs newer systems have in another version. The rest is the host's.
PACKAGES = (
    "python3.9-minimal",
    "libpython3.9-minimal",
    "libpython3.9-stdlib",
    "libffi7",
    "libssl1.1",
    "libmpdec3",
)


def python39() -> list[str]:
    """The start of a command line that runs it; fetched on first use.

    Raises:
        RuntimeError: There is no apt here, or no mirror that still has Debian 11.
    """
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "python3.9.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HOME / "complete").exists():
            _fetch()
    libraries = ":".join(str(path) for path in sorted((HOME / "root" / "usr" / "lib").glob("*-linux-gnu")))
    inherited = os.environ.get("LD_LIBRARY_PATH", "")
    joined = f"{libraries}:{inherited}" if inherited else libraries
    return ["env", f"LD_LIBRARY_PATH={joined}", str(HOME / "root" / "usr" / "bin" / "python3.9")]


def _fetch() -> None:
    if shutil.which("apt-get") is None:
        raise RuntimeError("no apt-get here: a Python 3.9 is fetched from Debian 11's packages")
    shutil.rmtree(HOME, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "root", "debs"):
        (HOME / folder).mkdir(parents=True)
    (HOME / "sources.list").write_text(f"deb {_mirror()} bullseye main\n")
    options = {
        "Dir::Etc::sourcelist": HOME / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": HOME / "lists",
        "Dir::Cache": HOME / "cache",
        "Dir::State::status": "/dev/null",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    _run([*apt, "update"])
    _run([*apt, "download", *PACKAGES], HOME / "debs")
    for package in sorted((HOME / "debs").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(HOME / "root")])
    for folder in ("lists", "cache", "debs"):
        shutil.rmtree(HOME / folder)
    (HOME / "complete").touch()


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")


def _mirror() -> str:
    """The Debian mirror that this machine uses."""
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        if path.exists():
            found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?) +(\S+)", path.read_text(), re.MULTILINE)
            if found:
                return found[1]
    raise RuntimeError("no Debian mirror in apt's sources; a Python 3.9 comes from Debian 11's packages")
