"""The clocks of a node, behind a Protocol so that tests can turn them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks, and a way to wait."""

    def mono_ns(self) -> int:
        """CLOCK_BOOTTIME: never set, and the clock of /proc/uptime, in which the hooks give their moments."""

    def wall_ns(self) -> int:
        """UTC since 1970, as the node believes; may jump."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clocks of this machine."""

    def mono_ns(self) -> int:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ns(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        """Wait; a signal's handler runs, the wait goes on."""
        time.sleep(seconds)
