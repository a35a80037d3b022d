"""Columns of exact integers of any size, kept as digits in arrays, so that a million bounds are summed without a loop.

A bound passes 2^64, and a float that is summed a million times is no bound. A digit has 24 bits: seconds (37 bits, see
`release.LONGEST_S`) times a digit fit into 64 bits, and so does the sum of 2^39 digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DIGIT_BITS = 24
_MASK = (1 << DIGIT_BITS) - 1


@dataclass(frozen=True, slots=True)
class Exact:
    """A column of integers.

    Attributes:
        digits: Shape (digits, values), lowest digit first, each below 2^24 except the last, which holds the sign.
    """

    digits: Ints

    def __len__(self) -> int:
        return int(self.digits.shape[1])

    def __getitem__(self, i: int) -> int:
        return sum(int(d) << DIGIT_BITS * k for k, d in enumerate(self.digits[:, i]))

    def __add__(self, other: Exact) -> Exact:
        """Value by value; a column of one value is added to each."""
        (size,) = np.broadcast_shapes((len(self),), (len(other),))
        total = np.zeros((max(len(self.digits), len(other.digits)), size), dtype=np.int64)
        total[: len(self.digits)] += self.digits
        total[: len(other.digits)] += other.digits
        return _carried(total)

    @classmethod
    def of(cls, values: Iterable[int]) -> Exact:
        """A column of these integers, each at least 0."""
        listed = list(values)
        if not any(listed):
            return cls(np.zeros((1, len(listed)), dtype=np.int64))
        count = max((v.bit_length() for v in listed), default=0) // DIGIT_BITS + 1
        digits = [[v >> DIGIT_BITS * k & _MASK for v in listed] for k in range(count)]
        return cls(np.array(digits, dtype=np.int64).reshape(count, len(listed)))

    @classmethod
    def products(cls, seconds: Ints, rates: Sequence[int], code: Ints) -> Exact:
        """seconds[i] x rates[code[i]] for every i, all at least 0."""
        digits = np.take(cls.of(rates or [0]).digits, code, axis=1)
        digits *= seconds
        return _carried(digits)

    def take(self, rows: npt.NDArray[Any]) -> Exact:
        """Some of the values, by position or by mask."""
        return Exact(np.take(self.digits, np.flatnonzero(rows) if rows.dtype == bool else rows, axis=1))

    def replaced(self, rows: Ints, values: Exact) -> Exact:
        """The same column with other values at these positions."""
        digits = np.zeros((max(len(self.digits), len(values.digits)), len(self)), dtype=np.int64)
        digits[: len(self.digits)] = self.digits
        digits[:, rows] = 0
        digits[: len(values.digits), rows] = values.digits
        return Exact(digits)

    def sums(self, codes: Ints, groups: int) -> Exact:
        """The sum of each group's values. Sums of digits stay below 2^53, so the floats inside are exact."""
        sums = [np.bincount(codes, weights=d, minlength=groups) for d in self.digits]
        return _carried(np.array(sums).astype(np.int64).reshape(len(self.digits), groups))

    def negated(self) -> Exact:
        """The values with the other sign."""
        return Exact(-self.digits)

    def running(self) -> Exact:
        """Sums of all values up to each."""
        return _carried(np.cumsum(self.digits, axis=1))

    def below(self, other: Exact) -> Bools:
        """Which values are less than the other's, a column of one value standing for a limit (none below 0)."""
        found = np.zeros(np.broadcast_shapes((len(self),), (len(other),)), dtype=bool)
        for k in range(
            max(len(self.digits), len(other.digits))
        ):  # the highest that differs comes last and decides
            mine = self.digits[k] if k < len(self.digits) else 0
            theirs = other.digits[k] if k < len(other.digits) else 0
            found = np.where(mine == theirs, found, mine < theirs)
        return found

    def largest(self, codes: Ints, groups: int) -> Ints:
        """Where the largest value of each group stands first; -1 for a group without one.

        Args:
            codes: Group of each value, in ascending order.
            groups: Number of groups.
        """
        where = np.full(groups, -1, dtype=np.int64)
        if not len(self):
            return where
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        size = np.diff(starts, append=len(codes))
        running = np.ones(len(codes), dtype=bool)
        lowest = np.iinfo(np.int64).min
        for digit in self.digits[::-1]:
            left = np.where(running, digit, lowest)
            running &= left == np.repeat(np.maximum.reduceat(left, starts), size)
        at = np.flatnonzero(running)[::-1]
        where[codes[at]] = at
        return where

    def floats(self) -> npt.NDArray[np.float64]:
        """The values as floats, for pictures and orders of size."""
        scale = 2.0 ** (DIGIT_BITS * np.arange(len(self.digits)))
        found: npt.NDArray[np.float64] = scale @ self.digits
        return found

    def ints(self) -> list[int]:
        """The values as Python integers."""
        total = np.zeros(len(self), dtype=object)
        for k in range(0, len(self.digits), 2):
            pair = self.digits[k : k + 2]
            joined = pair[0] + (pair[1] << DIGIT_BITS) if len(pair) == 2 else pair[0]
            total += joined.astype(object) << DIGIT_BITS * k
        return list(total)


def concatenated(parts: Sequence[Exact]) -> Exact:
    """One column after the other."""
    digits = np.zeros((max(len(p.digits) for p in parts), sum(map(len, parts))), dtype=np.int64)
    at = 0
    for part in parts:
        digits[: len(part.digits), at : at + len(part)] = part.digits
        at += len(part)
    return Exact(digits)


def _carried(digits: Ints) -> Exact:
    """Bring digits (of either sign) into their range; a last digit is added while one is needed."""
    last = len(digits) - 1
    for k in range(last):
        digits[k + 1] += digits[k] >> DIGIT_BITS
        digits[k] &= _MASK
    while digits.size and bool((np.abs(digits[-1]) > _MASK).any()):
        digits = np.concatenate([digits, digits[-1:] >> DIGIT_BITS])
        digits[-2] &= _MASK
    return Exact(digits)
