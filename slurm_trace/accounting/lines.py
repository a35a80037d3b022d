"""Physical lines that are no whole record by themselves: broken over several lines, overfull, cut, or foreign."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from slurm_trace.accounting.fields import Layout
from slurm_trace.accounting.header import header_layout
from slurm_trace.accounting.realign import realign
from slurm_trace.accounting.records import RejectedRow
from slurm_trace.accounting.rows import ReadRow, RowReader

#: Most lines that one record may be broken over, and most bytes it may have.
MAX_JOINED_LINES = 5_000
MAX_JOINED_BYTES = 1 << 20


def decode(raw: bytes) -> tuple[str, bool]:
    """Text of a line, and whether bytes had to be replaced: invalid UTF-8, or NUL, which no database takes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors="replace").replace("\0", "\ufffd"), True
    return (text.replace("\0", "\ufffd"), True) if "\0" in text else (text, False)


def header_text(raw: bytes) -> str:
    """Text of a line that may be a header; where files were put together the mark of UTF-8 stands before it."""
    return decode(raw)[0].removeprefix("\ufeff")


class LineReader:
    """Reads stretches of lines none of which is a plain record."""

    def __init__(self, layout: Layout, reader: RowReader) -> None:
        self._layout = layout
        self._reader = reader
        self._delimiter = layout.delimiter.encode()
        self._gaps = layout.width - 1

    def read(self, raws: list[bytes], first_line: int) -> list[ReadRow]:
        """Read a stretch; what cannot be read comes back as rejected, line by line."""
        gaps = [raw.count(self._delimiter) for raw in raws]
        so_far = [0, *accumulate(gaps)]
        alone = [
            gaps[i] >= self._gaps and self._try(raws[i : i + 1], 0) is not None for i in range(len(raws))
        ]
        results: list[ReadRow] = []
        i = 0
        while i < len(raws):
            if not raws[i].strip() or self._is_header(raws[i]):
                i += 1
                continue
            end = self._end(raws, i, so_far, alone)
            result = self._try(raws[i:end], first_line + i) if end else None
            if result is None:
                result = RejectedRow(first_line + i, self._reason(raws[i], gaps[i], first_line + i), raws[i])
                end = i + 1
            results.append(result)
            i = end
        return results

    def _end(self, raws: list[bytes], i: int, so_far: list[int], alone: list[bool]) -> int:
        """Index after the last line of the record that begins at `i`; 0 if the lines do not suffice for one.

        `so_far` counts the delimiters before each line.
        """
        enough = bisect_left(so_far, so_far[i] + self._gaps, i + 1)
        end = min(enough, i + MAX_JOINED_LINES)
        if end > len(raws) or end != enough or any(alone[i + 1 : end]):
            return 0
        if self._layout.runs_over:
            last = end
            while (
                last < len(raws)
                and so_far[last + 1] == so_far[last]
                and last - i < MAX_JOINED_LINES
                and not _foreign(raws[last])
            ):
                last += 1
                if raws[last - 1].strip():
                    end = last
        if sum(map(len, raws[i:end])) > MAX_JOINED_BYTES:
            return 0
        # What is a record without its first lines is one without them: these are the rest of something else.
        later = range(i + 1, bisect_right(so_far, so_far[end] - self._gaps, i + 1, end))
        return 0 if any(self._try(raws[k:end], 0) is not None for k in later) else end

    def _try(self, raws: list[bytes], line: int) -> ReadRow | None:
        """One record made of these lines, or None."""
        raw = b"\n".join(raws)
        text, replaced = decode(raw)
        pieces = text.split(self._layout.delimiter)
        flags = {"utf8_replaced"} if replaced else set()
        if len(raws) > 1:
            flags.add("line_joined")
        row: dict[str, str] | None
        if len(pieces) == self._layout.width:
            row = None if self._layout.trailing and pieces[-1] else self._layout.row(pieces)
        else:
            row = realign(pieces, self._layout)
            flags.add("line_realigned")
        if row is None:
            return None
        result = self._reader.read(row, line, raw, flags)
        return None if isinstance(result, RejectedRow) else result

    def _reason(self, raw: bytes, gaps: int, line: int) -> str:
        if gaps < self._gaps:
            return f"{gaps + 1} of {self._gaps + 1} columns: the line is cut or foreign"
        if gaps > self._gaps:
            return (
                f"{gaps + 1} pieces for {self._gaps + 1} columns: the delimiter stands in a name; "
                "export again with --delimiter=$'\\x1f'"
            )
        result = self._reader.read(self._layout.row(decode(raw)[0].split(self._layout.delimiter)), line, raw)
        return result.reason if isinstance(result, RejectedRow) else "not readable"

    def _is_header(self, raw: bytes) -> bool:
        """Whether a line repeats the header, as where two exports were put together."""
        if b"jobid" not in raw.lower():
            return False
        layout = header_layout(header_text(raw), self._layout.delimiter)
        return layout is not None and layout.names == self._layout.names


def _foreign(raw: bytes) -> bool:
    """A message of sacct itself, not the rest of a name."""
    return raw.startswith((b"sacct: ", b"slurm_"))
