"""Leases: which job holds which GPUs of this node, from when to when, as the hooks wrote it down.

`<job id>.<moment>.lease` opens, a file of the same stem ending in `.end` closes. What a hook checked is checked again:
the reader refuses a file with a reason rather than guess, and a refused close leaves its lease open (worst case).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = "1"
SEALED_SUFFIX = ".done"
_MAX_BYTES = 32768
_CENTISECONDS_OF_NAMING = 40
_SETTLED_AFTER_NS = 100_000_000
_FILE_NAME = re.compile(r"([1-9][0-9]{0,9})\.([0-9]{1,15})\.(lease|end)", re.ASCII)


@dataclass(frozen=True)
class Lease:
    """A job's hold on this node, from its prolog on.

    Attributes:
        moment: The number in the file's name; with the job id it names the lease within one boot.
        opened_cs: When, in centiseconds since boot (the clock of /proc/uptime).
        opened_at: When, in epoch seconds by the wall clock of that moment.
        restart_count: Noted only: an epilog may already see the next run's.
        gpus: Slurm's list of GPUs; None if the job had no such variable, () if it was empty.
        cuda: CUDA_VISIBLE_DEVICES of the hook, likewise.
        dropped: Keys whose values the hook would not write down. With `gpus` or `cuda` in it, which GPUs is not known.
    """

    job_id: int
    moment: int
    boot_id: str
    opened_cs: int
    opened_at: float
    sluid: str | None = None
    cluster: str | None = None
    node: str | None = None
    uid: int | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    start_time: int | None = None
    restart_count: int | None = None
    het_job_id: int | None = None
    gpus: tuple[str, ...] | None = None
    cuda: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """What the lease's files are called, without the ending."""
        return f"{self.job_id}.{self.moment}"


@dataclass(frozen=True)
class LeaseEnd:
    """The close of a lease, or an epilog that found none to close.

    Attributes:
        how: `epilog`; `orphan`, an epilog without a lease; `superseded`, the same job came again and no epilog had been
            seen; `reboot`, the node has started anew since.
        closed_cs: Centiseconds since boot; None after a reboot.
        closed_at: Epoch seconds: of the close, or the latest that it can have been.
    """

    job_id: int
    moment: int
    boot_id: str
    how: str
    closed_cs: int | None
    closed_at: float
    sluid: str | None = None
    node: str | None = None
    start_time: int | None = None
    exit_code: int | None = None
    derived_ec: int | None = None
    dropped: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """What the lease's files are called, without the ending."""
        return f"{self.job_id}.{self.moment}"


