"""What the analysis reads of the feeds: the charges column by column, and the rows that could not be read."""

from __future__ import annotations

from typing import Any

import pandas as pd
from sqlalchemy import func, select

from slurm_trace.store.engine import Store
from slurm_trace.store.models import feed_charge, feed_reject

CHARGE_COLUMNS = (
    "provider", "account", "resource", "sku", "meter", "service_category", "charge_category", "start", "end",
    "used_s", "quantity", "flags",
)  # fmt: skip
_ROWS_AT_ONCE = 50_000
_INTEGERS = ("start", "end", "used_s", "quantity")


def load_charges(store: Store, since: int | None = None, until: int | None = None) -> pd.DataFrame:
    """Charges that touch the half-open window, in the columns of CHARGE_COLUMNS; an open end is None."""
    query = select(*(feed_charge.c[name] for name in CHARGE_COLUMNS)).order_by(feed_charge.c.id)
    if since is not None:
        query = query.where(feed_charge.c.end > since)
    if until is not None:
        query = query.where(feed_charge.c.start < until)
    columns: dict[str, list[Any]] = {name: [] for name in CHARGE_COLUMNS}
    one_of_each: dict[str, str] = {}  # a feed says the same few texts again and again
    with store.reading() as connection:
        found = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
        for part in found.partitions():
            for name, values in zip(CHARGE_COLUMNS, zip(*part, strict=True), strict=True):
                if name not in _INTEGERS:
                    values = tuple(None if v is None else one_of_each.setdefault(v, v) for v in values)
                columns[name] += values
    return pd.DataFrame(
        {
            name: pd.array(values, dtype="Int64") if name in _INTEGERS else pd.Series(values, dtype=object)
            for name, values in columns.items()
        }
    )


def count_rejected_charges(store: Store) -> dict[str | None, int]:
    """Rows of feeds that could not be read, by account; None: whose they are is not known."""
    query = (
        select(feed_reject.c.account, func.count())
        .where(feed_reject.c.resolved_by.is_(None))
        .group_by(feed_reject.c.account)
    )
    with store.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}
