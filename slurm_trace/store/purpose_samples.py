"""Raw samples of one run for purpose evidence: the beginning of each lease, and some of the rest, evenly spaced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from slurm_trace.node.columns import BlockDamaged, decode
from slurm_trace.node.fields import FIELDS, invalid
from slurm_trace.node.spool import SAMPLE
from slurm_trace.store.models import sample_chunk

FIELDS_READ = (
    "utilization_pct", "memory_utilization_pct", "memory_used_bytes", "power_mw", "pcie_tx_kb_s", "pcie_rx_kb_s",
    "process_count",
)  # fmt: skip
"""Sampled fields that purpose evidence looks at."""

MOST_NODES = 32
"""Nodes whose raw samples are read: each has up to eight GPUs and more than a thousand chunks a day."""
FIRST_CHUNKS = 20
"""Chunks from the beginning of a lease; one is about a minute."""
MORE_CHUNKS = 100
"""Chunks of a lease beside them, evenly spaced."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Piece = tuple[Ints, dict[str, Floats]]
"""Times in milliseconds of CLOCK_BOOTTIME, and field → values, NaN where there was none."""
T = TypeVar("T")


class SampleReader:
    """Reads chunks lease by lease, and counts them.

    Attributes:
        chunks: Raw chunks that are left.
        chunks_read: How many of them were read, and
        chunks_damaged: how many of those could not be unpacked.
    """

    def __init__(self, connection: Connection, nodes: Iterable[str]) -> None:
        self.chunks = self.chunks_read = self.chunks_damaged = 0
        self._connection = connection
        self._nodes = frozenset(_spread(sorted(set(nodes)), MOST_NODES))

    def read(self, node: str, columns: Mapping[int, str]) -> dict[tuple[int, int], list[Piece]]:
        """The samples of one lease: (spool file, number of the device) → pieces.

        Args:
            node: Where the lease was; of a large run not every node's samples are read.
            columns: Spool file → names and grains of its columns (JSON), in the order of the lease's parts.
        """
        chosen = self._choose(list(columns))
        names = {spool: json.loads(text)["sample_columns"] for spool, text in columns.items()}
        found: dict[tuple[int, int], list[Piece]] = {}
        for spool, position in chosen if node in self._nodes else ():
            self.chunks_read += 1
            try:
                parts = decode(self._data(spool, position), [grain for _, grain in names[spool]])
            except BlockDamaged:
                self.chunks_damaged += 1
                continue
            for part in parts:
                given = dict(zip((name for name, _ in names[spool]), part.columns, strict=True))
                found.setdefault((spool, part.device), []).append(_piece(given))
        return found

    def _choose(self, spools: Sequence[int]) -> list[tuple[int, int]]:
        """Spool file and position of the chunks of a lease that are worth reading."""
        table = sample_chunk.c
        query = select(table.position).where(table.kind == SAMPLE).order_by(table.position)
        there = [
            (spool, position)
            for spool in spools
            for position in self._connection.execute(query.where(table.spool_id == spool)).scalars()
        ]
        self.chunks += len(there)
        return [*there[:FIRST_CHUNKS], *_spread(there[FIRST_CHUNKS:], MORE_CHUNKS)]

    def _data(self, spool: int, position: int) -> bytes:
        table = sample_chunk.c
        query = select(table.data).where(table.spool_id == spool, table.position == position)
        return bytes(self._connection.execute(query).scalar_one())


def joined(pieces: Sequence[Piece]) -> tuple[Ints | None, dict[str, Floats]]:
    """One series of several, by time; of equal times the first. None: there is no piece."""
    if not pieces:
        return None, {}
    times, first = np.unique(np.concatenate([times for times, _ in pieces]), return_index=True)
    return times, {
        name: np.concatenate([fields[name] for _, fields in pieces])[first] for name in FIELDS_READ
    }


def _spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spaced."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def _piece(given: Mapping[str, Sequence[int | None]]) -> tuple[Ints, dict[str, Floats]]:
    times = given["mono_ms"]
    kept = [place for place, time in enumerate(times) if time is not None]
    fields = {name: _values(name, given.get(name), kept) for name in FIELDS_READ}
    return np.array([times[place] for place in kept], dtype=np.int64), fields


def _values(name: str, values: Sequence[int | None] | None, kept: Sequence[int]) -> Floats:
    if values is None:
        return np.full(len(kept), np.nan)
    spec = FIELDS[name]
    taken = (values[place] for place in kept)
    return np.array([np.nan if v is None or invalid(spec, v) else v for v in taken], dtype=np.float64)
