"""The question asked of groups: runs are split over jobs, so what counts is what a cluster, an account or a user did.

A group that contains another and is ruled out rules that one out too, so most audits end in the first line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.analysis.capacity import Inventory, capped_flop, total_capacity
from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.envelope import Bools, Envelope, Ints
from slurm_trace.analysis.tracking import Status
from slurm_trace.analysis.verdicts import RULED_OUT, VERDICTS, Question, group_verdict

By = Literal["all", "cluster", "account", "user"]
BY: tuple[By, ...] = ("all", "cluster", "account", "user")

EXACT_AT_ONCE = 256
"""Bounds that are worked out exactly before more are asked for."""

NOBODY = "(none)"
"""Key of the runs whose record names no account or no user."""


@dataclass(frozen=True, slots=True)
class Group:
    """One group of runs and what may be said of all of them together.

    Attributes:
        jobs: Runs in it, runaways included.
        gpu_seconds: GPUs x run time in the window; the runs that lack one of the two are counted in `gpu_unknown_jobs`.
        bound_flop: The most that all members can have done; None if one of them has no bound, or one may be missing.
        capacity_flop: The most the hardware can have done in the whole period, whoever used it; None if not known.
        fewest_jobs: Fewest runs whose bounds together reach T (a run without a bound counts as infinite); None if all
            together do not, or the group is ruled out.
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
        window: Since and until as asked; None is open. Clips figures of use.
        period: The half-open interval within which all of it happened.
    """

    complete: Mapping[str, Completeness]
    rejected: Mapping[str | None, int]
    window: tuple[int | None, int | None]
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
        return next((s for s in ("assumed", "declared") if s in statuses), "proven")


def people(runs: pd.DataFrame) -> tuple[Ints, list[str]]:
    """Who each run belongs to: a code a person, and the label of each code.

    A person is a uid, whatever the name; without one a name, or the uid that this name has in other rows of its
    cluster, else of all clusters.
    """
    names = runs["user"].astype("category")
    uid = runs["uid"].fillna(-1).to_numpy(dtype=np.int64, copy=True)
    told = runs["uid"].notna().to_numpy(dtype=bool, copy=True)
    name = names.cat.codes.to_numpy(dtype=np.int64)
    known = pd.DataFrame({"c": runs["cluster"].astype("category").cat.codes.to_numpy(), "n": name, "u": uid})
    given = known[told]
    for by in (["c", "n"], ["n"]):
        single = given.groupby(by)["u"].agg(["min", "max"])
        alike = single[single["min"] == single["max"]]["min"]
        looked_up = known.loc[~told, by].join(alike, on=by)["min"].to_numpy(dtype=np.float64)
        found = ~np.isnan(looked_up) & (name[~told] >= 0)
        at = np.flatnonzero(~told)[found]
        uid[at], told[at] = looked_up[found].astype(np.int64), True
    codes, firsts = _first_of(np.where(told, uid, -2 - name))
    labels = [NOBODY if name[i] < 0 else str(names.cat.categories[name[i]]) for i in firsts]
    return codes, [
        f"{label} ({uid[i]})" if told[i] else label or NOBODY for label, i in zip(labels, firsts, strict=True)
    ]


def memberships(runs: pd.DataFrame, by: By) -> tuple[Ints, list[str]]:
    """The group each run belongs to: a code a group, and the key of each code."""
    if by == "all":
        return np.zeros(len(runs), dtype=np.int64), ["all"] if len(runs) else []
    if by == "user":
        return people(runs)
    values = runs[by].astype("category")
    names = [str(c) or NOBODY for c in values.cat.categories]
    codes, firsts = _first_of(values.cat.codes.to_numpy(dtype=np.int64))
    original = values.cat.codes.to_numpy()
    return codes, [NOBODY if original[i] < 0 else names[original[i]] for i in firsts]


def _first_of(values: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Dense codes of values, and where each of them stands first."""
    _, firsts, codes = np.unique(values, return_index=True, return_inverse=True)
    return codes.astype(np.int64), firsts.astype(np.int64)


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
    codes, keys = memberships(runs, by)
    person = codes if by == "user" else people(runs)[0]
    bounds = _Bounds(envelope, rows, codes, person, question)
    all_clusters = sorted(records.complete)
    lists_all = inventory.lists_all(envelope, members, records.period[1])
    caps = capped_flop(envelope, rows, codes, len(keys), inventory)
    user_counts = _distinct_in(codes, person, len(keys))
    usage_s = envelope.usage_s(*records.window)[rows]
    gpu_seconds, gpu_unknown = _gpu_seconds(envelope, rows, codes, usage_s, len(keys))
    unnamed = keys.index(NOBODY) if NOBODY in keys else None
    found = []
    for g, key in enumerate(keys):
        # A run that is missing from the records may have been anybody's, on any cluster.
        clusters = [key] if by == "cluster" else all_clusters
        blockers = [reason for c in clusters for reason in records.blockers(c)]
        if bounds.open_members[g]:
            blockers.append(f"{bounds.open_members[g]} of its runs have no bound")
        capacity = total_capacity(inventory, clusters, lambda c: lists_all.get(c, False), *records.period)
        total, strict_total = _smaller(bounds.total[g], caps[g]), bounds.strict[g]
        if unnamed not in (None, g):
            with_unnamed = _plus(total, _smaller(bounds.total[unnamed], caps[unnamed]))
            strict_total = _plus(strict_total, bounds.strict[unnamed])
            below = total is not None and total < question.limit_flop
            if below and (with_unnamed is None or with_unnamed >= question.limit_flop):
                blockers.append(f"{bounds.jobs[unnamed]} runs name no {by}, and may be its own")
        bound = capacity if blockers or total is None else _smaller(total, capacity)
        complete = records.status(clusters)
        verdict = group_verdict(bound, question, open_reasons=len(blockers), complete=complete)
        fewest_jobs, fewest_users = (None, None) if verdict == RULED_OUT else bounds.fewest(g)
        strict = group_verdict(
            strict_total, question, open_reasons=len(blockers), complete=complete, strict=True
        )
        found.append(
            Group(
                by=by,
                key=key,
                jobs=int(bounds.jobs[g]),
                users=int(user_counts[g]),
                gpu_seconds=int(gpu_seconds[g]),
                gpu_unknown_jobs=int(gpu_unknown[g]),
                bound_flop=bound,
                capacity_flop=capacity,
                ratio=question.ratio(bound),
                verdict=verdict,
                verdict_strict=strict,
                fewest_jobs=fewest_jobs,
                fewest_users=fewest_users,
                records_complete=complete,
                reasons=tuple(blockers),
            )
        )
    rank = {verdict: n for n, verdict in enumerate(VERDICTS)}
    return sorted(
        found, key=lambda f: (rank[f.verdict], -(f.ratio if f.ratio is not None else 0.0), -f.jobs, f.key)
    )


