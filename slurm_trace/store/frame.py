"""Every run as columns of a pandas frame. A million of them take seconds, so large stores are read by two processes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd
from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    Select,
    bindparam,
    case,
    false,
    func,
    literal,
    select,
    type_coerce,
)

from slurm_trace.child import in_child
from slurm_trace.errors import UsageProblem
from slurm_trace.store.bulk import NO_INTEGER, in_chunks
from slurm_trace.store.engine import Store
from slurm_trace.store.models import cluster, job_run, job_summary

CHUNK = 20_000
LARGE = 200_000
"""From so many ids on a second process is worth what it costs to hand its half over."""

RUN_COLUMNS: tuple[str, ...] = (
    *(
        "run_id",
        "cluster",
        "job_id_raw",
        "job_id",
        "run_key",
        "submit",
        "start",
        "end",
        "elapsed_s",
        "suspended_s",
    ),
    *("limit_s", "step_end", "step_count", "queried_at", "uid", "node_count", "cpu_count", "array_job_id"),
    *(
        "het_job_id",
        "user",
        "account",
        "partition",
        "state",
        "node_list",
        "source",
        "flags",
        "name",
        "work_dir",
    ),
    *("final", "started", "allocation", "lease_end", "lease_gpus", "release_proven", "lease_covered_ms"),
    *("lease_energy_mj", "lease_energy_from", "lease_clock_top_mhz", "lease_clock_max_mhz"),
)
"""The columns of `load_runs`."""

_STORED_AS = {
    "run_id": job_run.c.id,
    "cluster": job_run.c.cluster_id,
    "allocation": job_run.c.allocation_id,
    "lease_end": job_summary.c.lease_end,
    "lease_gpus": job_summary.c.gpus,
    "lease_covered_ms": job_summary.c.covered_ms,
    "lease_energy_mj": job_summary.c.energy_mj,
    "lease_energy_from": job_summary.c.energy_from,
    "lease_clock_top_mhz": job_summary.c.sm_clock_top_mhz,
    "lease_clock_max_mhz": job_summary.c.sm_clock_max_mhz,
    "release_proven": job_summary.c.release_proven,
}
_OF_LEASES = frozenset(
    {"flags", *(name for name, column in _STORED_AS.items() if column.table is job_summary)}
)
"""Columns that a run's leases have a say in."""


def load_runs(
    store: Store, clusters: Sequence[str] | None = None, columns: Iterable[str] | None = None
) -> pd.DataFrame:
    """Every run, one row each, in the order of their ids.

    Integers are Int64 where they can be NULL, texts are categories, except `job_id`. Of the run's leases speak
    `lease_end`, the latest close of one and CLOCK_S on top; `lease_gpus`, how many GPUs they are known to have held;
    `lease_covered_ms`, how long these were sampled together; `lease_energy_mj` and `lease_energy_from`, what they drew
    and how that is known; `lease_clock_top_mhz` and `lease_clock_max_mhz`, their highest clock seen and allowed;
    `release_proven`, true where every node of the run closed its lease; and the `flags` that begin with `lease_`.

    Args:
        store: The store.
        clusters: Only these clusters.
        columns: Only these of RUN_COLUMNS; the fewer the quicker.

    Raises:
        UsageProblem: The store knows no such cluster.
    """
    wanted = RUN_COLUMNS if columns is None else tuple(columns)
    with store.reading() as connection:
        names = {row.id: row.name for row in connection.execute(select(cluster.c.id, cluster.c.name))}
        last = connection.execute(select(func.max(job_run.c.id))).scalar() or 0
        leases = connection.execute(select(job_summary.c.run_id).limit(1)).first() is not None
    asked = {name: _STORED_AS[name] if name in _STORED_AS else job_run.c[name] for name in wanted}
    # A join with nothing takes a quarter of the time.
    stored = list(dict.fromkeys((job_run.c.id, *(c for c in asked.values() if leases or c.table is job_run))))
    query = select(*(_selected(column, leases) for column in stored)).order_by(job_run.c.id)
    if leases and _OF_LEASES.intersection(wanted):
        query = query.select_from(job_run.outerjoin(job_summary))
    if clusters is not None:
        missing = sorted(set(clusters) - set(names.values()))
        if missing:
            raise UsageProblem(f"the store has no cluster {missing[0]!r}; it has {', '.join(names.values())}")
        query = query.where(job_run.c.cluster_id.in_([i for i, name in names.items() if name in clusters]))
    values = dict(zip(stored, (column.finish() for column in _read(store, query, stored, last)), strict=True))
    count = len(values[job_run.c.id])
    frame = pd.DataFrame(
        {name: values[c] if c in values else _nothing(c, count) for name, c in asked.items()}, copy=False
    )
    if "cluster" in frame:
        frame["cluster"] = _cluster_names(frame["cluster"].to_numpy(), names)
    return frame


def load_columns(store: Store, run_ids: Sequence[int], columns: Sequence[str]) -> pd.DataFrame:
    """What accounting says of some runs: one row each, with `run_id` as the index; None for NULL.

    Args:
        store: The store.
        run_ids: Of these runs.
        columns: Columns of `job_run`.
    """
    query = select(job_run.c.id, *(job_run.c[name] for name in columns))
    with store.reading() as connection:
        rows = [
            tuple(row)
            for chunk in in_chunks(run_ids)
            for row in connection.execute(query.where(job_run.c.id.in_(chunk)))
        ]
    frame = pd.DataFrame(rows, columns=["run_id", *columns], dtype=object)
    return frame.set_index(frame.pop("run_id").astype(np.int64))