@dataclass(frozen=True)
class Refusal:
    """A file that is not taken for a lease, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class LeaseScan:
    """What lies in the directory: each list in the order of (job id, moment)."""

    open: tuple[Lease, ...] = ()
    ended: tuple[tuple[Lease, LeaseEnd], ...] = ()
    orphans: tuple[LeaseEnd, ...] = ()
    refused: tuple[Refusal, ...] = ()


class _Refused(Exception):
    pass


def read_boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_booted_at() -> float:
    """Epoch seconds, by the wall clock of now, of the boot."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseReader:
    """Reads one directory again and again; a file that was read is not read twice.

    Args:
        directory: Where the hooks write.
        boot_id: Of the running boot; leases of another one are over.
        booted_at: Epoch seconds of that boot, the latest end of such a lease.
    """

    def __init__(
        self, directory: str | Path, boot_id: str | None = None, booted_at: float | None = None
    ) -> None:
        self._directory = Path(directory)
        self._boot_id = boot_id if boot_id is not None else read_boot_id()
        self._booted_at = booted_at if booted_at is not None else read_booted_at()
        self._known: dict[str, tuple[tuple[int, int, int], Lease | LeaseEnd | Refusal]] = {}
        self._settled_ns: int | None = None
        self._last = LeaseScan()

    def scan(self) -> LeaseScan:
        """All leases. A directory that cannot be read is one refusal, and no lease is open."""
        try:
            changed_ns = self._directory.stat().st_mtime_ns
            if changed_ns == self._settled_ns:
                return self._last
            now_ns = time.time_ns()
            with os.scandir(self._directory) as entries:
                found = {entry.name: entry for entry in entries if not entry.name.startswith(".")}
                read = {name: self._read(name, entry) for name, entry in found.items()}
        except OSError as error:
            self._settled_ns = None
            return LeaseScan(refused=(Refusal(str(self._directory), error.strerror or "cannot be read"),))
        self._known = {name: self._known[name] for name in read if name in self._known}
        self._last = self._arrange(list(read.values()))
        # Within one tick of the file system's clock another file may still come in under the same time.
        self._settled_ns = changed_ns if now_ns - changed_ns > _SETTLED_AFTER_NS else None
        return self._last

    def _read(self, name: str, entry: os.DirEntry[str]) -> Lease | LeaseEnd | Refusal:
        try:
            status = entry.stat(follow_symlinks=False)
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._known.get(name)
            if known is None or known[0] != mark:
                known = self._known[name] = (mark, _read_file(self._directory / name, name))
            return known[1]
        except OSError as error:
            return Refusal(name, error.strerror or "cannot be read")

    def _arrange(self, read: list[Lease | LeaseEnd | Refusal]) -> LeaseScan:
        leases = sorted((one for one in read if isinstance(one, Lease)), key=_order)
        ends = {one.stem: one for one in read if isinstance(one, LeaseEnd)}
        refused = [one for one in read if isinstance(one, Refusal)]
        still_open: list[Lease] = []
        ended: list[tuple[Lease, LeaseEnd]] = []
        later: dict[tuple[int, str | None], Lease] = {}
        for lease in reversed(leases):
            end = ends.pop(lease.stem, None)
            if end is not None and end.boot_id == lease.boot_id and (end.closed_cs or 0) < lease.opened_cs:
                refused.append(Refusal(f"{end.stem}.end", "closes the lease before it opened"))
                end = None
            end = end or self._implied_end(lease, later.get((lease.job_id, lease.node)))
            if lease.boot_id == self._boot_id:
                later[lease.job_id, lease.node] = lease
            if end is None:
                still_open.append(lease)
            else:
                ended.append((lease, end))
        orphans = sorted(ends.values(), key=_order)
        return LeaseScan(
            tuple(reversed(still_open)),
            tuple(reversed(ended)),
            tuple(orphans),
            tuple(sorted(refused, key=lambda one: one.name)),
        )

    def _implied_end(self, lease: Lease, next_of_job: Lease | None) -> LeaseEnd | None:
        if lease.boot_id != self._boot_id:
            latest = max(lease.opened_at, self._booted_at)
            return LeaseEnd(lease.job_id, lease.moment, lease.boot_id, "reboot", None, latest)
        if next_of_job is not None:
            closed_cs, closed_at = next_of_job.opened_cs, next_of_job.opened_at
            return LeaseEnd(lease.job_id, lease.moment, lease.boot_id, "superseded", closed_cs, closed_at)
        return None


def read_leases(
    directory: str | Path, boot_id: str | None = None, booted_at: float | None = None
) -> LeaseScan:
    """One look at a directory of leases."""
    return LeaseReader(directory, boot_id, booted_at).scan()


def mark_sealed(directory: str | Path, stem: str) -> None:
    """Tell the hooks that a closed lease is sealed: the next epilog removes its files, which are root's.

    Args:
        directory: The sampler's own, beside the hooks' (`/run/slurm-trace/sampler`).
        stem: Of the lease, or of an orphaned end.
    """
    Path(directory, stem + SEALED_SUFFIX).touch()


def _order(one: Lease | LeaseEnd) -> tuple[int, int]:
    return one.job_id, one.moment


def _text(limit: int) -> Callable[[str], str | None]:
    pattern = re.compile(rf"[A-Za-z0-9_.,:+@/-]{{0,{limit}}}", re.ASCII)

    def check(value: str) -> str | None:
        if not pattern.fullmatch(value):
            raise ValueError
        return value or None

    return check


def _number(digits: int) -> Callable[[str], int]:
    pattern = re.compile(rf"[0-9]{{1,{digits}}}", re.ASCII)

    def check(value: str) -> int:
        if not pattern.fullmatch(value):
            raise ValueError
        return int(value)

    return check


