"""Insert many rows the way each database does it fastest: driver tuples, COPY, multi-row INSERT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.exc import DBAPIError

PARAMETERS = 5_000
"""Values in one IN list: below the limits of every database, large enough to make the round trip cheap."""


def insert_rows(
    connection: Connection, table: Table, columns: tuple[str, ...], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert tuples of plain values.

    Args:
        connection: Inside a transaction.
        table: Where to.
        columns: Names, in the order of the values.
        rows: The tuples.

    Raises:
        DBAPIError: As any statement does.
        OverflowError, UnicodeError: SQLite's and MariaDB's drivers, for a value that no column can hold.
    """
    statement = _statement(table, columns, connection.dialect)
    if connection.dialect.name != "postgresql":
        values = list(rows)
        if values:
            connection.exec_driver_sql(statement, values)  # type: ignore[arg-type]
        return
    cursor: Any = connection.connection.cursor()
    try:
        with cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:  # type: ignore[attr-defined]
        raise DBAPIError(statement, None, error) from error
    finally:
        cursor.close()


@cache
def _statement(table: Table, columns: tuple[str, ...], dialect: Dialect) -> str:
    quote = dialect.identifier_preparer.quote
    names = ", ".join(map(quote, columns))
    if dialect.name == "postgresql":
        return f"COPY {quote(table.name)} ({names}) FROM STDIN"
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    return f"INSERT INTO {quote(table.name)} ({names}) VALUES ({', '.join([mark] * len(columns))})"  # noqa: S608


def in_chunks(values: Iterable[Any], size: int = PARAMETERS) -> Iterable[list[Any]]:
    """Cut a collection into lists that fit one statement."""
    everything = list(values)
    for i in range(0, len(everything), size):
        yield everything[i : i + size]
