"""Rows as received, many to a block: a run says which block and which bytes of it are its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from sqlalchemy import Connection, func, select

from slurm_trace.store.bulk import insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.models import raw_block

BLOCK_BYTES = 4 << 20
"""Most bytes of a block, unless one row alone has more: doubled by escapes it still fits MariaDB's packet."""

RAW_COLUMNS = ("line", "raw_block_id", "raw_at", "raw_size")


def store_raws(
    connection: Connection, import_id: int, ids: Ids, raws: Sequence[bytes]
) -> tuple[list[int], list[int], list[int]]:
    """Store rows as received.

    Returns:
        Of each row its block, where in the block it begins, and its length.
    """
    sizes = list(map(len, raws))
    blocks: list[int] = []
    places: list[int] = []
    for first, last in _cuts(sizes):
        (number,) = ids.take(connection, raw_block)
        joined = b"".join(raws[first:last])
        insert_rows(connection, raw_block, ("id", "import_id", "raw"), [(number, import_id, joined)])
        blocks += [number] * (last - first)
        places += [0, *accumulate(sizes[first : last - 1])]
    return blocks, places, sizes


def read_raw(connection: Connection, block: int, at: int, size: int) -> bytes:
    """The bytes of one row."""
    query = select(func.substr(raw_block.c.raw, at + 1, size)).where(raw_block.c.id == block)
    # SQLite makes NULL of no bytes.
    return bytes(connection.execute(query).scalar_one() or b"")


def _cuts(sizes: list[int]) -> list[tuple[int, int]]:
    """Stretches of rows that make one block each."""
    if sum(sizes) <= BLOCK_BYTES:
        return [(0, len(sizes))] if sizes else []
    cuts, first, total = [], 0, 0
    for i, size in enumerate(sizes):
        if i > first and total + size > BLOCK_BYTES:
            cuts.append((first, i))
            first, total = i, 0
        total += size
    return [*cuts, (first, len(sizes))]
