"""Integer columns of many rows as one array: a million row objects would take a gigabyte, and most of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Column, Connection, func, literal, select

from slurm_trace.store.bulk import NO_INTEGER

_AT_ONCE = 20_000


def load_numbers(connection: Connection, columns: Sequence[Column[int]]) -> npt.NDArray[np.int64]:
    """All rows of a table, NO_INTEGER for NULL, in the order of its primary key.

    Args:
        connection: To read with.
        columns: Of one table.

    Returns:
        An array of one row a row and one column a column.
    """
    query = select(*map(_selected, columns)).order_by(*columns[0].table.primary_key.columns)
    parts = [
        np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(columns))
        for rows in _fetched(connection, query)
    ]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts]).reshape(-1, len(columns))


def _selected(column: Column[int]) -> Any:
    if not column.nullable:
        return column
    return func.coalesce(column, literal(NO_INTEGER, column.type, literal_execute=True))


def _fetched(connection: Connection, query: Any) -> Iterator[Sequence[Any]]:
    """The driver's own tuples, some at a time."""
    cursor: Any = connection.execute(query).cursor
    while rows := cursor.fetchmany(_AT_ONCE):
        yield rows
