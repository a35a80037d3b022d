"""Groups of one kind, as columns: a million of them cost little until one is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.components import dense
from slurm_trace.analysis.exact import Bools, Exact, Ints
from slurm_trace.analysis.fewest import Fewest, fewest
from slurm_trace.analysis.group import Group
from slurm_trace.analysis.memberships import OWNED, By, Membership
from slurm_trace.analysis.sliding import Windows
from slurm_trace.analysis.sums import items
from slurm_trace.analysis.tracking import Status
from slurm_trace.analysis.verdicts import RULED_OUT, VERDICTS, group_verdict

if TYPE_CHECKING:
    from slurm_trace.analysis.groups import Grouping


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds for all groups over the same clusters."""

    blockers: tuple[str, ...]
    status: Status
    capacity_flop: int | None
    unattributed_flop: int


@dataclass(frozen=True, slots=True)
class GroupBound:
    """A bound a group, where one is known."""

    flop: Exact
    known: Bools

    def __getitem__(self, g: int) -> int | None:
        return self.flop[g] if self.known[g] else None

    def ints(self) -> list[int | None]:
        """One entry a group."""
        return [
            flop if known else None for flop, known in zip(self.flop.ints(), self.known.tolist(), strict=True)
        ]

    def below(self, limit: Exact) -> Bools:
        """Groups that have a bound, and it is less than the limit."""
        return self.known & self.flop.below(limit)

    def capped(self, caps: Sequence[int | None]) -> GroupBound:
        """The smaller of two bounds on the same, either of which may be missing."""
        given = np.array([cap is not None for cap in caps], dtype=bool)
        if not given.any():
            return self
        other = Exact.of([cap or 0 for cap in caps])
        smaller = np.flatnonzero(given & (~self.known | other.below(self.flop)))
        return GroupBound(self.flop.replaced(smaller, other.take(smaller)), self.known | given)

    def plus(self, more: Exact) -> GroupBound:
        """The bounds and as much more."""
        return GroupBound(self.flop + more, self.known)

    def with_rest(self, unnamed: Bools, more_flop: int) -> GroupBound:
        """Each group together with all that is nobody's: the unnamed groups, and what no run accounts for."""
        rest = sum(self.flop.take(unnamed).ints()) + more_flop
        own = Exact(np.where(unnamed, 0, self.flop.digits))
        return GroupBound(own + Exact.of([rest]), (self.known | unnamed) & bool(self.known[unnamed].all()))


