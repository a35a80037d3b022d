"""The fewest runs, or users, whose bounds together reach the threshold, for every group at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_trace.analysis.exact import Exact, Ints

LISTED = 100
"""Of the fewest runs or users no more than this many are named; the number itself is always whole."""


@dataclass(frozen=True, slots=True)
class Fewest:
    """The answer for every group.

    Attributes:
        count: How many it takes; 0 where all together do not reach it.
    """

    count: Ints
    _first: Ints
    _order: Ints

    def members(self, group: int) -> list[int]:
        """The largest of them, at most LISTED, as positions in what was given."""
        first = int(self._first[group])
        return [int(i) for i in self._order[first : first + min(int(self.count[group]), LISTED)]]


def fewest(codes: Ints, groups: int, amounts: Exact, limit_flop: int) -> Fewest:
    """Take the largest of each group first, until the limit is reached.

    Args:
        codes: Group of each amount.
        groups: Number of groups.
        amounts: What each can have done.
        limit_flop: What is to be reached.
    """
    smallest_first = np.lexsort(amounts.digits)[::-1]
    order = smallest_first[np.argsort(codes[smallest_first], kind="stable")]
    sizes = np.bincount(codes, minlength=groups)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    running = amounts.take(order).running()
    # What the groups before it came to, on top of the limit: that far the running sum has to get.
    sums = amounts.sums(codes, groups)
    before = sums.running() + sums.negated() + Exact.of([limit_flop])
    reached = ~running.below(before.take(codes[order]))
    place = np.arange(len(order)) - first[codes[order]] + 1
    count = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(count, codes[order][reached], place[reached])
    return Fewest(np.where(count > sizes, 0, count), first, order)
