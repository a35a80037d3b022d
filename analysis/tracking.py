"""What did the accounting of a cluster record, and when?

"No GPU in the record" means nothing where GPUs were not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.counting import SHARES
from slurm_trace.site.profile import SiteProfile

Status = Literal["proven", "declared", "assumed"]

ALWAYS = 1 << 62
"""An end that lies after every other time."""


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

    @property
    def shares(self) -> bool:
        """Shares of cards stand in the record too."""
        return all(f"gres/{name}" in self.names for name in SHARES)


class Tracking:
    """Registered TRES over time, by cluster, from events (proven) and the site profile (declared)."""

    def __init__(
        self, site: SiteProfile, events: Sequence[Event], first_gpu_start: Mapping[str, int]
    ) -> None:
        self._first_gpu_start = first_gpu_start
        self._periods: dict[str, list[Recorded]] = {}
        self._share_free: dict[str, bool] = {}
        for name, profile in site.clusters.items():
            for p in profile.registered_tres:
                since, until = p.from_ or 0, ALWAYS if p.to is None else p.to
                self._add(name, Recorded(since, until, frozenset(p.names), "declared"))
            if profile.gres_types is not None:
                self._share_free[name] = not SHARES.intersection(profile.gres_types)
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

    def cards_recorded(self, cluster: str, since: int, until: int) -> Status | Literal["no"] | None:
        """Were all whole cards recorded during all of [since, until)? "no" if not, None if nothing tells."""
        reached, status = since, "proven"
        for p in sorted(self._periods.get(cluster, ()), key=lambda p: (p.since, p.status != "proven")):
            if p.until <= since or p.since >= until:
                continue
            if not p.cards:
                return "no"
            if p.since <= reached < p.until:
                reached = p.until
                status = p.status if p.status != "proven" else status
        return status if reached >= until else None  # type: ignore[return-value]

    def shares_recorded(self, cluster: str, since: int, until: int) -> bool:
        """No share of a card can have gone unrecorded: there are none, or they were registered all the time."""
        if self._share_free.get(cluster, False):
            return True
        touching = [p for p in self._periods.get(cluster, ()) if p.until > since and p.since < until]
        return bool(touching) and all(p.shares for p in touching)

    def gpus_seen_before(self, cluster: str, moment: int) -> bool:
        """Some run that started before then has GPUs in its record, so GPUs were recorded at some time."""
        first = self._first_gpu_start.get(cluster)
        return first is not None and first < moment
