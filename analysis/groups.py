"""The question asked of groups: runs are split over jobs, so what counts is what a cluster, an account or a user did.

A group that contains another and is ruled out rules that one out too, so most audits end in the first line.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.capacity import Inventory, capped_flop, total_capacity
from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.exact import Bools, Ints
from slurm_trace.analysis.group import NO_TERMS, Group, Terms
from slurm_trace.analysis.group_columns import GroupColumns, Scope
from slurm_trace.analysis.memberships import BY, By, Membership, memberships
from slurm_trace.analysis.names import RunNames
from slurm_trace.analysis.people import NOBODY, people
from slurm_trace.analysis.records import Records
from slurm_trace.analysis.sliding import Windows, worst_windows
from slurm_trace.analysis.sums import items
from slurm_trace.analysis.verdicts import RULED_OUT, VERDICTS, Question

__all__ = [
    "BY", "NOBODY", "NO_TERMS", "By", "Group", "Grouping", "Groups", "Records", "Terms", "groups", "people",
]  # fmt: skip


class Groups(Sequence[Group]):
    """All groups of one kind, the ones that can't be ruled out first. Each is put together when it is asked for."""

    def __init__(self, columns: GroupColumns) -> None:
        self._columns, self._order = columns, columns.order()

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> list[Group]: ...
    def __getitem__(self, index: int | slice) -> Group | list[Group]:
        if isinstance(index, slice):
            return [self._columns.group(int(g)) for g in self._order[index]]
        return self._columns.group(int(self._order[index]))

    @property
    def reaching(self) -> Ints:
        """Positions of the runs whose group is not ruled out and can have reached T by what is on record of it."""
        return self._columns.reaching()

    def tally(self, *, strict: bool = False) -> dict[str, int]:
        """Groups by verdict."""
        return _tally(self._columns.strict_verdicts if strict else self._columns.verdicts)

    def tally_with_base(self) -> dict[str, int] | None:
        """Groups by verdict, each together with the base model; None where none is given."""
        codes = self._columns.verdicts_with_base
        return None if codes is None else _tally(codes)


def _tally(codes: npt.NDArray[np.integer[Any]]) -> dict[str, int]:
    found = np.bincount(codes, minlength=len(VERDICTS))
    return {name: int(n) for name, n in zip(VERDICTS, found, strict=True)}


class Grouping:
    """One question to groups of every kind; what is the same for all of them is worked out once.

    Args: as those of `groups`.
    """

    def __init__(
        self,
        envelope: Envelope,
        members: Bools,
        question: Question,
        records: Records,
        inventory: Inventory,
        terms: Terms = NO_TERMS,
    ) -> None:
        self.envelope, self.rows, self.question = envelope, np.flatnonzero(members), question
        self.records, self.inventory, self.terms = records, inventory, terms
        self.names = RunNames(envelope.runs)
        self.person, self.labels = people(envelope.runs[["cluster", "user", "uid"]].iloc[self.rows])
        self._inventoried = any(inventory.knows(name) for name in records.complete)
        self._lists_all = (
            inventory.lists_all(envelope, members, records.period[1]) if self._inventoried else {}
        )

    @cached_property
    def whole(self) -> GroupColumns:
        """All runs together."""
        return self._columns("all", None)

    @property
    def everything_ruled_out(self) -> bool:
        """All runs together are, and so is every group of them. Without a run there is nothing to rule out."""
        return [VERDICTS[code] for code in self.whole.verdicts.tolist()] == [RULED_OUT]

    def among(self, chosen: Bools) -> Grouping:
        """The same question to groups of some of these runs; what holds for all of them stays as it is.

        Args:
            chosen: One entry a run of `rows`. Only groups of which it has every run come out as among all.
        """
        some = copy(self)
        some.__dict__.pop("whole", None)
        some.rows, some.person = self.rows[chosen], self.person[chosen]
        return some

    def groups(self, by: By) -> Groups:
        """All groups of one kind. All runs together come first: if they are ruled out, so is every group."""
        return Groups(self.whole if by == "all" else self._columns(by, self.whole))

    def caps(self, rows: Ints, codes: Ints, size: int) -> list[int | None]:
        """For each group the most that the nodes of its runs can have done."""
        if not self._inventoried:
            return [None] * size
        return capped_flop(self.envelope, rows, codes, size, self.inventory)

    def _columns(self, by: By, whole: GroupColumns | None) -> GroupColumns:
        group = memberships(self.envelope, self.rows, by, (self.person, self.labels), self.terms.pause_s)
        rows, person, windows = self.rows, self.person, None
        if self.terms.within_s is not None:
            chosen, windows = self._within(group, self.terms.within_s)
            rows, person = rows[chosen], person[chosen]
            group = replace(group, codes=group.codes[chosen])
        return GroupColumns(self, by, group, rows, person, windows, whole)

    def scope(self, clusters: Sequence[str]) -> Scope:
        """What holds for every group over these clusters."""
        records = self.records
        return Scope(
            blockers=tuple(reason for c in clusters for reason in records.blockers(c)),
            status=records.status(clusters),
            capacity_flop=total_capacity(
                self.inventory, clusters, lambda c: self._lists_all.get(c, False), *records.period
            ),
            unattributed_flop=sum(records.unattributed.get(c, 0) for c in clusters),
        )

    def _within(self, group: Membership, length_s: int) -> tuple[Bools, Windows]:
        """Members that touch the worst window of their group; all of them where one has no bound."""
        envelope, rows, codes = self.envelope, self.rows, group.codes
        is_open = np.bincount(codes[~envelope.bounded[rows]], minlength=group.size) > 0
        summed = items(envelope, rows, codes)
        use = summed.timed & ~is_open[summed.codes]
        windows = worst_windows(
            summed.codes[use],
            group.size,
            summed.begin[use],
            summed.end[use],
            summed.amounts.take(use),
            length_s,
        )
        start = envelope.runs["start"].iloc[rows]
        begin = start.fillna(0).to_numpy(dtype=np.int64)
        end = begin + envelope.release.held_s[rows]
        return windows.touched(codes, begin, end, start.notna().to_numpy(dtype=bool)), windows


def groups(
    envelope: Envelope,
    members: Bools,
    by: By,
    question: Question,
    records: Records,
    inventory: Inventory,
    terms: Terms = NO_TERMS,
) -> Groups:
    """All groups of one kind, the ones that can't be ruled out first.

    All runs together come first: if they are ruled out, so is every group, and its sum is all that is worked out.

    Args:
        envelope: The bounds of the runs.
        members: Runs that the question is about (started ones only).
        by: The kind of group.
        question: The threshold, the basis and the margin.
        records: What is known of the records as a whole.
        inventory: Operations a second of the nodes of the site profile.
        terms: What else decides what is asked.
    """
    return Grouping(envelope, members, question, records, inventory, terms).groups(by)
