"""Columns of whole numbers as bytes: differences in the fewest bytes that hold them, then deflate.

One block holds the same columns of several devices, column by column, so that what is alike lies together. NULL
has its own bits and never costs a value. A column may carry a *grain*: values are rounded up to its multiples,
so that a sensor's noise is not stored to the milliwatt. Rounding up keeps 0 for what is 0.
"""

from __future__ import annotations

import operator
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

Values = Sequence[Optional[int]]

# Of array, and the bits of a number without its sign.
_WIDTHS = (("b", 7), ("h", 15), ("i", 31), ("q", 63))
_WIDE, _WIDE_BYTES = 4, 17
_HAS_NULLS, _CONSTANT, _EMPTY = 0x80, 0x40, 0x20
_PART = struct.Struct("<HI")
_COUNT = struct.Struct("<HH")
_FIRST = struct.Struct("<q")

# A damaged or forged block must not fill the memory: millions of values are far above any chunk.
_MAX_BYTES = 1 << 26
_MAX_VALUES = 1 << 23


class BlockDamaged(ValueError):
    """The bytes are no block of columns."""


@dataclass(frozen=True)
class Part:
    """The rows of one device: its number in the spool, and one list per column."""

    device: int
    columns: tuple[Values, ...]


def encode(parts: Sequence[Part], grains: Sequence[int]) -> bytes:
    """A block of `parts`, all with one column per grain."""
    body = [_COUNT.pack(len(parts), len(grains))]
    body += [_PART.pack(part.device, len(part.columns[0])) for part in parts]
    for place, grain in enumerate(grains):
        body += [_column(part.columns[place], grain) for part in parts]
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    return packer.compress(b"".join(body)) + packer.flush()


def decode(block: bytes, grains: Sequence[int]) -> list[Part]:
    """What `encode` was given, rounded to the grains.

    Raises:
        BlockDamaged: The bytes are not such a block.
    """
    try:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        body = unpacker.decompress(block, _MAX_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise BlockDamaged("cut short, too long, or followed by something else")
        return _parts(body, grains)
    except (zlib.error, struct.error, IndexError, OverflowError) as error:
        raise BlockDamaged(str(error)) from error


def _parts(body: bytes, grains: Sequence[int]) -> list[Part]:
    count, width = _COUNT.unpack_from(body)
    if width != len(grains):
        raise BlockDamaged(f"{width} columns instead of {len(grains)}")
    at = _COUNT.size
    heads = []
    for _ in range(count):
        device, rows = _PART.unpack_from(body, at)
        heads.append((device, rows))
        at += _PART.size
    if sum(rows for _, rows in heads) * width > _MAX_VALUES:
        raise BlockDamaged("more values than a chunk has")
    columns: list[list[Values]] = [[] for _ in heads]
    for grain in grains:
        for place, (_, rows) in enumerate(heads):
            values, at = _read_column(body, at, rows, grain)
            columns[place].append(values)
    if at != len(body):
        raise BlockDamaged("more bytes than columns")
    return [Part(device, tuple(values)) for (device, _), values in zip(heads, columns)]


def _column(values: Values, grain: int) -> bytes:
    if not values:
        return bytes([_EMPTY])
    tag, nulls, present = 0, b"", values
    # Most columns stand still: they cost one look.
    if values.count(values[0]) == len(values):
        present = values[:1]
    elif None in values:
        present = [value for value in values if value is not None]
        tag, nulls = _HAS_NULLS, _bits(values)
    if present[0] is None:
        return bytes([_EMPTY])
    whole: Sequence[int] = present  # type: ignore[assignment]
    if grain > 1:
        whole = [-(-value // grain) for value in whole]
    first = whole[0]
    if not -(2**63) <= first < 2**63:
        return bytes([tag | _WIDE]) + nulls + _wide(whole if tag or len(whole) > 1 else [first] * len(values))
    head = nulls + _FIRST.pack(first)
    if whole.count(first) == len(whole):
        return bytes([tag | _CONSTANT]) + head
    deltas = list(map(operator.sub, whole[1:], whole))
    least = max(max(deltas), -min(deltas) - 1)
    for code, (letter, bits) in enumerate(_WIDTHS):
        if least < 1 << bits:
            return bytes([tag | code]) + head + _planes(array(letter, deltas))
    return bytes([tag | _WIDE]) + nulls + _wide(whole)


def _read_column(body: bytes, at: int, rows: int, grain: int) -> tuple[Values, int]:
    tag = body[at]
    at += 1
    if tag == _EMPTY:
        return [None] * rows, at
    mask = None
    count = rows
    if tag & _HAS_NULLS:
        size = (rows + 7) // 8
        mask = int.from_bytes(_slice(body, at, size), "little")
        at += size
        count = bin(mask).count("1")
    present, at = _read_present(body, at, tag & ~_HAS_NULLS, count)
    if grain > 1:
        present = [value * grain for value in present]
    if mask is None:
        return present, at
    rest = iter(present)
    return [next(rest) if mask >> place & 1 else None for place in range(rows)], at


def _read_present(body: bytes, at: int, tag: int, count: int) -> tuple[list[int], int]:
    if count == 0:
        raise BlockDamaged("a column of nothing")
    if tag == _WIDE:
        raw = _slice(body, at, count * _WIDE_BYTES)
        values = [
            int.from_bytes(raw[place : place + _WIDE_BYTES], "little", signed=True)
            for place in range(0, len(raw), _WIDE_BYTES)
        ]
        return values, at + len(raw)
    (value,) = _FIRST.unpack_from(body, at)
    at += _FIRST.size
    if tag == _CONSTANT:
        return [value] * count, at
    if tag >= len(_WIDTHS):
        raise BlockDamaged(f"unknown kind of column {tag}")
    packed = array(_WIDTHS[tag][0])
    size = (count - 1) * packed.itemsize
    raw = _slice(body, at, size)
    packed.frombytes(bytes(_merged(raw, packed.itemsize)))
    if sys.byteorder == "big":
        packed.byteswap()
    values = [value]
    for delta in packed:
        value += delta
        values.append(value)
    return values, at + size


def _slice(body: bytes, at: int, size: int) -> bytes:
    piece = body[at : at + size]
    if len(piece) != size:
        raise BlockDamaged("cut short")
    return piece


def _wide(present: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(_WIDE_BYTES, "little", signed=True) for value in present)


def _bits(values: Values) -> bytes:
    text = "".join("0" if value is None else "1" for value in reversed(values))
    return int(text, 2).to_bytes((len(values) + 7) // 8, "little")


def _planes(packed: array[int]) -> bytes:
    """All low bytes first: the high ones hardly change, and deflate likes them together."""
    if sys.byteorder == "big":
        packed.byteswap()
    raw, width = packed.tobytes(), packed.itemsize
    return raw if width == 1 else b"".join(raw[place::width] for place in range(width))


def _merged(raw: bytes, width: int) -> bytes | bytearray:
    if width == 1:
        return raw
    count = len(raw) // width
    merged = bytearray(len(raw))
    for place in range(width):
        merged[place::width] = raw[place * count : (place + 1) * count]
    return merged
