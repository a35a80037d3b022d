"""Checks of a node: would a hook hurt a job here, would a sample be lost, would a GPU be taken for another.

Each check looks and changes nothing; the hooks are run against a scratch directory.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_trace.errors import TraceError
from slurm_trace.node.devices.base import DeviceInfo, DeviceSource
from slurm_trace.node.gres import read_order
from slurm_trace.node.install import HOOK_FILES, LIBEXEC
from slurm_trace.node.lease import read_leases
from slurm_trace.node.presence import running

SLURM_CONFS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf")
REMOTE = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "fuse.sshfs", "9p", "afs"}
)
_ENOUGH_BYTES = 200 * 1024 * 1024
_OFFSET_LIMIT_S = 1.0
_TOOL_S = 5.0
_DRIVER_S = 60.0
_RUNS = 20
_SLOW_MS = 50.0
_JOB = {
    "SLURM_JOB_ID": "1",
    "SLURM_CLUSTER_NAME": "doctor",
    "SLURMD_NODENAME": "doctor",
    "SLURM_JOB_UID": "0",
    "SLURM_JOB_GPUS": "0,1",
}


@dataclass(frozen=True)
class Check:
    """One finding: `ok`, `warn`, `fail`, or `unknown` where it could not be looked at."""

    name: str
    status: str
    text: str


@dataclass(frozen=True)
class Place:
    """Where things are on this node; every path may be another in a test.

    Attributes:
        slurm_conf: None: the usual places, and SLURM_CONF.
        source: Makes the source of devices; None: devices are not looked at.
    """

    directory: Path
    spool: Path
    gres_conf: Path
    hooks: Path = Path(LIBEXEC)
    slurm_conf: Path | None = None
    node: str | None = None
    source: Callable[[], DeviceSource] | None = None


def run_checks(place: Place) -> Iterator[Check]:
    """All checks, one after the other."""
    yield from _where_allowed("hooks", _hooks(place))
    yield from _where_allowed("leases", _directories(place))
    yield _sampler(place)
    yield from _where_allowed("slurm.conf", _slurm_conf(place))
    yield from _where_allowed("devices", _devices(place))
    yield _clock()
    yield from _where_allowed("spool", _spool(place))


def _where_allowed(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """What this user may not look at is not known."""
    try:
        yield from checks
    except OSError as error:
        yield Check(name, "unknown", f"{error.filename or name}: {error.strerror}; run this as root")


def _hooks(place: Place) -> Iterator[Check]:
    for name in HOOK_FILES:
        path = place.hooks / name
        if not path.is_file():
            yield Check("hooks", "fail", f"{path} is missing: slurm-trace hooks install")
            return
        yield from _owned_by_root("hooks", path)
    yield _hook_run(place)


def _hook_run(place: Place) -> Check:
    """Both hooks as slurmd calls them, with a bare environment."""
    with tempfile.TemporaryDirectory(prefix="slurm-trace-doctor.") as scratch:
        leases = Path(scratch, "leases")
        leases.mkdir(mode=0o700)
        config = Path(scratch, "hooks.conf")
        config.write_text(f"directory={scratch}\n", encoding="ascii")
        times: dict[str, list[float]] = {"prolog": [], "epilog": []}
        for run in range(1, _RUNS + 1):
            for name, taken in times.items():
                began = time.monotonic()
                try:
                    ended = subprocess.run(
                        [str(place.hooks / name), str(config)],
                        env={**_JOB, "SLURM_JOB_ID": str(run)},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        check=False,
                        timeout=_TOOL_S,
                    )
                except (OSError, subprocess.TimeoutExpired) as error:
                    return Check(
                        "hook run", "fail", f"{name}: {error}: a job here would drain the node or hang"
                    )
                taken.append((time.monotonic() - began) * 1000)
                if ended.returncode != 0:
                    return Check(
                        "hook run", "fail", f"{name} ended with {ended.returncode}: would drain the node"
                    )
        found = read_leases(leases)
    if len(found.ended) != _RUNS or found.refused:
        return Check(
            "hook run", "fail", f"{len(found.ended)} of {_RUNS} leases were written: see syslog for why"
        )
    medians = {name: sorted(taken)[_RUNS // 2] for name, taken in times.items()}
    text = ", ".join(f"{name} {median:.1f} ms" for name, median in medians.items())
    slow = max(medians.values()) > _SLOW_MS
    return Check(
        "hook run", "warn" if slow else "ok", f"exit 0, {text} (median of {_RUNS}, process start included)"
    )


def _owned_by_root(name: str, path: Path) -> Iterator[Check]:
    """Who can write a hook, or put another in its place, is root on this node."""
    for one in (path, *path.parents):
        status = one.stat()
        if status.st_uid != 0:
            yield Check(name, "fail", f"{one} belongs to user {status.st_uid}: chown root {one}")
        sticky = bool(status.st_mode & stat.S_ISVTX)
        if status.st_mode & 0o022 and not sticky:
            yield Check(name, "fail", f"{one} can be written by others than root: chmod go-w {one}")


def _directories(place: Place) -> Iterator[Check]:
    leases = place.directory / "leases"
    if not leases.is_dir():
        remedy = "systemd-tmpfiles --create, or the first Prolog makes it"
        yield Check("leases", "warn", f"{leases} is missing: {remedy}")
        return
    wrong = list(_owned_by_root("leases", leases))
    yield from wrong
    if not leases.stat().st_mode & 0o050 and os.geteuid() == 0:
        yield Check("leases", "warn", f"{leases} can be read by root only: the sampler has to run as root")
    found = read_leases(leases)
    text = f"{len(found.open)} open, {len(found.ended)} ended, {len(found.refused)} refused"
    if found.refused:
        first = found.refused[0]
        yield Check("leases", "warn", f"{text}; {first.name}: {first.reason}")
    elif not wrong:
        yield Check("leases", "ok", text)


def _sampler(place: Place) -> Check:
    pid = running(place.directory / "sampler")
    if pid is None:
        return Check(
            "sampler", "warn", "none runs: systemctl enable --now slurm-trace-node, or sampler_start="
        )
    return Check("sampler", "ok", f"runs as process {pid}")


def _slurm_conf(place: Place) -> Iterator[Check]:
    named = [place.slurm_conf] if place.slurm_conf else [os.environ.get("SLURM_CONF"), *SLURM_CONFS]
    path = next((Path(one) for one in named if one and Path(one).is_file()), None)
    settings = _read_settings(path) if path else None
    if settings is None:
        yield Check("slurm.conf", "unknown", "not found or not readable: name it with --slurm-conf")
        return
    yield from (_hook_named(settings, key, place) for key in ("prolog", "epilog"))
    flags = {flag.strip().lower() for flag in settings.get("prologflags", "").split(",")}
    if flags & {"alloc", "contain"}:
        yield Check("PrologFlags", "ok", settings["prologflags"])
    else:
        text = "without Alloc the Prolog runs only where a step starts; add PrologFlags=Alloc"
        yield Check("PrologFlags", "warn", text)
    recorded = settings.get("accountingstoragetres", "").lower().split(",")
    if any(one == "gres/gpu" for one in recorded):
        yield Check("AccountingStorageTRES", "ok", settings["accountingstoragetres"])
    else:
        text = (
            "without gres/gpu the accounting holds no GPU counts: every job counts as all GPUs of its nodes"
        )
        yield Check("AccountingStorageTRES", "fail", text)


def _hook_named(settings: Mapping[str, str], key: str, place: Place) -> Check:
    value = settings.get(key, "")
    name = key.capitalize()
    if not value:
        return Check(name, "fail", f"not set: {name}={place.hooks / key}")
    found = [Path(one) for one in ([value] if not re.search(r"[*?\[]", value) else _glob(value))]
    for path in found:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return Check(name, "fail", f"{path} cannot be read: Slurm drains the node over a missing {name}")
        if str(place.hooks / key) in text or path == place.hooks / key:
            return Check(name, "ok", value)
    return Check(name, "warn", f"{value} does not name {place.hooks / key}; is it called from there?")


def _glob(pattern: str) -> list[str]:
    folder, _, last = pattern.rpartition("/")
    return [str(path) for path in Path(folder or "/").glob(last)]


def _read_settings(path: Path) -> dict[str, str] | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").split("\n")
    except OSError:
        return None
    settings: dict[str, str] = {}
    for line in lines:
        key, equals, value = line.partition("#")[0].partition("=")
        if equals:
            known = settings.get(key.strip().lower())
            settings[key.strip().lower()] = value.strip() if known is None else f"{known},{value.strip()}"
    return settings


def _devices(place: Place) -> Iterator[Check]:
    order = read_order(place.gres_conf, place.node or os.uname().nodename.partition(".")[0])
    if place.source is None:
        yield Check("devices", "unknown", "no driver was asked")
        return
    found = _ask_driver(place.source)
    if isinstance(found, str):
        yield Check("devices", "fail", found)
        return
    cards = sorted((device for device in found if device.parent_uuid is None), key=lambda card: card.index)
    yield Check("devices", "ok", f"{len(cards)} cards, {len(found) - len(cards)} MIG instances")
    off = [card.index for card in cards if card.persistence is False]
    if off:
        text = f"off on {len(off)} of {len(cards)} cards: counters restart when the last client leaves, and opening"
        yield Check("persistence", "warn", f"{text} takes seconds; nvidia-smi -pm 1 or nvidia-persistenced")
    yield _gres(place, order.resolve([card.minor for card in cards]), order.reason, cards)


def _gres(place: Place, minors: Mapping[int, int] | None, reason: str, cards: list[DeviceInfo]) -> Check:
    if minors is None:
        text = f"{reason}; where a job names no UUID, every GPU is sampled"
        remedy = "write lines `INDEX /dev/nvidiaN` to a file and name it with gres_conf= in node.conf"
        return Check("gres", "warn", f"{place.gres_conf}: {text}; {remedy}")
    by_minor = {card.minor: card for card in cards}
    missing = [minor for minor in minors.values() if minor not in by_minor]
    if missing:
        return Check("gres", "fail", f"{place.gres_conf}: no card has minor number {missing[0]}")
    turned = [index for index, minor in minors.items() if by_minor[minor].index != index]
    text = ", ".join(f"{index}→{by_minor[minor].pci}" for index, minor in sorted(minors.items()))
    note = f"; Slurm's number is not NVML's for {len(turned)}" if turned else ""
    return Check("gres", "ok", f"{text}{note}")


def _ask_driver(make: Callable[[], DeviceSource]) -> list[DeviceInfo] | str:
    answer: list[list[DeviceInfo] | str] = []

    def ask() -> None:
        try:
            source = make()
            source.open()
            try:
                answer.append(source.devices())
            finally:
                source.close()
        except TraceError as error:
            answer.append(str(error))
        except Exception as error:  # noqa: BLE001 - a driver's library may raise anything
            answer.append(f"the driver's library failed ({type(error).__name__}: {error})")

    # A driver that hangs cannot be called back: it is left behind.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_DRIVER_S)
    return (
        answer[0]
        if answer
        else f"the driver did not answer within {_DRIVER_S:.0f} s: the node may need a reset"
    )


def _clock() -> Check:
    tracking = _tool("chronyc", "-n", "tracking")
    offset = re.search(r"^System time\s*:\s*([0-9.]+) seconds", tracking, re.MULTILINE)
    if offset:
        far = float(offset[1]) > _OFFSET_LIMIT_S
        text = f"{offset[1]} s off by chronyc" + ("; samples and accounting will not meet" if far else "")
        return Check("clock", "warn" if far else "ok", text)
    state = _tool("timedatectl", "show", "--property=NTPSynchronized")
    if "=yes" in state:
        return Check("clock", "ok", "synchronised, by timedatectl")
    if "=no" in state:
        return Check("clock", "warn", "not synchronised, by timedatectl: run chronyd or another NTP client")
    return Check("clock", "unknown", "neither chronyc nor timedatectl answers")


def _tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        ended = subprocess.run(command, capture_output=True, check=False, timeout=_TOOL_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode(errors="replace")


def _spool(place: Place) -> Iterator[Check]:
    if not place.spool.is_dir():
        yield Check("spool", "fail", f"{place.spool} is missing: systemd-tmpfiles --create")
        return
    kind = _file_system(place.spool)
    if kind in REMOTE:
        text = f"{place.spool} lies on {kind}: open spool files need a local disk (the outbox may be shared)"
        yield Check("spool", "fail", text)
        return
    status = os.statvfs(place.spool)
    free = status.f_bavail * status.f_frsize
    text = f"{free // 1024 // 1024} MiB free on {kind}"
    yield Check("spool", "ok" if free > _ENOUGH_BYTES else "warn", text)


def _file_system(path: Path) -> str:
    best, kind = "", "unknown"
    resolved = f"{path.resolve()}/"
    for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(" ")
        mount = words[1].rstrip("/") + "/"
        if resolved.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, words[2]
    return kind
