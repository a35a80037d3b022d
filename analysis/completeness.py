"""Do the records hold every run there was? What a group's rule-out needs before its sum means anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_trace.analysis.tracking import Status


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one import of accounting can be held to.

    Attributes:
        clusters: Clusters it was for: those that its rows name, or the one that was asked.
        covers: The half-open interval that it covers completely; None if nobody says so.
        complete: It was read to its end.
        live: Slurm itself was asked, so the interval was seen and not only declared.
        flags: What was asked for: all_users, duplicates, private_data.
    """

    id: int
    name: str
    clusters: tuple[str, ...]
    covers: tuple[int, int] | None
    complete: bool
    live: bool
    flags: dict[str, Any]

    @property
    def whole(self) -> bool:
        """It asked for every user's runs and for every run of a requeued job."""
        wanted = self.flags.get("all_users", True) and self.flags.get("duplicates", True)
        return bool(wanted) and self.flags.get("private_data") is not True


@dataclass(frozen=True, slots=True)
class Completeness:
    """What stands behind records_complete for one cluster; `gaps` are reasons why the records are not complete."""

    status: Status
    gaps: tuple[str, ...] = ()


def completeness(
    imports: Sequence[Coverage], cluster: str, since: int | None, until: int | None
) -> Completeness:
    """Judge the imports of one cluster for [since, until); an open end reaches as far as the imports do."""
    mine = [i for i in imports if cluster in i.clusters or not (i.complete or i.clusters)]
    unfinished = [f"import {i.id} ({i.name}) was not finished" for i in mine if not i.complete]
    read = [i for i in mine if i.complete]
    spans = [(i.covers, i.live) for i in read if i.whole and i.covers is not None]
    # A file that nobody spoke for; where Slurm was asked and no time is covered, that is known and not forgotten.
    unspoken = any(i.whole and i.covers is None and not i.live for i in read)
    if not spans:
        partial = [
            f"import {i.id} ({i.name}) covers no time completely: runs of other users or of requeued jobs are left out"
            for i in read
        ] or ["nothing of it was imported"]
        return Completeness("assumed", tuple(unfinished if unspoken else unfinished + partial))
    first, last = min(a for (a, _), _ in spans), max(b for (_, b), _ in spans)
    holes = _holes(
        [span for span, _ in spans], first if since is None else since, last if until is None else until
    )
    gaps = unfinished + [f"no import covers epoch {a} to {b}" for a, b in holes]
    if until is None and since is not None and since >= last:
        gaps.append(f"no import covers epoch {since} and later")
    if since is None and until is not None and until <= first:
        gaps.append(f"no import covers the time before epoch {until}")
    if unspoken and (since is None or until is None):
        return Completeness("assumed", tuple(gaps))
    return Completeness("proven" if all(live for _, live in spans) else "declared", tuple(gaps))


def covered(imports: Sequence[Coverage], cluster: str) -> list[tuple[int, int]]:
    """Half-open times of which the imports hold every run of a cluster."""
    return [
        i.covers for i in imports if cluster in i.clusters and i.complete and i.whole and i.covers is not None
    ]


def _holes(spans: Iterable[tuple[int, int]], since: int, until: int) -> list[tuple[int, int]]:
    found, reached = [], since
    for first, last in sorted(spans):
        if first > reached and reached < until:
            found.append((reached, min(first, until)))
        reached = max(reached, last)
    if reached < until:
        found.append((reached, until))
    return found
