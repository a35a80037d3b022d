"""Runs that continue one another: requeues of a job, and jobs that follow their equals without a pause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

PAUSE_S = 3600
"""Longest wait in the queue between two parts of one piece of work."""


@dataclass(frozen=True, slots=True)
class Member:
    """A run that may be part of the chain: the run itself, its requeues, and runs alike. Times are epoch seconds."""

    run_id: int
    job_id_raw: int
    start: int | None
    end: int | None


def chain_length(run_id: int, members: Sequence[Member]) -> int | None:
    """How many runs are one chain; None where the run's own times are not known.

    A run goes on in the next one if that one is a requeue of it, or the only one alike that begins within an hour of
    its end. Where several begin there is no telling, and the chain ends.

    Args:
        run_id: The run that is asked about; it is among the members.
        members: See Member.
    """
    (own,) = (m for m in members if m.run_id == run_id)
    if own.start is None:
        return None
    alike = [m for m in members if m.start is not None and m.end is not None and m.end > m.start]
    after, before = _Next([m.start for m in alike], alike), _Next([m.end for m in alike], alike)
    others = 0
    at = own
    while at.end is not None and (found := after.only(at.end, at.end + PAUSE_S)) is not None:
        at = found
        others += at.job_id_raw != own.job_id_raw
    at = own
    while at.start is not None and (found := before.only(at.start - PAUSE_S, at.start)) is not None:
        at = found
        others += at.job_id_raw != own.job_id_raw
    return others + sum(m.job_id_raw == own.job_id_raw for m in members)


class _Next:
    """Runs by a moment of theirs."""

    def __init__(self, moments: Sequence[int | None], members: Sequence[Member]) -> None:
        places = sorted((moment, i) for i, moment in enumerate(moments) if moment is not None)
        self._moments = [moment for moment, _ in places]
        self._members = [members[i] for _, i in places]

    def only(self, low: int, high: int) -> Member | None:
        """The one whose moment lies from low to high, both included; None if there is none, or several."""
        at = bisect_left(self._moments, low)
        return self._members[at] if bisect_right(self._moments, high) - at == 1 else None
