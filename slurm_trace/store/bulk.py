"""Insert many rows the way each database does it fastest: driver tuples, COPY, multi-row INSERT."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Dialect, Table
from sqlalchemy.exc import DBAPIError

PARAMETERS = 900
"""Values in one IN list: SQLite before 3.32 takes 999 a statement."""

NO_INTEGER = -(2**63) + 1
"""Stands for NULL among integers: no value may be that small."""

_NO_TEXT = "\0"
"""Stands for NULL among texts: no text may hold it."""


def insert_rows(
    connection: Connection, table: Table, columns: tuple[str, ...], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert a few rows.

    Args:
        connection: Inside a transaction.
        table: Where to.
        columns: Names, in the order of the values.
        rows: Tuples of plain values.
    """
    _insert(connection, table, columns, rows, {})


def insert_columns(connection: Connection, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
    """Insert many rows, given column by column.

    Args:
        connection: Inside a transaction.
        table: Where to.
        columns: The values of each column; all of one length.

    Raises:
        DBAPIError: As any statement does.
        OverflowError, UnicodeError: The driver's, for a value that no column can hold.
    """
    given: dict[str, Sequence[Any]] = {}
    stand_ins: dict[str, str] = {}
    for name, values in columns.items():
        if values[0] is None and values.count(None) == len(values):
            # NULL is what a column holds that nothing is inserted into.
            continue
        given[name] = values
        if connection.dialect.name == "sqlite":
            given[name], stand_in = _quick_to_bind(table, name, values)
            if stand_in:
                stand_ins[name] = stand_in
    _insert(connection, table, tuple(given), zip(*given.values(), strict=True), stand_ins)


def in_chunks(values: Iterable[Any], size: int = PARAMETERS) -> Iterator[list[Any]]:
    """Cut a collection into lists that fit one statement."""
    everything = list(values)
    for i in range(0, len(everything), size):
        yield everything[i : i + size]


def _quick_to_bind(table: Table, name: str, values: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
    """The same values as types that sqlite3 binds at once, and the SQL that turns the stand-in into NULL.

    For None and bool the driver looks for an adapter each time, which takes longer than the rest of the row.
    """
    kind = table.c[name].type
    if isinstance(kind, Boolean):
        return list(map(int, values)), None
    if isinstance(values, range) or None not in values:
        return values, None
    if isinstance(kind, BigInteger):
        return [NO_INTEGER if v is None else v for v in values], f"nullif(?, {NO_INTEGER})"
    return [_NO_TEXT if v is None else v for v in values], "nullif(?, char(0))"


def _insert(
    connection: Connection,
    table: Table,
    columns: tuple[str, ...],
    rows: Iterable[Sequence[Any]],
    stand_ins: Mapping[str, str],
) -> None:
    dialect = connection.dialect
    statement = _statement(table, columns, dialect, tuple(stand_ins.items()))
    if dialect.name == "mariadb":
        values = list(rows)
        if values:
            connection.exec_driver_sql(statement, values)
        return
    # The driver's own cursor: SQLAlchemy would look at every row once more.
    cursor: Any = connection.connection.cursor()
    try:
        if dialect.name == "postgresql":
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        else:
            cursor.executemany(statement, rows)
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(statement, None, error, dialect.loaded_dbapi.Error) from error
    finally:
        cursor.close()


@cache
def _statement(
    table: Table, columns: tuple[str, ...], dialect: Dialect, stand_ins: tuple[tuple[str, str], ...]
) -> str:
    quote = dialect.identifier_preparer.quote
    names = ", ".join(map(quote, columns))
    if dialect.name == "postgresql":
        return f"COPY {quote(table.name)} ({names}) FROM STDIN"
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    marks = ", ".join(dict(stand_ins).get(name, mark) for name in columns)
    return f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})"  # noqa: S608
