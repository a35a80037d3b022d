"""What did the accounting of a cluster record, and when?

"No GPU in the record" means nothing where GPUs were not recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.counting import SHARES
from slurm_trace.site.profile import SiteProfile

Status = Literal["proven", "declared", "assumed"]

ALWAYS = 1 << 62
"""An end that lies after every other time."""


def weakest(statuses: Sequence[Status]) -> Status:
    """The status of what rests on all of these."""
    return next((s for s in ("assumed", "declared") if s in statuses), "proven")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The TRES names that one cluster registered during [since, until)."""

    since: int
    until: int
    names: frozenset[str]
    status: Status

    @property
    def cards(self) -> bool:
        """Every GPU that was allocated stands in the record."""
        return "gres/gpu" in self.names

    def has(self, gres: Iterable[str]) -> bool:
        """All of these generic resources stand in the record."""
        return all(f"gres/{name}" in self.names for name in gres)


class Tracking:
    """Registered TRES over time, by cluster, from events (proven) and the site profile (declared).

    Args:
        site: The site profile.
        events: TRES events of the clusters.
        first_gpu_start: By cluster, when the first run with a recorded GPU started.
        inert: Names of generic resources that compute nothing.
    """

    def __init__(
        self,
        site: SiteProfile,
        events: Sequence[Event],
        first_gpu_start: Mapping[str, int],
        inert: Collection[str],
    ) -> None:
        self._first_gpu_start = first_gpu_start
        self._periods: dict[str, list[Recorded]] = {}
        self._handed_out: dict[str, frozenset[str]] = {}
        for name, profile in site.clusters.items():
            for p in profile.registered_tres:
                since, until = p.from_ or 0, ALWAYS if p.to is None else p.to
                self._add(name, Recorded(since, until, frozenset(p.names), "declared"))
            if profile.gres_types is not None:
                self._handed_out[name] = frozenset(profile.gres_types) - {"gpu", *inert}
        for event in events:
            if not event.node and event.tres:
                names = frozenset(part.split("=")[0] for part in event.tres.split(","))
                until = ALWAYS if event.end is None else event.end
                self._add(event.cluster, Recorded(event.start, until, names, "proven"))

    def _add(self, cluster: str, period: Recorded) -> None:
        self._periods.setdefault(cluster, []).append(period)

    def boundaries(self) -> Iterable[int]:
        """Every moment at which an answer of this table can change."""
        for periods in self._periods.values():
            for p in periods:
                yield from (p.since, p.until)
        yield from self._first_gpu_start.values()

    def cards_recorded(self, cluster: str, since: int, until: int) -> bool | None:
        """Were all whole cards recorded during all of [since, until)? None if nothing tells."""
        reached = since
        for p in sorted(self._periods.get(cluster, ()), key=lambda p: p.since):
            if p.until <= since or p.since >= until:
                continue
            if not p.cards:
                return False
            if p.since <= reached < p.until:
                reached = p.until
        return True if reached >= until else None

    def rest_recorded(self, cluster: str, since: int, until: int) -> Status:
        """What stands behind this: no share of a card and no other accelerator can have gone unrecorded.

        They were registered all the time, or, so the profile says, there are none.
        """
        touching = [p for p in self._periods.get(cluster, ()) if p.until > since and p.since < until]
        if touching and all(p.has(SHARES | self._handed_out.get(cluster, frozenset())) for p in touching):
            return weakest([p.status for p in touching])
        handed_out = self._handed_out.get(cluster)
        if handed_out is not None and all(p.has(handed_out) for p in touching):
            return "declared"
        return "assumed"

    def gpus_seen_before(self, cluster: str, moment: int) -> bool:
        """Some run that started before then has GPUs in its record, so GPUs were recorded at some time."""
        first = self._first_gpu_start.get(cluster)
        return first is not None and first < moment