class GroupColumns:
    """One entry a group of everything that decides its verdict."""

    def __init__(
        self,
        asked: Grouping,
        by: By,
        group: Membership,
        rows: Ints,
        person: Ints,
        windows: Windows | None,
        whole: GroupColumns | None,
    ) -> None:
        self._asked, self._by, self._group, self._windows = asked, by, group, windows
        self._rows, self._person, self._size = rows, person, group.size
        envelope, codes, size = asked.envelope, group.codes, group.size
        self._limit = Exact.of([asked.question.limit_flop])
        clusters = sorted(asked.records.complete)
        # A run that is missing from the records may have been anybody's, on any cluster.
        by_cluster = by == "cluster"
        self._scopes = [
            asked.scope([group.key(g)] if by_cluster else clusters) for g in range(size if by_cluster else 1)
        ]
        self._scope = np.arange(size) if by_cluster else np.zeros(size, dtype=np.int64)

        bounded = envelope.bounded[rows]
        self._jobs = np.bincount(codes, minlength=size)
        self._open = np.bincount(codes[~bounded], minlength=size)
        self._first_open = np.full(size, -1, dtype=np.int64)
        self._first_open[codes[~bounded][::-1]] = np.flatnonzero(~bounded)[::-1]
        pairs = np.unique(dense(codes, person), return_index=True)[1]
        self._users = np.bincount(codes[pairs], minlength=size)
        self._summed = items(envelope, rows, codes)
        self._use()

        ruled_out = whole is not None and asked.everything_ruled_out
        caps = [None] * size if ruled_out else asked.caps(rows, codes, size)
        sums = GroupBound(self._summed.amounts.sums(self._summed.codes, size), self._open == 0).capped(caps)
        strict_open = np.bincount(codes[~envelope.strictly_bounded[rows]], minlength=size) > 0
        strict_open[self._summed.merged] = True
        strict = GroupBound(envelope.exact(rows, strict=True).sums(codes, size), ~strict_open)
        unattributed = [scope.unattributed_flop for scope in self._scopes]
        if by in ("all", "cluster"):
            seen = Exact.of(unattributed).take(self._scope)
            sums, strict = sums.plus(seen), strict.plus(seen)
            self._may_be_own = np.zeros(size, dtype=bool)
        else:
            # What names no user, and what no run accounts for, may be any group's own.
            unnamed = group.unnamed if by in OWNED else np.zeros(size, dtype=bool)
            self._unnamed_jobs = int(self._jobs[unnamed].sum())
            with_rest, strict = (
                sums.with_rest(unnamed, sum(unattributed)),
                strict.with_rest(unnamed, sum(unattributed)),
            )
            self._may_be_own = sums.below(self._limit) & ~with_rest.below(self._limit)
        self._blocked = (self._open > 0) | self._may_be_own
        self._blocked |= np.array([bool(scope.blockers) for scope in self._scopes] or [False])[self._scope]
        capacity = [scope.capacity_flop for scope in self._scopes]
        bound = GroupBound(sums.flop, sums.known & ~self._blocked).capped(
            [capacity[i] for i in self._scope.tolist()]
        )
        self.bound: GroupBound = (
            bound if not ruled_out or whole is None else bound.capped([whole.bound.ints()[0]] * size)
        )
        self.verdicts = self._verdicts(self.bound)
        self.strict_verdicts = self._verdicts(strict, strict=True)
        base_flop = asked.terms.base_flop
        self.verdicts_with_base = (
            None if base_flop is None else self._verdicts(self.bound.plus(Exact.of([base_flop])))
        )

    def reaching(self) -> Ints:
        """Positions of the runs of groups that have a number of fewest runs: a run without a bound does it alone."""
        open_ = self.verdicts != VERDICTS.index(RULED_OUT)
        below = self._summed.amounts.sums(self._summed.codes, self._size).below(self._limit)
        reaching: Ints = self._rows[(open_ & ((self._open > 0) | ~below))[self._group.codes]]
        return reaching

    def order(self) -> Ints:
        """Groups, the ones that can't be ruled out first; then by bound, by number of runs, by key."""
        shown = np.where(self.bound.known, self.bound.flop.digits, 0)
        keys = [-digits for digits in shown]
        order: Ints = np.lexsort((-self._jobs, *keys, self.verdicts))
        return order

    def group(self, g: int) -> Group:
        """Everything there is to say of one group."""
        question, scope = self._asked.question, self._scopes[int(self._scope[g])]
        bound = self.bound[g]
        reasons = self._reasons(g, scope)
        jobs, users = self._listed(g)
        base = self._asked.terms.base_flop
        with_base = None if base is None or bound is None else bound + base
        return Group(
            by=self._by,
            key=self._group.key(g),
            label=self._group.label(g),
            worst_window=self._worst_window(g),
            jobs=int(self._jobs[g]),
            users=int(self._users[g]),
            gpu_seconds=self._gpu_seconds[g],
            gpu_unknown_jobs=int(self._gpu_unknown[g]),
            bound_flop=bound,
            unattributed_flop=scope.unattributed_flop,
            capacity_flop=scope.capacity_flop,
            ratio=question.ratio(bound),
            verdict=VERDICTS[self.verdicts[g]],
            verdict_strict=VERDICTS[self.strict_verdicts[g]],
            bound_with_base_flop=with_base,
            ratio_with_base=question.ratio(with_base),
            verdict_with_base=None
            if self.verdicts_with_base is None
            else VERDICTS[self.verdicts_with_base[g]],
            fewest_jobs=jobs[0],
            fewest_jobs_list=jobs[1],
            fewest_users=users[0],
            fewest_users_list=users[1],
            records_complete=scope.status,
            reasons=reasons,
        )

    def _worst_window(self, g: int) -> dict[str, int] | None:
        windows = self._windows
        if windows is None or not windows.found[g]:
            return None
        return {"since": int(windows.since[g]), "until": int(windows.since[g]) + windows.length_s}

    def _reasons(self, g: int, scope: Scope) -> tuple[str, ...]:
        reasons = list(scope.blockers)
        if self._open[g]:
            reasons.append(f"{self._open[g]} of its runs have no bound")
        if self._may_be_own[g]:
            others = self._unnamed_jobs - (int(self._jobs[g]) if self._group.unnamed[g] else 0)
            if others:
                reasons.append(f"{others} runs name no {OWNED[self._by]}, and may be its own")
            if scope.unattributed_flop:
                reasons.append(
                    f"{scope.unattributed_flop} operations were seen while no run held the card, and may be its own"
                )
        return tuple(reasons)

    def _use(self) -> None:
        """GPU-seconds inside the window that was asked for, and inside the worst one."""
        envelope, rows, codes = self._asked.envelope, self._rows, self._group.codes
        since, until = self._asked.records.window
        used_s = envelope.usage_s(since, until)
        if self._windows is not None:
            inner = np.zeros((2, len(envelope)), dtype=np.int64)
            inner[0, rows] = np.where(self._windows.found[codes], self._windows.since[codes], 0)
            inner[1, rows] = np.where(
                self._windows.found[codes], inner[0, rows] + self._windows.length_s, np.iinfo(np.int64).max
            )
            used_s = envelope.usage_s(
                inner[0] if since is None else np.maximum(inner[0], since),
                inner[1] if until is None else np.minimum(inner[1], until),
            )
        used_s = used_s[rows]
        told = np.array([c.gpu_count is not None for c in envelope.claims] or [False])[envelope.code[rows]]
        known = told & (used_s >= 0)
        counts = [c.gpu_count or 0 for c in envelope.claims]
        seconds = Exact.products(np.where(known, used_s, 0), counts, envelope.code[rows])
        self._gpu_seconds = seconds.sums(codes, self._size).ints()
        self._gpu_unknown = np.bincount(codes[~known], minlength=self._size)

    def _verdicts(self, bound: GroupBound, *, strict: bool = False) -> npt.NDArray[np.int8]:
        """The verdict of every group; few cases stand for all of them."""
        question = self._asked.question
        cases, case_of = np.unique(
            np.stack([bound.known, bound.below(self._limit), self._blocked, self._scope]),
            axis=1,
            return_inverse=True,
        )
        found = [
            VERDICTS.index(
                group_verdict(
                    None if not known else 0 if below else question.limit_flop,
                    question,
                    open_reasons=int(blocked),
                    complete=self._scopes[int(scope)].status,
                    strict=strict,
                )
            )
            for known, below, blocked, scope in cases.T.tolist()
        ]
        return np.array(found, dtype=np.int8)[case_of.reshape(-1)]

    @cached_property
    def _fewest(self) -> tuple[Fewest, Ints, Fewest, Ints]:
        """Of the groups that are left: fewest runs and fewest users, each with what their positions stand for."""
        left = (self.verdicts != VERDICTS.index(RULED_OUT)) & (self._open == 0)
        left &= ~self._summed.amounts.sums(self._summed.codes, self._size).below(self._limit)
        use = left[self._summed.codes]
        codes, amounts, at = self._summed.codes[use], self._summed.amounts.take(use), self._summed.at[use]
        limit = self._asked.question.limit_flop
        pair = dense(codes, self._person[at])
        firsts = np.unique(pair, return_index=True)[1]
        of_users = fewest(codes[firsts], self._size, amounts.sums(pair, len(firsts)), limit)
        return fewest(codes, self._size, amounts, limit), at, of_users, at[firsts]

    def _listed(
        self, g: int
    ) -> tuple[tuple[int | None, tuple[str, ...]], tuple[int | None, tuple[str, ...]]]:
        if VERDICTS[self.verdicts[g]] == RULED_OUT:
            return (None, ()), (None, ())
        if self._open[g]:
            at = int(self._first_open[g])
            return (1, (self._run(at),)), (1, (self._user(at),))
        of_jobs, job_at, of_users, user_at = self._fewest
        return (
            (int(of_jobs.count[g]) or None, tuple(self._run(int(job_at[i])) for i in of_jobs.members(g))),
            (int(of_users.count[g]) or None, tuple(self._user(int(user_at[i])) for i in of_users.members(g))),
        )

    def _run(self, at: int) -> str:
        return self._asked.names[int(self._rows[at])]

    def _user(self, at: int) -> str:
        return self._asked.labels[int(self._person[at])]