def _matching(expression: str) -> Callable[[str], str]:
    pattern = re.compile(expression, re.ASCII)

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError
        return value

    return check


def _list(value: str) -> tuple[str, ...]:
    checked = _text(8192)(value)
    return () if checked is None else tuple(checked.split(","))


# Key → check; a check returns the value or raises ValueError. Limits are those of the hooks.
_KEYS: Mapping[str, Callable[[str], Any]] = {
    "version": _matching(VERSION),
    "job_id": _number(10),
    "sluid": _text(32),
    "cluster": _text(128),
    "node": _text(255),
    "uid": _number(10),
    "user": _text(256),
    "account": _text(256),
    "partition": _text(256),
    "start_time": _number(12),
    "restart_count": _number(10),
    "het_job_id": _number(10),
    "gpus": _list,
    "cuda": _list,
    "exit_code": _number(10),
    "derived_ec": _number(10),
    "orphan": _matching("1"),
    "dropped": _list,
    "boot_id": _matching("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "uptime": _matching(r"[0-9]{1,12}\.[0-9]{2}"),
}
_REQUIRED = ("version", "job_id", "boot_id", "uptime")
_OF_LEASE = frozenset(Lease.__dataclass_fields__) & frozenset(_KEYS)
_OF_END = frozenset(LeaseEnd.__dataclass_fields__) & frozenset(_KEYS)


def _read_file(path: Path, name: str) -> Lease | LeaseEnd | Refusal:
    named = _FILE_NAME.fullmatch(name)
    if named is None:
        return Refusal(name, "not the name of a lease")
    try:
        data, written_at = _load(path)
        values = dict(_parse(data))
        missing = [key for key in _REQUIRED if key not in values]
        if missing:
            raise _Refused(f"{missing[0]} is missing: the file is not whole")
        job_id, moment = int(named[1]), int(named[2])
        if values["job_id"] != job_id:
            raise _Refused("name and content speak of different jobs")
        return _build(named[3], moment, int(values["uptime"].replace(".", "")), written_at, values)
    except _Refused as refused:
        return Refusal(name, str(refused))


def _build(
    kind: str, moment: int, uptime_cs: int, written_at: float, values: dict[str, Any]
) -> Lease | LeaseEnd:
    if kind == "lease":
        if not 0 <= moment - uptime_cs <= _CENTISECONDS_OF_NAMING:
            raise _Refused("name and content speak of different moments")
        fields = {key: value for key, value in values.items() if key in _OF_LEASE}
        return Lease(moment=moment, opened_cs=uptime_cs, opened_at=written_at, **fields)
    fields = {key: value for key, value in values.items() if key in _OF_END}
    how = "orphan" if "orphan" in values else "epilog"
    return LeaseEnd(moment=moment, how=how, closed_cs=uptime_cs, closed_at=written_at, **fields)


def _load(path: Path) -> tuple[str, float]:
    # Neither a link nor a pipe may be followed or waited for.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _Refused("not a regular file")
        if status.st_uid not in (0, os.geteuid()):
            raise _Refused(f"written by user {status.st_uid}, not by root")
        if status.st_size > _MAX_BYTES:
            raise _Refused(f"longer than {_MAX_BYTES} bytes")
        data = os.read(handle, _MAX_BYTES + 1)
    finally:
        os.close(handle)
    try:
        return data.decode("ascii"), status.st_mtime
    except UnicodeDecodeError:
        raise _Refused("not ASCII text") from None


def _parse(data: str) -> Iterator[tuple[str, Any]]:
    if data and not data.endswith("\n"):
        raise _Refused("the last line is not whole")
    seen = set()
    for number, line in enumerate(data.split("\n")[:-1], 1):
        key, equals, value = line.partition("=")
        if not equals or key not in _KEYS:
            raise _Refused(f"line {number} has no known key")
        if key in seen:
            raise _Refused(f"{key} is given twice")
        seen.add(key)
        try:
            yield key, _KEYS[key](value)
        except ValueError:
            raise _Refused(f"{key} has a value that cannot be one") from None
