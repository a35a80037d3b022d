"""What the sampler says of itself: in every spool file, and in its status file."""

from __future__ import annotations

from pathlib import Path

from slurm_trace.node.clock import Clock
from slurm_trace.node.log import Log
from slurm_trace.node.probe import Probe
from slurm_trace.node.spool import MetaValue
from slurm_trace.node.usage import own_usage


class About:
    """Counts, usage, and the driver, as they are now.

    Attributes:
        late_ticks: How many readings came more than an interval too late.
    """

    def __init__(self, probe: Probe, clock: Clock) -> None:
        self.late_ticks = 0
        self._probe = probe
        self._clock = clock

    def meta(self) -> dict[str, MetaValue]:
        """Rows of a spool file's meta table."""
        info = self._probe.info
        return {
            "alive_ns": self._clock.mono_ns(),
            **own_usage(),
            "polls": self._probe.polls,
            "late_ticks": self.late_ticks,
            "source": info.kind,
            "driver_version": info.driver_version,
            "library_version": info.library_version,
            "cuda_version": info.cuda_version,
        }

    def write(self, folder: Path, leases: int, devices: int, log: Log) -> None:
        """The status file, for `node status`."""
        lines = {"leases": leases, "devices": devices, "driver_open": int(self._probe.is_open)}
        known = {**lines, **self.meta()}
        text = "".join(f"{key}={value}\n" for key, value in known.items() if value is not None)
        target = folder / "status"
        try:
            claim = target.with_name(".status.tmp")
            claim.write_text(text, encoding="utf-8")
            claim.replace(target)
        except OSError as error:
            log.trouble("status", f"{target} cannot be written: {error.strerror}")
