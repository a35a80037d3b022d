"""The leases that the sampler serves, and which of them hold a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from slurm_trace.node.lease import Lease
from slurm_trace.node.open_lease import OpenLease

MISSING_NS = 60_000_000_000


@dataclass
class Served:
    """A lease that the sampler serves, with when its file is due.

    Attributes:
        lease: None until the lease's own file has been read.
        flush_at_ns: When its file is written next.
        began_ns: Begin of the part.
        opened_ns: Begin of the lease.
        wants: Whether it holds devices.
        missing_at_ns: Since when it has had no file any more.
    """

    log: OpenLease
    lease: Lease | None
    flush_at_ns: int
    began_ns: int
    opened_ns: int
    wants: bool
    missing_at_ns: int | None = None

    def is_missing(self, now: int) -> bool:
        """Its file is gone without an end: somebody emptied the directory, and no epilog will tell."""
        return self.missing_at_ns is not None and now - self.missing_at_ns > MISSING_NS


class Sharing(NamedTuple):
    """News for one lease: who else holds one of its devices now; nobody, if `others` is empty."""

    log: OpenLease
    uuid: str
    others: tuple[str, ...]


class Roster:
    """The leases by stem, and who holds what.

    Attributes:
        leases: Stem → lease.
        owners: UUID → the leases that hold the device.
    """

    def __init__(self) -> None:
        self.leases: dict[str, Served] = {}
        self.owners: dict[str, list[OpenLease]] = {}

    @property
    def logs(self) -> list[OpenLease]:
        """The open file of every lease."""
        return [served.log for served in self.leases.values()]

    @property
    def wants_devices(self) -> bool:
        """Whether some lease holds devices, found or not."""
        return any(served.wants for served in self.leases.values())

    def waiting(self) -> list[Served]:
        """Leases whose devices are not known yet."""
        return [one for one in self.leases.values() if one.wants and one.log.attribution == "unknown"]

    def concerned(self, uuid: str) -> list[OpenLease]:
        """Leases that hold a device or an instance of it."""
        return [
            log
            for log in self.logs
            if any(uuid in (device.uuid, device.parent_uuid) for device in log.devices.values())
        ]

    def regroup(self) -> list[Sharing]:
        """Find out anew who holds what; the news about devices with two owners."""
        before = {uuid: {log.stem for log in logs} for uuid, logs in self.owners.items()}
        owners: dict[str, list[OpenLease]] = {}
        for log in self.logs:
            for uuid in log.devices:
                owners.setdefault(uuid, []).append(log)
        self.owners = owners
        news = []
        for uuid, logs in owners.items():
            was, now = _shared(before.get(uuid, set())), _shared({log.stem for log in logs})
            if was != now:
                news += [Sharing(log, uuid, tuple(sorted(now - {log.stem}))) for log in logs]
        return news

    def note_missing(self, present: set[str], now: int) -> None:
        """Take down since when a lease has had no file; `present` are the stems that have one."""
        for stem, served in self.leases.items():
            if stem in present:
                served.missing_at_ns = None
            elif served.missing_at_ns is None:
                served.missing_at_ns = now


def _shared(stems: set[str]) -> set[str]:
    return stems if len(stems) > 1 else set()
