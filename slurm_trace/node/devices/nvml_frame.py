"""The memory that one device's calls fill, and a way to read all of it by one unpack.

Most readings are like the one before: every call answers, every value can be true. Such a reading is taken as a whole;
any other goes the long way, call by call, which finds out what is wrong.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from slurm_trace.node.fields import WIDE_SENTINELS

_BYTES = 1024
_ALIGNED = 8

Problems = MutableMapping[str, str]
# (stamp, counter, problems) → the rate since the last reading, or None with its problem noted.
Rate = Callable[[int, int, Problems], Optional[int]]


class Frame:
    """Memory in which the buffers of a device's calls lie."""

    def __init__(self) -> None:
        self.memory = bytearray(_BYTES)
        self._used = 0

    def buffer(self, kind: Any) -> Any:
        """A buffer of a ctypes type, all zero."""
        made = kind.from_buffer(self.memory, self._used)
        self._used += -(-ctypes.sizeof(kind) // _ALIGNED) * _ALIGNED
        return made

    def place(self, buffer: Any) -> int:
        """Where a buffer begins, or a number in one."""
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        return ctypes.addressof(buffer) - start


@dataclass
class Layout:
    """What lies where in a frame; offsets in bytes, letters are those of `struct`.

    Attributes:
        values: Place in the reading → where its value lies, and the largest that it can be.
        marks: What has to be as it was when the layout was made.
        rates: Place in the reading → where stamp and counter lie, and what makes a rate of them.
        cleared: Where zeros have to be before the next call, and how many.
    """

    values: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    marks: list[tuple[int, str]] = field(default_factory=list)
    rates: dict[int, tuple[int, int, Rate]] = field(default_factory=dict)
    cleared: list[tuple[int, int]] = field(default_factory=list)


class QuickReading:
    """Takes a whole reading out of a frame, if it is like the one from which this was made.

    Args:
        frame: After a reading in which nothing was wrong.
        layout: What lies in it.
        width: How many values a reading has.
    """

    def __init__(self, frame: Frame, layout: Layout, width: int) -> None:
        cells = {(offset, letter) for offset, letter, _ in layout.values.values()} | set(layout.marks)
        for stamp, counter, _ in layout.rates.values():
            cells |= {(stamp, "q"), (counter, "Q")}
        at = {cell: number for number, cell in enumerate(sorted(cells))}
        self._memory = frame.memory
        self._unpack = struct.Struct(_format(sorted(cells))).unpack_from
        self._marks = _picker([at[mark] for mark in layout.marks])
        self._expected = self._marks(self._unpack(frame.memory))
        self._checked = _picker([at[offset, letter] for offset, letter, _ in layout.values.values()])
        self._tops = tuple(top for _, _, top in layout.values.values())
        self._rates = [(at[stamp, "q"], at[n, "Q"], rate) for stamp, n, rate in layout.rates.values()]
        self._cleared = [(slice(offset, offset + n), bytes(n)) for offset, n in layout.cleared]
        # After the cells come the rates, and then None for what the device does not have.
        order = [len(cells) + len(layout.rates)] * width
        for place, (offset, letter, _) in layout.values.items():
            order[place] = at[offset, letter]
        for number, place in enumerate(layout.rates):
            order[place] = len(cells) + number
        self._order = _picker(order)

    def take(self, problems: Problems) -> tuple[int | None, ...] | None:
        """The values, or None where this reading needs a closer look; only rates can be a problem here."""
        memory = self._memory
        raw = self._unpack(memory)
        checked = self._checked(raw)
        if (
            self._marks(raw) != self._expected
            or not all(map(operator.le, checked, self._tops))
            or not WIDE_SENTINELS.isdisjoint(checked)
        ):
            return None
        for where, zeros in self._cleared:
            memory[where] = zeros
        rates = [rate(raw[stamp], raw[counter], problems) for stamp, counter, rate in self._rates]
        return self._order((*raw, *rates, None))


def _format(cells: Sequence[tuple[int, str]]) -> str:
    text, at = "=", 0
    for offset, letter in cells:
        text += f"{offset - at}x{letter}"
        at = offset + struct.calcsize("=" + letter)
    return text


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Takes these places out of a sequence, always as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)
