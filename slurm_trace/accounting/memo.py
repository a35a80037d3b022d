"""Functions of one text that remember their results: most cells of an export repeat."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Stands for a cell that only the row as a whole can judge. It equals nothing, itself included.
ODD = math.nan

_SIZE = 65_536


class Memo(dict[str, T], Generic[T]):
    """Results of a function by its argument, forgotten all at once when there are too many."""

    def __init__(self, function: Callable[[str], T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, text: str) -> T:
        if len(self) >= _SIZE:
            self.clear()
        value = self[text] = self._function(text)
        return value

    def column(self, texts: list[str]) -> list[T]:
        """The results for a whole column."""
        return list(map(self.__getitem__, texts))


def or_odd(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """The function with ODD in place of an error and of None."""

    def call(text: str) -> Any:
        try:
            value = function(text)
        except ValueError:
            return ODD
        return ODD if value is None else value

    return call
