"""The window of a given length whose runs' bounds sum highest. A run that touches the window counts whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_trace.analysis.exact import Bools, Exact, Ints, concatenated


@dataclass(frozen=True, slots=True)
class Windows:
    """The worst window of each group.

    Attributes:
        since: Where it begins; it ends `length_s` later.
        found: Groups that have one: at least one of their runs has a time.
    """

    since: Ints
    found: Bools
    length_s: int

    def touched(self, codes: Ints, begin: Ints, end: Ints, timed: Bools) -> Bools:
        """Runs that touch the window of their group. What has no time, or no window, always does."""
        since = self.since[codes]
        inside = (begin < since + self.length_s) & (end > since)
        touched: Bools = inside | ~timed | ~self.found[codes]
        return touched


def worst_windows(codes: Ints, groups: int, begin: Ints, end: Ints, amounts: Exact, length_s: int) -> Windows:
    """Find the worst window of each group, exactly, with one sort and one pass.

    A window [t, t + length) is touched by the runs with begin < t + length and end > t, that is for t from
    begin - length + 1 to end - 1. The sum changes nowhere else, so its maxima stand where a run comes in.

    Args:
        codes: Group of each run.
        groups: Number of groups.
        begin: Start of each run (epoch).
        end: Its release.
        amounts: Its bound.
        length_s: Length of the window, at least 1.
    """
    comes, goes = begin - length_s + 1, end
    at = np.concatenate([comes, goes])
    group = np.concatenate([codes, codes])
    enters = np.repeat([1, 0], len(codes))  # at the same moment who leaves goes first
    order = np.lexsort((2 * at + enters, group))
    total = concatenated([amounts, amounts.negated()]).take(order).running()
    group, at = group[order], at[order]
    # All of a group that came has gone before the next one begins, so one running sum serves them all.
    best = total.largest(group, groups)
    found = best >= 0
    since = np.zeros(groups, dtype=np.int64)
    # The same runs are touched until the next one comes or goes; midway as much of them as can be lies inside.
    first, last = at[best[found]], at[best[found] + 1] - 1
    since[found] = (first + np.maximum(last, first)) // 2
    return Windows(since, found, length_s)
