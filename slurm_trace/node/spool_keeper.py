"""The spool files of the leases: written when due, closed, marked for the hooks, and tried again where that failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slurm_trace.node.clock import Clock
from slurm_trace.node.config import NodeConfig
from slurm_trace.node.courier import Courier
from slurm_trace.node.lease import SEALED_SUFFIX, LeaseScan, mark_sealed
from slurm_trace.node.log import Log
from slurm_trace.node.open_lease import OpenLease
from slurm_trace.node.roster import Served
from slurm_trace.node.spool import MetaValue
from slurm_trace.node.spool_writer import SpoolFailed

_RETRY_NS = 10_000_000_000


@dataclass
class Closing:
    """How a lease's file, or one part of it, is closed; see `OpenLease.close`. `final`: the lease is over."""

    log: OpenLease
    closed: str
    to_ns: int | None
    to_wall_ns: int | None
    final: bool
    because: str = "unknown"
    meta: dict[str, MetaValue] = field(default_factory=dict)


class SpoolKeeper:
    """Writes and closes spool files.

    Args:
        config: Where they lie, and how long a chunk is.
        clock: Of the node.
        log: For trouble.
        courier: Takes over what is closed.
        about: What the sampler says of itself, for the files' meta table.

    Attributes:
        sealed: Stems of leases that are over and whose files the hooks have not removed yet.
    """

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        log: Log,
        courier: Courier,
        about: Callable[[], dict[str, MetaValue]],
    ) -> None:
        self.sealed: set[str] = set()
        self._config = config
        self._clock = clock
        self._log = log
        self._courier = courier
        self._about = about
        self._waiting: list[Closing] = []
        self._retry_at_ns = 0

    @property
    def is_done(self) -> bool:
        """Whether no file waits to be closed."""
        return not self._waiting

    def flush(self, served: Served) -> None:
        """Write what there is of a lease."""
        served.flush_at_ns = self._clock.mono_ns() + int(self._config.chunk_length_s * 1e9)
        try:
            served.log.flush(self._about())
        except SpoolFailed as error:
            self._log.trouble("spool", f"samples are dropped and counted: {error}")

    def close(self, one: Closing) -> None:
        """Close a file; where that fails it is tried again later."""
        one.meta = {**one.meta, **self._about()}
        if one.final:
            self.sealed.add(one.log.stem)
        try:
            one.log.close(one.closed, one.to_ns, one.to_wall_ns, one.meta, one.because)
        except SpoolFailed as error:
            self._log.trouble("seal", f"the spool file of {one.log.stem} cannot be closed now: {error}")
            self._waiting.append(one)
            self._retry_at_ns = self._clock.mono_ns() + _RETRY_NS
            return
        if one.final:
            self.mark(one.log.stem)
        self._courier.notify()

    def retry(self, now: bool = False) -> None:
        """Close what could not be closed, if it is time, or `now`."""
        if self._waiting and (now or self._clock.mono_ns() >= self._retry_at_ns):
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                self.close(one)
            self._retry_at_ns = self._clock.mono_ns() + _RETRY_NS

    def mark(self, stem: str) -> None:
        """The hooks may remove the lease's files."""
        self.sealed.add(stem)
        try:
            mark_sealed(self._config.sampler_folder, stem)
        except OSError as error:
            self._log.trouble("marks", f"{self._config.sampler_folder} cannot be written: {error.strerror}")

    def read_marks(self) -> None:
        """Take over which leases an earlier sampler sealed."""
        try:
            names = [path.name for path in self._config.sampler_folder.iterdir()]
        except OSError as error:
            self._log.trouble("marks", f"{self._config.sampler_folder} cannot be read: {error.strerror}")
            return
        self.sealed |= {name[: -len(SEALED_SUFFIX)] for name in names if name.endswith(SEALED_SUFFIX)}

    def forget(self, scan: LeaseScan) -> None:
        """Leases whose files are all gone cannot come back: a stem is never used twice within a boot."""
        refused = {refusal.name for refusal in scan.refused}
        if str(self._config.leases_folder) in refused:
            return
        self.sealed &= {
            *(lease.stem for lease in scan.open),
            *(end.stem for _, end in scan.ended),
            *(end.stem for end in scan.orphans),
            *(name.rpartition(".")[0] for name in refused),
        }
