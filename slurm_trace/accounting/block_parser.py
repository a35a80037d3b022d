"""A stretch of whole lines of text, read the fast way where it goes and the slow way where it must."""

from __future__ import annotations

from itertools import compress

from slurm_trace.accounting.blocks import Columns, empty_columns
from slurm_trace.accounting.columns import PLAIN_NEEDS, Cells, ColumnReader
from slurm_trace.accounting.fields import Layout
from slurm_trace.accounting.lines import LineReader, decode
from slurm_trace.accounting.records import RUN_FIELDS, RejectedRow, RunRecord
from slurm_trace.accounting.rows import ReadRow, RowReader

_LINE = RUN_FIELDS.index("line")


class BlockParser:
    """Reads stretches of lines of one layout."""

    def __init__(self, layout: Layout, reader: RowReader) -> None:
        self._layout = layout
        self._reader = reader
        self._columns = ColumnReader(reader)
        self._lines = LineReader(layout, reader)
        self._can_be_plain = all(name in layout.columns for name in PLAIN_NEEDS)

    def parse(self, data: bytes, first_line: int) -> tuple[Columns, list[ReadRow]]:
        """Columns of the runs that stood on one line each, and all other rows.

        Args:
            data: Whole lines.
            first_line: Number of the first one.
        """
        if self._layout.crlf:
            data = data.replace(b"\r\n", b"\n")
        raws = data.split(b"\n")
        if not raws[-1]:
            raws.pop()
        at, cells = self._cut(data, raws)
        columns, others = self._read_whole(raws, first_line, at, cells)
        if len(columns[_LINE]) + len(others) < len(raws):
            columns = self._read_odd(raws, first_line, columns, others)
        return columns, others

    def _read_odd(
        self, raws: list[bytes], first_line: int, columns: Columns, others: list[ReadRow]
    ) -> Columns:
        """Read the lines that are no whole record; add them to the others."""
        read = {*columns[_LINE], *(row.line for row in others)}
        stretches = self._odd_stretches(raws, [i for i in range(len(raws)) if first_line + i not in read])
        again = {first_line + i for start, end in stretches for i in range(start, end)} & read
        if again:
            keep = [line not in again for line in columns[_LINE]]
            columns = tuple(list(compress(column, keep)) for column in columns)
            others[:] = [row for row in others if row.line not in again]
        for start, end in stretches:
            others.extend(self._lines.read(raws[start:end], first_line + start))
        return columns

    def _cut(self, data: bytes, raws: list[bytes]) -> tuple[list[int], Cells]:
        """The lines that have as many pieces as there are columns, and their cells column by column."""
        width, gap = self._layout.width, self._layout.delimiter
        text, replaced = decode(data)
        if not text.endswith("\n"):
            text += "\n"
        pieces = text.replace("\n", "\n" + gap).split(gap)
        pieces.pop()
        at = list(range(len(raws)))
        ends = pieces[width - 1 :: width]
        if replaced or len(pieces) != width * len(raws) or "".join(ends).count("\n") != len(raws):
            lines = text.split("\n")
            at = [i for i in at if lines[i].count(gap) == width - 1 and not (replaced and decode(raws[i])[1])]
            pieces = ("\n" + gap).join([*(lines[i] for i in at), ""]).split(gap)[:-1]
            ends = pieces[width - 1 :: width]
        last = [piece[:-1] for piece in ends]
        cells = {
            name: pieces[position::width] if position < width - 1 else last
            for name, position in self._layout.columns.items()
        }
        if self._layout.trailing and any(last):
            whole = [not text for text in last]
            return list(compress(at, whole)), _choose(cells, whole)
        return at, cells

    def _read_whole(
        self, raws: list[bytes], first_line: int, at: list[int], cells: Cells
    ) -> tuple[Columns, list[ReadRow]]:
        """The runs of these lines, and their other rows; a row that is rejected is left out."""
        if not at:
            return empty_columns(), []
        lines, bytes_of = [first_line + i for i in at], [raws[i] for i in at]
        if len(at) == len(raws):
            bytes_of = raws
        if not self._can_be_plain:
            rows = (self._read_row(cells, k, lines[k], bytes_of[k]) for k in range(len(at)))
            return empty_columns(), [row for row in rows if row is not None]
        ids = cells.get("job_id") or cells["job_id_raw"]
        if "." not in "".join(ids):
            return self._read_runs(cells, lines, bytes_of)
        is_step = ["." in text for text in ids]
        is_run = [not step for step in is_step]
        columns, others = self._read_runs(
            _choose(cells, is_run), list(compress(lines, is_run)), list(compress(bytes_of, is_run))
        )
        cells, lines, bytes_of = (
            _choose(cells, is_step),
            list(compress(lines, is_step)),
            list(compress(bytes_of, is_step)),
        )
        for k, step in enumerate(self._columns.read_steps(cells, lines, bytes_of)):
            row = step or self._read_row(cells, k, lines[k], bytes_of[k])
            if row is not None:
                others.append(row)
        return columns, others

    def _read_runs(self, cells: Cells, lines: list[int], raws: list[bytes]) -> tuple[Columns, list[ReadRow]]:
        if not lines:
            return empty_columns(), []
        columns, plain = self._columns.read_runs(cells, lines, raws)
        others: list[ReadRow] = []
        if all(plain):
            return columns, others
        for k, is_plain in enumerate(plain):
            if is_plain:
                continue
            row = self._read_row(cells, k, lines[k], raws[k])
            if isinstance(row, RunRecord):
                plain[k] = True
                for column, name in zip(columns, RUN_FIELDS, strict=True):
                    column[k] = getattr(row, name)
            elif row is not None:
                others.append(row)
        return (columns if all(plain) else tuple(list(compress(column, plain)) for column in columns)), others

    def _read_row(self, cells: Cells, k: int, line: int, raw: bytes) -> ReadRow | None:
        row = self._reader.read({name: column[k] for name, column in cells.items()}, line, raw)
        return None if isinstance(row, RejectedRow) else row

    def _odd_stretches(self, raws: list[bytes], odd: list[int]) -> list[tuple[int, int]]:
        """Odd lines that stand together, with the row before them where they may be the rest of its last name."""
        stretches: list[tuple[int, int]] = []
        gap = self._layout.delimiter.encode()
        for i in odd:
            if stretches and stretches[-1][1] == i:
                stretches[-1] = (stretches[-1][0], i + 1)
            elif raws[i].strip():
                goes_on = i > 0 and self._layout.runs_over and gap not in raws[i]
                stretches.append((i - 1 if goes_on else i, i + 1))
        return stretches


def _choose(cells: Cells, chosen: list[bool]) -> Cells:
    return {name: list(compress(column, chosen)) for name, column in cells.items()}
