"""The question asked of groups: runs are split over jobs, so what counts is what a cluster, an account or a user did.

A group that contains another and is ruled out rules that one out too, so most audits end in the first line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from slurm_trace.analysis.capacity import Inventory, capped_flop, total_capacity
from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.envelope import Bools, Envelope, Ints
from slurm_trace.analysis.tracking import Status
from slurm_trace.analysis.verdicts import INSUFFICIENT, NOT_RULED_OUT, VERDICTS, Question

By = Literal["all", "cluster", "account", "user"]
BY: tuple[By, ...] = ("all", "cluster", "account", "user")

NOBODY = "(none)"
"""Key of the runs whose record names no account or no user."""


@dataclass(frozen=True, slots=True)
class Group:
    """One group of runs and what may be said of all of them together.

    Attributes:
        jobs: Runs in it, runaways included.
        gpu_seconds: GPUs x run time where both are known; the runs that lack one are counted in `gpu_unknown_jobs`.
        bound_flop: The most that all members can have done; None if one of them has no bound, or one may be missing.
        capacity_flop: The most the hardware can have done in the whole period, whoever used it; None if not known.
        fewest_jobs: Fewest runs whose bounds together reach T (a run without a bound counts as infinite); None if all
            together do not.
        fewest_users: The same for users.
        reasons: Why the members' sum could not be taken.
    """

    by: By
    key: str
    jobs: int
    users: int
    gpu_seconds: int
    gpu_unknown_jobs: int
    bound_flop: int | None
    capacity_flop: int | None
    ratio: float | None
    verdict: str
    verdict_strict: str
    fewest_jobs: int | None
    fewest_users: int | None
    records_complete: Status
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """What is known of the records as a whole.

    Attributes:
        complete: Completeness by cluster.
        rejected: Rejected rows by cluster; key None for rows that name none.
        period: The half-open interval that the question is about.
    """

    complete: Mapping[str, Completeness]
    rejected: Mapping[str | None, int]
    period: tuple[int, int]

    def blockers(self, cluster: str) -> list[str]:
        """Why a run of this cluster may be missing."""
        rejected = self.rejected.get(cluster, 0) + self.rejected.get(None, 0)
        found = [f"{cluster}: {gap}" for gap in self.complete[cluster].gaps]
        if rejected:
            found.append(f"{cluster}: {rejected} rows could not be read")
        return found

    def status(self, clusters: Sequence[str]) -> Status:
        """The weakest of what stands behind records_complete."""
        statuses = [self.complete[c].status for c in clusters]
        return next((s for s in ("assumed", "declared") if s in statuses), "proven")  # type: ignore[return-value]


def user_keys(runs: pd.DataFrame) -> pd.Series:
    """One key a person: the uid, else the name; a name whose uid is known from other rows of its cluster gets it."""
    names = runs["user"].astype(object).where(runs["user"].notna(), NOBODY)
    clusters = runs["cluster"].astype(str)
    known = pd.DataFrame({"cluster": clusters, "name": names, "uid": runs["uid"]}).dropna().drop_duplicates()
    single = known.groupby(["cluster", "name"], observed=True)["uid"].agg(["first", "count"])
    by_name = single.loc[single["count"] == 1, "first"]
    uid = runs["uid"]
    if len(by_name) and uid.isna().any():
        looked_up = pd.Series(
            by_name.reindex(pd.MultiIndex.from_arrays([clusters, names])).to_numpy(), index=runs.index
        )
        uid = uid.fillna(looked_up.astype("Int64"))
    first_name = pd.Series(names.to_numpy(), index=runs.index).groupby(uid.fillna(-1)).transform("first")
    labels = first_name.astype(str) + " (" + uid.astype("string") + ")"
    return labels.where(uid.notna(), names.astype(str)).astype(str)


def group_keys(runs: pd.DataFrame, by: By) -> pd.Series:
    """The group each run belongs to."""
    if by == "all":
        return pd.Series("all", index=runs.index)
    if by == "user":
        return user_keys(runs)
    values = runs[by].astype(object)
    return values.where(values.notna() & (values != ""), NOBODY).astype(str)


def groups(
    envelope: Envelope, members: Bools, by: By, question: Question, records: Records, inventory: Inventory
) -> list[Group]:
    """All groups of one kind, the ones that can't be ruled out first.

    Args:
        envelope: The bounds of the runs.
        members: Runs that the question is about (started ones only).
        by: The kind of group.
        question: The threshold, the basis and the margin.
        records: What is known of the records as a whole.
        inventory: Operations a second of the nodes of the site profile.
    """
    rows = np.flatnonzero(members)
    runs = envelope.runs.iloc[rows]
    codes, keys = pd.factorize(group_keys(runs, by), sort=True)
    group_of = np.full(len(envelope), -1, dtype=np.int64)
    group_of[rows] = codes
    people, _ = pd.factorize(user_keys(runs))
    bounds = _Bounds(envelope, rows, codes.astype(np.int64), people.astype(np.int64), question)
    all_clusters = sorted(records.complete)
    lists_all = inventory.lists_all(envelope, members)
    caps = capped_flop(envelope, group_of, len(keys), members, inventory)
    user_counts = pd.Series(people).groupby(codes).nunique()
    gpu_seconds, gpu_unknown = _gpu_seconds(envelope, rows, codes, len(keys))
    found = []
    for g, key in enumerate(keys):
        # A run that is missing from the records may have been anybody's, on any cluster.
        clusters = [str(key)] if by == "cluster" else all_clusters
        blockers = [reason for c in clusters for reason in records.blockers(c)]
        if bounds.open_members[g]:
            blockers.append(f"{bounds.open_members[g]} of its runs have no bound")
        capacity = total_capacity(inventory, clusters, lambda c: lists_all.get(c, False), *records.period)
        total = min((f for f in (bounds.total[g], caps[g]) if f is not None), default=None)
        bound = (
            capacity if blockers or total is None else min(total, capacity if capacity is not None else total)
        )
        strict = _strict_verdict(bounds.strict[g], blockers, records.status(clusters), question)
        found.append(
            Group(
                by=by,
                key=str(key),
                jobs=int(bounds.jobs[g]),
                users=int(user_counts[g]),
                gpu_seconds=int(gpu_seconds[g]),
                gpu_unknown_jobs=int(gpu_unknown[g]),
                bound_flop=bound,
                capacity_flop=capacity,
                ratio=question.ratio(bound),
                verdict=_group_verdict(bound, blockers, question),
                verdict_strict=strict,
                fewest_jobs=bounds.fewest_jobs(g),
                fewest_users=bounds.fewest_users(g),
                records_complete=records.status(clusters),
                reasons=tuple(blockers),
            )
        )
    rank = {verdict: n for n, verdict in enumerate(VERDICTS)}
    return sorted(
        found, key=lambda f: (rank[f.verdict], -(f.ratio if f.ratio is not None else 0.0), -f.jobs, f.key)
    )


def _group_verdict(bound: int | None, blockers: Sequence[str], question: Question) -> str:
    verdict = question.verdict(bound)
    # A capacity that does not clear the group leaves it where the missing or unbounded runs put it.
    return INSUFFICIENT if blockers and verdict == NOT_RULED_OUT else verdict


def _strict_verdict(bound: int | None, blockers: Sequence[str], complete: Status, question: Question) -> str:
    if blockers or bound is None or complete != "proven":
        return INSUFFICIENT
    return question.verdict(bound)


def _gpu_seconds(envelope: Envelope, rows: Ints, codes: Ints, groups: int) -> tuple[list[int], Ints]:
    count, told = envelope.gpu_count()
    run_s = envelope.release.run_s[rows]
    known = told[rows] & (run_s >= 0)
    products = pd.Series(np.where(known, count[rows] * np.maximum(run_s, 0), 0))
    sums = products.groupby(codes).sum().reindex(range(groups), fill_value=0)
    return [int(s) for s in sums], np.bincount(codes[~known], minlength=groups)


class _Bounds:
    """Exact sums of bounds by group, and the fewest members that reach the threshold."""

    def __init__(self, envelope: Envelope, rows: Ints, codes: Ints, people: Ints, question: Question) -> None:
        self._envelope, self._rows, self._codes, self._people = envelope, rows, codes, people
        self._limit = question.limit_flop
        count = int(codes.max(initial=-1)) + 1
        self.jobs = np.bincount(codes, minlength=count)
        bounded = envelope.bounded[rows]
        self.open_members = np.bincount(codes[~bounded], minlength=count)
        self._open_people = self._count_people(~bounded, count)
        self._single, self._merged = _merge_overlaps(envelope, rows, codes, people, bounded)
        self.total: list[int | None] = self._sums(count, strict=False)
        self.strict: list[int | None] = self._sums(count, strict=True)

    def _count_people(self, chosen: Bools, count: int) -> Ints:
        found = pd.Series(self._people[chosen]).groupby(self._codes[chosen]).nunique()
        return found.reindex(range(count), fill_value=0).to_numpy(dtype=np.int64)

    def _sums(self, count: int, *, strict: bool) -> list[int | None]:
        envelope, sums = self._envelope, [0] * count
        whole: list[bool] = [True] * count
        frame = pd.DataFrame(
            {
                "g": self._codes[self._single],
                "c": envelope.code[self._rows[self._single]],
                "s": envelope.release.held_s[self._rows[self._single]],
                "ok": (envelope.release.proven if strict else envelope.release.known)[
                    self._rows[self._single]
                ],
            }
        )
        for g, c, s, ok in (
            frame.groupby(["g", "c"])
            .agg(s=("s", "sum"), ok=("ok", "all"))
            .reset_index()
            .itertuples(index=False)
        ):
            claim = envelope.claims[c]
            flop_s = claim.strict_flop_s if strict else claim.total_flop_s
            if flop_s is None or not ok:
                whole[g] = False
            else:
                sums[g] += int(s) * flop_s
        for g, _, flop in self._merged:
            sums[g] += flop
            whole[g] = whole[g] and not strict
        return [total if fine else None for total, fine in zip(sums, whole, strict=True)]

    def _members(self, g: int) -> list[tuple[int, int]]:
        """(bound, person) of every bounded member of a group, the largest first."""
        mine = np.flatnonzero((self._codes == g) & self._single & self._envelope.bounded[self._rows])
        found = [(self._envelope.bound_flop(int(self._rows[i])) or 0, int(self._people[i])) for i in mine]
        found += [(flop, person) for group, person, flop in self._merged if group == g]
        return sorted(found, reverse=True)

    def _reaches(self, g: int) -> bool:
        total = self.total[g]
        return self.open_members[g] > 0 or total is None or total >= self._limit

    def fewest_jobs(self, g: int) -> int | None:
        """Fewest runs of a group that together reach the threshold."""
        if not self._reaches(g):
            return None
        if self.open_members[g]:
            return 1
        return _fewest((flop for flop, _ in self._members(g)), self._limit)

    def fewest_users(self, g: int) -> int | None:
        """Fewest people of a group that together reach the threshold."""
        if not self._reaches(g):
            return None
        if self._open_people[g]:
            return 1
        by_person: dict[int, int] = {}
        for flop, person in self._members(g):
            by_person[person] = by_person.get(person, 0) + flop
        return _fewest(sorted(by_person.values(), reverse=True), self._limit)


def _fewest(bounds: Iterable[int], limit: int) -> int | None:
    total = 0
    for n, flop in enumerate(bounds, start=1):
        total += flop
        if total >= limit:
            return n
    return None


def _merge_overlaps(
    envelope: Envelope, rows: Ints, codes: Ints, people: Ints, bounded: Bools
) -> tuple[Bools, list[tuple[int, int, int]]]:
    """Take the rows of one allocation that overlap in time together.

    Slurm 22.05 gives both records of a resized job the original Start, so a plain sum counts that time twice. Until the
    first of them ends the larger claim of all counts, from there on the larger of what is left.

    Returns:
        Which of `rows` stand alone, and (group, person, operations) for each set that was merged.
    """
    alone = np.ones(len(rows), dtype=bool)
    merged: list[tuple[int, int, int]] = []
    table = envelope.runs.iloc[rows][["cluster", "job_id_raw", "start"]].reset_index(drop=True)
    table["group"] = codes
    twins = table["start"].notna().to_numpy() & bounded & table.duplicated(keep=False).to_numpy()
    if not twins.any():
        return alone, merged
    sets = table[twins].groupby(["cluster", "job_id_raw", "start", "group"], observed=True)
    for index in sets.groups.values():
        spans = sorted(
            (int(envelope.release.held_s[rows[i]]), envelope.claim(int(rows[i])).total_flop_s or 0)
            for i in index
        )
        flop, reached = 0, 0
        for n, (held_s, _) in enumerate(spans):
            flop += (held_s - reached) * max(rate for _, rate in spans[n:])
            reached = held_s
        alone[list(index)] = False
        merged.append((int(codes[index[0]]), int(people[index[0]]), flop))
    return alone, merged
