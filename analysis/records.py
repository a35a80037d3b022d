"""What is known of the records as a whole, apart from any one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.tracking import Status


@dataclass(frozen=True, slots=True)
class Records:
    """What is known of the records as a whole.

    Attributes:
        complete: Completeness by cluster.
        rejected: Rejected rows by cluster; key None for rows that name none.
        window: Since and until as asked; None is open. Clips figures of use.
        period: The half-open interval within which all of it happened.
        unattributed: By cluster, operations that cumulative counters saw while no run held the card.
        shortfalls: By cluster, where the records hold less than another account of the same time.
    """

    complete: Mapping[str, Completeness]
    rejected: Mapping[str | None, int]
    window: tuple[int | None, int | None]
    period: tuple[int, int]
    unattributed: Mapping[str, int] = field(default_factory=dict)
    shortfalls: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def blockers(self, cluster: str) -> list[str]:
        """Why a run of this cluster may be missing."""
        rejected = self.rejected.get(cluster, 0) + self.rejected.get(None, 0)
        found = [f"{cluster}: {gap}" for gap in self.complete[cluster].gaps]
        if rejected:
            found.append(f"{cluster}: {rejected} rows could not be read")
        return found + [f"{cluster}: {shortfall}" for shortfall in self.shortfalls.get(cluster, ())]

    def status(self, clusters: Sequence[str]) -> Status:
        """The weakest of what stands behind records_complete."""
        statuses = [self.complete[c].status for c in clusters]
        return next((s for s in ("assumed", "declared") if s in statuses), "proven")
