"""Seeded choices that are the same on every machine and every Python."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")


class Draw:
    """The random stream of one instance: another family or another number draws from another stream.

    Only `random.Random.random` is used: of all its methods it alone is promised to give the same values for a seed in
    every version of Python.
    """

    def __init__(self, seed: int, family: str, number: int) -> None:
        self._random = random.Random(f"{seed}/{family}/{number}").random  # noqa: S311 - not for secrets

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, choices: Sequence[_T]) -> _T:
        """One of the choices."""
        return choices[self.between(0, len(choices) - 1)]

    def parts(self, total: int, count: int) -> list[int]:
        """`count` integers of at least 1 that add up to `total`, none more than about three times another."""
        weights = [self.between(100, 300) for _ in range(count)]
        found = [max(1, total * w // sum(weights)) for w in weights]
        found[0] += total - sum(found)
        return found


def along(number: int, *axes: Sequence[Any]) -> tuple[Any, ...]:
    """The point of a grid with this number; the first axis turns fastest, and the grid begins again at its end."""
    point, rest = [], number % math.prod(len(axis) for axis in axes)
    for axis in axes:
        rest, at = divmod(rest, len(axis))
        point.append(axis[at])
    return tuple(point)
