"""Columns come back as they went in: NULL apart from 0, grains rounded up, damage noticed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.node.columns import BlockDamaged, Part, decode, encode

VALUES = st.one_of(
    st.none(),
    st.integers(0, 100),
    st.integers(-(2**31), 2**31),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**100), 2**100),
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[Part], list[int]]:
    grains = draw(st.lists(st.sampled_from([1, 1, 10, 1000, 65536]), min_size=1, max_size=4))
    parts = []
    for device in range(draw(st.integers(0, 3))):
        rows = draw(st.integers(0, 40))
        columns = tuple(draw(st.lists(VALUES, min_size=rows, max_size=rows)) for _ in grains)
        parts.append(Part(device, columns))
    return parts, grains


def rounded_up(value: int | None, grain: int) -> int | None:
    return None if value is None else -(-value // grain) * grain


@given(blocks())
def test_what_goes_in_comes_out(block: tuple[list[Part], list[int]]) -> None:
    parts, grains = block
    expected = [
        Part(
            part.device,
            tuple(
                [rounded_up(v, grain) for v in column]
                for column, grain in zip(part.columns, grains, strict=True)
            ),
        )
        for part in parts
    ]
    assert decode(encode(parts, grains), grains) == expected


@given(blocks(), st.data())
def test_a_damaged_block_is_refused_or_read_and_never_a_surprise(
    block: tuple[list[Part], list[int]], data: st.DataObject
) -> None:
    parts, grains = block
    whole = bytearray(encode(parts, grains))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(whole), grains)
    except BlockDamaged:
        return


def test_null_and_zero_are_kept_apart() -> None:
    columns = ([0, None, 0], [None, None, None], [0, 0, 0])
    (part,) = decode(encode([Part(7, columns)], [1, 1, 1]), [1, 1, 1])
    assert part == Part(7, ([0, None, 0], [None, None, None], [0, 0, 0]))


def test_a_grain_never_makes_something_nothing() -> None:
    (part,) = decode(encode([Part(0, ([0, 1, 99, 100, 101],))], [100]), [100])
    assert part.columns == ([0, 100, 100, 100, 200],)


def test_a_block_that_would_fill_the_memory_is_refused() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(1 << 27)) + packer.flush()
    with pytest.raises(BlockDamaged):
        decode(bomb, [1])


def test_cut_and_prolonged_blocks_are_refused() -> None:
    block = encode([Part(0, (list(range(100)),))], [1])
    for wrong in (block[:-1], block + b"\0", b"", b"no block"):
        with pytest.raises(BlockDamaged):
            decode(wrong, [1])
    with pytest.raises(BlockDamaged, match="columns"):
        decode(block, [1, 1])