def _smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two bounds on the same; None is no bound."""
    return min((f for f in (one, other) if f is not None), default=None)


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _gpu_seconds(
    envelope: Envelope, rows: Ints, codes: Ints, usage_s: Ints, groups: int
) -> tuple[list[int], Ints]:
    told = np.array([c.gpu_count is not None for c in envelope.claims] or [False])[envelope.code[rows]]
    known = told & (usage_s >= 0)
    frame = pd.DataFrame({"g": codes, "c": envelope.code[rows], "s": usage_s})[known]
    sums = [0] * groups
    for g, c, s in frame.groupby(["g", "c"])["s"].sum().reset_index().itertuples(index=False):
        sums[g] += int(s) * (envelope.claims[c].gpu_count or 0)
    return sums, np.bincount(codes[~known], minlength=groups)


def _distinct_in(codes: Ints, person: Ints, groups: int) -> Ints:
    """How many people each group has."""
    pairs = np.unique(np.stack([codes, person]), axis=1)
    return np.bincount(pairs[0], minlength=groups)


class _Bounds:
    """Exact sums of bounds by group, and the fewest members that reach the threshold."""

    def __init__(self, envelope: Envelope, rows: Ints, codes: Ints, person: Ints, question: Question) -> None:
        self._envelope, self._limit, self._groups = (
            envelope,
            question.limit_flop,
            int(codes.max(initial=-1)) + 1,
        )
        bounded = envelope.bounded[rows]
        self.jobs = np.bincount(codes, minlength=self._groups)
        self.open_members = np.bincount(codes[~bounded], minlength=self._groups)
        alone, self._merged = _merge_overlaps(envelope, rows, codes, person, bounded)
        self._rows, self._codes, self._person = rows[alone], codes[alone], person[alone]
        self.total = self._whole(self._codes, self._merged, strict=False)
        self.strict = self._whole(self._codes, self._merged, strict=True)

    def _whole(self, codes: Ints, merged: list[_Merged], *, strict: bool) -> list[int | None]:
        """Sums by code; None where a member has no bound."""
        release = self._envelope.release
        frame = pd.DataFrame(
            {
                "g": codes,
                "c": self._envelope.code[self._rows],
                "s": release.held_s[self._rows],
                "ok": (release.proven if strict else release.known)[self._rows],
            }
        )
        sums: list[int | None] = [0] * self._groups
        table = frame.groupby(["g", "c"]).agg(s=("s", "sum"), ok=("ok", "all")).reset_index()
        for g, c, s, ok in table.itertuples(index=False):
            claim = self._envelope.claims[c]
            flop_s = claim.strict_flop_s if strict else claim.total_flop_s
            known = sums[g]
            sums[g] = None if known is None or flop_s is None or not ok else known + int(s) * flop_s
        for one in merged:
            known = sums[one.group]
            sums[one.group] = None if known is None or strict else known + one.flop
        return sums

    def fewest(self, g: int) -> tuple[int | None, int | None]:
        """Fewest runs, and fewest people, of a group that together reach the threshold; one without a bound does."""
        if self.open_members[g]:
            return 1, 1
        total = self.total[g]
        if total is None or total < self._limit:
            return None, None
        mine = np.flatnonzero(self._codes == g)
        merged = [one for one in self._merged if one.group == g]
        return self._fewest_jobs(mine, merged), self._fewest_people(mine, merged)

    def _fewest_jobs(self, mine: Ints, merged: list[_Merged]) -> int | None:
        rows = self._rows[mine]
        by_size = rows[np.argsort(-self._envelope.magnitude(rows), kind="stable")]
        taken = EXACT_AT_ONCE
        while True:  # floats only choose the candidates; the sum that decides is exact
            bounds = [self._envelope.bound_flop(int(i)) or 0 for i in by_size[:taken]]
            found = _fewest(sorted([*bounds, *(one.flop for one in merged)], reverse=True), self._limit)
            if taken >= len(by_size) or (found is not None and found < taken - len(merged)):
                return found
            taken *= 4

    def _fewest_people(self, mine: Ints, merged: list[_Merged]) -> int | None:
        frame = pd.DataFrame(
            {
                "p": self._person[mine],
                "c": self._envelope.code[self._rows[mine]],
                "s": self._envelope.release.held_s[self._rows[mine]],
            }
        )
        by_person: dict[int, int] = {}
        sums = frame.groupby(["p", "c"], as_index=False)["s"].sum()
        for p, c, s in zip(*(sums[name].tolist() for name in ("p", "c", "s")), strict=True):
            by_person[p] = by_person.get(p, 0) + s * (self._envelope.claims[c].total_flop_s or 0)
        for one in merged:
            by_person[one.person] = by_person.get(one.person, 0) + one.flop
        return _fewest(sorted(by_person.values(), reverse=True), self._limit)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Rows of one allocation taken together."""

    group: int
    person: int
    flop: int


def _fewest(bounds: Iterable[int], limit: int) -> int | None:
    total = 0
    for n, flop in enumerate(bounds, start=1):
        total += flop
        if total >= limit:
            return n
    return None


def _merge_overlaps(
    envelope: Envelope, rows: Ints, codes: Ints, person: Ints, bounded: Bools
) -> tuple[Bools, list[_Merged]]:
    """Take the rows of one allocation that overlap in time together.

    Slurm 22.05 gives both records of a resized job the original Start, so a plain sum counts that time twice. Until the
    first of them ends the larger claim of all counts, from there on the larger of what is left.

    Returns:
        Which of `rows` stand alone, and the sets that were merged.
    """
    alone = np.ones(len(rows), dtype=bool)
    merged: list[_Merged] = []
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
        merged.append(_Merged(int(codes[index[0]]), int(person[index[0]]), flop))
    return alone, merged
