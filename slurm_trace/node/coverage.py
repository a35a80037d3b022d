"""How a device's time is tiled while a lease is open: a good reading ends an interval, or the gap before it."""

from __future__ import annotations

from slurm_trace.node.spool import Gap


class Coverage:
    """One device's time since `start_ns`, with nothing left over.

    Args:
        uuid: The device.
        start_ns: Begin; until the first good reading there is a gap, for `reason`.
        late_ns: A longer way from one good reading to the next is a gap too (`late`).
    """

    __slots__ = ("_late_ns", "_reason", "last_ns", "uuid")

    def __init__(self, uuid: str, start_ns: int, reason: str, late_ns: int) -> None:
        self.uuid = uuid
        self.last_ns = start_ns
        self._reason: str | None = reason
        self._late_ns = late_ns

    def good(self, at_ns: int) -> Gap | None:
        """A reading at `at_ns`, which is later than the last; the gap that it ends, if it ends one."""
        if self._reason is None and at_ns - self.last_ns <= self._late_ns:
            self.last_ns = at_ns
            return None
        gap = self._gap(at_ns)
        self.last_ns = at_ns
        self._reason = None
        return gap

    def bad(self, reason: str) -> None:
        """No reading. The first reason of a gap is the one that is kept."""
        if self._reason is None:
            self._reason = reason

    def rewind(self, to_ns: int, reason: str) -> None:
        """Readings after `to_ns` were lost on the way to the disk."""
        self.last_ns = to_ns
        self._reason = reason

    def end(self, at_ns: int) -> Gap | None:
        """The gap that is open when the lease ends at `at_ns`."""
        return self._gap(at_ns) if at_ns > self.last_ns else None

    def _gap(self, at_ns: int) -> Gap | None:
        if self._reason is None and at_ns - self.last_ns <= self._late_ns:
            return None
        return Gap(self.uuid, self.last_ns, at_ns, self._reason or "late")