def _read(store: Store, query: Select[Any], columns: Sequence[Column[Any]], last: int) -> list[_Values]:
    """Two processes take turns, chunk by chunk, so that neither holds more than it must."""
    values = [_values_of(column) for column in columns]
    chunks = [(first, min(first + CHUNK, last)) for first in range(0, last, CHUNK)]
    read = partial(_read_chunks, store, query, columns)
    if last < LARGE:
        for part in read(chunks):
            _extend(values, part)
        return values
    with closing(in_child(partial(read, chunks[1::2]))) as theirs:
        for part in read(chunks[::2]):
            _extend(values, part)
            _extend(values, next(theirs, ()))
    return values


def _extend(values: Sequence[_Values], part: Sequence[_Values]) -> None:
    for column, more in zip(values, part, strict=bool(part)):
        column.extend(more)


def _read_chunks(
    store: Store, query: Select[Any], columns: Sequence[Column[Any]], chunks: Sequence[tuple[int, int]]
) -> Generator[list[_Values]]:
    part = query.where(job_run.c.id > bindparam("after"), job_run.c.id <= bindparam("upto"))
    with store.reading() as connection:
        for after, upto in chunks:
            values = [_values_of(column) for column in columns]
            result = connection.execute(part, {"after": after, "upto": upto})
            # The driver's own tuples: a row object for each of a million runs would take as long as the rest.
            rows = cast(Any, result).cursor.fetchall()
            for column, more in zip(values, zip(*rows, strict=True), strict=bool(rows)):
                column.add(more)
            yield values


def _selected(column: Column[Any], leases: bool) -> Any:
    if column is job_run.c.flags and leases:
        of_leases = func.coalesce(job_summary.c.flags, "")
        return case((of_leases == "", column), (column == "", of_leases), else_=column + " " + of_leases)
    if column is job_summary.c.release_proven:
        return type_coerce(func.coalesce(column, false()), Integer)
    if isinstance(column.type, Boolean):
        return type_coerce(column, Integer)
    if _is_text(column) or not _nullable(column):
        return column
    return func.coalesce(column, literal(NO_INTEGER, column.type, literal_execute=True))


def _nothing(column: Column[Any], count: int) -> Any:
    """A column of the summaries, where there is none."""
    if isinstance(column.type, Boolean):
        return np.zeros(count, dtype=np.bool_)
    if _is_text(column):
        return pd.Categorical.from_codes(np.full(count, -1, dtype=np.int32), pd.Index([], dtype=object))
    return pd.arrays.IntegerArray(np.full(count, NO_INTEGER), np.ones(count, dtype=np.bool_))


def _nullable(column: Column[Any]) -> bool:
    # A run without a lease has no summary.
    return bool(column.nullable) or column.table is job_summary


def _is_text(column: Column[Any]) -> bool:
    return bool(column.type.python_type is str)


def _cluster_names(ids: Any, names: dict[int, str]) -> Any:
    numbers = sorted(names)
    codes = np.searchsorted(np.array(numbers, dtype=np.int64), ids).astype(np.int32)
    return pd.Categorical.from_codes(codes, pd.Index([names[number] for number in numbers], dtype=object))


def _values_of(column: Column[Any]) -> _Values:
    if isinstance(column.type, Boolean):
        return _Numbers(np.bool_, nullable=False)
    if _is_text(column):
        return _Texts() if column.name == "job_id" else _Categories()
    return _Numbers(np.int64, nullable=_nullable(column))


class _Values(Protocol):
    """The values of one column, as they come in."""

    def add(self, values: Sequence[Any]) -> None: ...

    def extend(self, other: Any) -> None: ...

    def finish(self) -> Any: ...


class _Numbers:
    def __init__(self, dtype: Any, *, nullable: bool) -> None:
        self._dtype = dtype
        self._nullable = nullable
        self._parts: list[Any] = []

    def add(self, values: Sequence[Any]) -> None:
        self._parts.append(np.fromiter(values, dtype=self._dtype, count=len(values)))

    def extend(self, other: _Numbers) -> None:
        self._parts += other._parts

    def finish(self) -> Any:
        values = np.concatenate(self._parts) if self._parts else np.empty(0, dtype=self._dtype)
        self._parts.clear()
        return pd.arrays.IntegerArray(values, values == NO_INTEGER) if self._nullable else values


class _Categories:
    def __init__(self) -> None:
        self._codes: dict[str | None, int] = {None: -1}
        self._parts: list[Any] = []

    def add(self, values: Sequence[Any]) -> None:
        self._learn(set(values))
        self._parts.append(
            np.fromiter(map(self._codes.__getitem__, values), dtype=np.int32, count=len(values))
        )

    def extend(self, other: _Categories) -> None:
        self._learn(other._codes)
        # The last place stands for -1.
        ours = np.array(
            [*(self._codes[value] for value in other._codes if value is not None), -1], dtype=np.int32
        )
        self._parts += [ours[part] for part in other._parts]

    def finish(self) -> Any:
        codes = np.concatenate(self._parts) if self._parts else np.empty(0, dtype=np.int32)
        self._parts.clear()
        return pd.Categorical.from_codes(
            codes, pd.Index([v for v in self._codes if v is not None], dtype=object)
        )

    def _learn(self, values: Iterable[str | None]) -> None:
        for value in values:
            if value not in self._codes:
                self._codes[value] = len(self._codes) - 1


class _Texts:
    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, values: Sequence[Any]) -> None:
        self._values.extend(values)

    def extend(self, other: _Texts) -> None:
        self._values += other._values

    def finish(self) -> Any:
        return np.array(self._values, dtype=object)
