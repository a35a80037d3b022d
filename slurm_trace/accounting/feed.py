"""A cloud account's billing feed (CSV) → charges. Every row comes out as a charge or as a rejected row.

What cannot be read of the hours is not 0: it is left out, and the charge then counts for its whole period.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from slurm_trace.accounting.feed_columns import (
    LONGEST_S,
    MOST_INSTANCES,
    find_columns,
    is_plain_hours,
    provider_id,
    read_number,
    unit_seconds,
)
from slurm_trace.accounting.times import TimeReader
from slurm_trace.errors import InputProblem

BLOCK_ROWS = 2000
DELIMITERS = (",", ";", "\t")
TEXT_MAX = 4096
"""Longest text of a key; Azure's resource ids take some 200 characters."""

HEADER_LINES = 20
"""A header is looked for in so many lines: some providers put notes before it."""

_HOUR_S = 3600
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of a feed.

    Attributes:
        provider: Id of the registry of SKUs where the name is known; empty: not given.
        resource: What was charged for; empty: not given.
        meter: A second name of the SKU.
        start: With `end` the half-open charge period (epoch).
        used_s: Time that was charged, rounded up to seconds and summed over all instances; None: not given or not to
            be read. It may be negative.
        quantity: Instances at a time; None: not given.
        cost: As given; only its sign is looked at.
        flags: What is odd about it.
        line: First physical line.
        raw: As received.
    """

    provider: str
    account: str
    resource: str
    sku: str
    meter: str | None
    service_category: str | None
    charge_category: str | None
    start: int
    end: int
    used_s: int | None
    quantity: int | None
    cost: str | None
    currency: str | None
    flags: tuple[str, ...]
    line: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class RejectedCharge:
    """A row that is no charge; `account` is None where it does not even tell whose it is."""

    account: str | None
    line: int
    reason: str
    raw: bytes


@dataclass(slots=True)
class FeedBlock:
    """Some rows of a feed."""

    charges: list[Charge] = field(default_factory=list)
    rejected: list[RejectedCharge] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.charges) + len(self.rejected)


@dataclass(frozen=True, slots=True)
class _Record:
    cells: list[str] | None
    line: int
    raw: bytes
    cut: bool = False


class _Unreadable(ValueError):
    """The row is no charge, for the reason in the message."""


def read_feed(
    lines: Iterable[bytes], provider: str | None = None, name: str = "the feed"
) -> Iterator[FeedBlock]:
    """Read a feed.

    Args:
        lines: Physical lines with their ends.
        provider: Provider of the rows that name none.
        name: The feed's name for messages.

    Raises:
        InputProblem: It is no feed: it holds nothing, or no header.
    """
    numbered = enumerate(lines, start=1)
    layout = _find_header(numbered, provider_id(provider or ""), name)
    block = FeedBlock()
    for record in _records(numbered, layout):
        if not record.raw.strip():
            continue
        try:
            block.charges.append(layout.charge(record))
        except _Unreadable as why:
            block.rejected.append(RejectedCharge(layout.account(record), record.line, str(why), record.raw))
        if len(block) >= BLOCK_ROWS:
            yield block
            block = FeedBlock()
    yield block


def _find_header(numbered: Iterator[tuple[int, bytes]], provider: str, name: str) -> _Layout:
    missing: tuple[str, ...] = ()
    seen = False
    for number, line in numbered:
        seen = seen or bool(line.strip())
        text = _text(line)
        for delimiter in DELIMITERS:
            try:
                cells = next(csv.reader([text], delimiter=delimiter), [])
            except csv.Error:
                continue
            columns, lacks = find_columns(cells)
            if not lacks:
                _refuse_twins(cells, columns, name)
                return _Layout(columns, len(cells), delimiter, is_plain_hours(cells), provider)
            if columns and (not missing or len(lacks) < len(missing)):
                missing = lacks
        if number >= HEADER_LINES:
            break
    if not seen:
        raise InputProblem(f"{name} is empty, not even a header; export it again")
    fault = f"column {missing[0]} is missing" if missing else "no header was found"
    raise InputProblem(
        f"{name}: {fault}; it needs a header with account, resource, sku, hours, start and end, or their names in FOCUS"
    )


def _refuse_twins(header: list[str], columns: dict[str, int], name: str) -> None:
    """Of two columns of one name nobody can tell which one counts."""
    names = [cell.strip().lower() for cell in header]
    for at in columns.values():
        if names.count(names[at]) > 1:
            raise InputProblem(
                f"{name}: column {header[at][:40]!r} stands there more than once; export it with each column once"
            )


def _records(numbered: Iterator[tuple[int, bytes]], layout: _Layout) -> Iterator[_Record]:
    """Rows with the lines they were read from. A stray quote takes no other row along: its lines are read singly."""
    taken: list[tuple[int, bytes]] = []

    def texts() -> Iterator[str]:
        for number, line in numbered:
            taken.append((number, line))
            yield _text(line)

    rows = csv.reader(texts(), delimiter=layout.delimiter)
    while True:
        try:
            cells: list[str] | None = next(rows, None)
        except csv.Error:
            cells = None
        if not taken:
            return
        record = _Record(cells, taken[0][0], b"".join(line for _, line in taken), _is_cut(taken[-1][1]))
        if len(taken) == 1:
            yield record
        else:
            singly = [_Record(_single(t, layout.delimiter), n, t, _is_cut(t)) for n, t in taken]
            yield from [record] if _is_whole(record, singly, layout) else singly
        taken.clear()


def _is_whole(record: _Record, singly: list[_Record], layout: _Layout) -> bool:
    """Whether several lines are one row: its quotes close, and no line after the first looks like a row itself."""
    if _single(record.raw, layout.delimiter) is None or any(map(layout.reads, singly)):
        return False
    like_a_row = layout.width - 2
    if any(_text(one.raw).count(layout.delimiter) >= like_a_row for one in singly[1:]):
        return False
    return layout.reads(record)


def _single(line: bytes, delimiter: str) -> list[str] | None:
    try:
        return next(csv.reader([_text(line)], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


def _is_cut(line: bytes) -> bool:
    return not line.endswith((b"\n", b"\r"))


def _text(line: bytes) -> str:
    return line.decode("utf-8-sig", errors="replace")


class _Layout:
    """Where the columns stand, and with that what a row says."""

    def __init__(
        self, columns: dict[str, int], width: int, delimiter: str, plain_hours: bool, provider: str
    ) -> None:
        self.width, self.delimiter = width, delimiter
        self._columns, self._plain_hours, self._provider = columns, plain_hours, provider
        self._times = TimeReader(None)

    def account(self, record: _Record) -> str | None:
        """Whose row it is, if it can be read at all, and to its end."""
        at = self._columns["account"]
        if record.cells is None or len(record.cells) != self.width or (record.cut and at == self.width - 1):
            return None
        account = record.cells[at].strip()
        return account if account and _storable(account) else None

    def reads(self, record: _Record) -> bool:
        """Whether the row is a charge."""
        try:
            self.charge(record)
        except _Unreadable:
            return False
        return True

    def charge(self, record: _Record) -> Charge:
        """The row as a charge."""
        cells = record.cells
        if cells is None:
            raise _Unreadable("its quotes do not close")
        if len(cells) != self.width:
            raise _Unreadable(f"{len(cells)} columns where the header has {self.width}")
        cell = {name: cells[at].strip() for name, at in self._columns.items()}
        if record.cut:
            self._drop_last(cell)
        for name in ("account", "sku"):
            if not cell[name]:
                raise _Unreadable(f"{name} is missing")
        for name, text in cell.items():
            if not _storable(text):
                raise _Unreadable(f"{name} cannot be stored")
        start, end = self._moment(cell["start"], "start"), self._moment(cell["end"], "end")
        if end <= start:
            raise _Unreadable("its charge period is empty: end does not lie after start")
        flags: list[str] = []
        used_s = self._used_s(cell, flags)
        quantity = _quantity(cell.get("quantity", ""), flags)
        if not cell["resource"]:
            flags.append("resource_missing")
        cost = read_number(cell.get("cost", ""))
        if (cost is not None and cost < 0) or "hours_negative" in flags:
            flags.append("credit")
        if record.cut:
            flags += ["last_line_without_end", *self._cut_flags()]
        return Charge(
            provider=provider_id(cell.get("provider", "")) or self._provider,
            account=cell["account"],
            resource=cell["resource"],
            sku=cell["sku"],
            meter=cell.get("meter") or None,
            service_category=cell.get("service_category") or None,
            charge_category=cell.get("charge_category") or None,
            start=start,
            end=end,
            used_s=used_s,
            quantity=quantity,
            cost=cell.get("cost") or None,
            currency=cell.get("currency") or None,
            flags=tuple(flags),
            line=record.line,
            raw=record.raw,
        )

    def _cut_flags(self) -> list[str]:
        """What the last cell of a line without end would have told."""
        names = ("quantity", "hours")
        return [f"{name}_unreadable" for name in names if self._columns.get(name) == self.width - 1]

    def _drop_last(self, cell: dict[str, str]) -> None:
        """What stands in the last cell of a line without end may be only the beginning of it."""
        for name, text in list(cell.items()):
            if self._columns[name] != self.width - 1:
                continue
            if name in ("start", "end"):
                # The zone may be missing, or the time of the day, without which more counts.
                doubtful = ":" in text and not text.endswith(("Z", "UTC"))
            else:
                doubtful = name in ("account", "sku")
                cell[name] = ""
            if doubtful:
                raise _Unreadable("its line has no end and may be cut off; export the feed again")

    def _moment(self, text: str, name: str) -> int:
        # A period that ends on a date ends with it, as far as can be told.
        day = len(text) == 10 and text[4:5] == "-"
        try:
            moment = self._times.read(text + "T00:00:00" if day else text).latest
        except ValueError:
            moment = None
        if moment is None:
            raise _Unreadable(f"{name} {text[:40]!r} is no time; write e.g. 2026-01-31T12:00:00Z")
        return moment + _DAY_S if day and name == "end" else moment

    def _used_s(self, cell: dict[str, str], flags: list[str]) -> int | None:
        value = read_number(cell.get("hours", ""))
        unit_s = unit_seconds(cell.get("unit", ""))
        if self._plain_hours:
            # A unit beside it that says otherwise may be right.
            unit_s = max(_HOUR_S, unit_s or 0) if unit_s is not None or not cell.get("unit") else None
        if value is None:
            flags.append("hours_missing" if not cell.get("hours") else "hours_unreadable")
            return None
        if unit_s is None:
            flags.append("unit_unknown")
            return None
        used_s = math.ceil(value * unit_s)
        if abs(used_s) > LONGEST_S:
            raise _Unreadable("its hours are more than there can be")
        if used_s <= 0:
            flags.append("hours_zero" if value == 0 else "hours_negative")
        return used_s


def _quantity(text: str, flags: list[str]) -> int | None:
    if not text:
        return None
    value = read_number(text)
    if value is None or value <= 0:
        flags.append("quantity_unreadable")
        return None
    if value > MOST_INSTANCES:
        raise _Unreadable("its quantity is more than there can be")
    return math.ceil(value)


def _storable(text: str) -> bool:
    return "\0" not in text and len(text) <= TEXT_MAX
