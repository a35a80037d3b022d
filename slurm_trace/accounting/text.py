"""Text of `sacct -p` and `-P`, read in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from slurm_trace.accounting.block_parser import BlockParser
from slurm_trace.accounting.blocks import BlockMaker, empty_columns
from slurm_trace.accounting.fields import Layout
from slurm_trace.accounting.header import REMEDY, find_layout, header_layout
from slurm_trace.accounting.lines import decode, header_text
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RejectedRow, RunBlock
from slurm_trace.accounting.rows import RowReader
from slurm_trace.errors import InputProblem

BLOCK_BYTES = 2 << 20

#: A longer line is no row: it is rejected, and only its beginning kept.
MAX_LINE_BYTES = 4 << 20
KEPT_BYTES = 1 << 16

_HEAD_BYTES = 1 << 20
_UTF8_MARK = b"\xef\xbb\xbf"


def read_text(stream: IO[bytes], options: ReadOptions) -> Iterator[RunBlock]:
    """Read an export of sacct.

    Args:
        stream: The bytes; read once, from where it stands.
        options: How to read them.

    Yields:
        Blocks of runs. A run whose steps may still follow comes with the next block.

    Raises:
        InputProblem: The input is empty, is no sacct text, or another export begins in its middle; what was read
            before that has been handed out.
    """
    head = _read_head(stream)
    body = head.removeprefix(_UTF8_MARK)
    blank = len(body) - len(body.lstrip(b"\r\n"))
    first_line = body[:blank].count(b"\n") + 1
    body = body[blank:]
    if not body.strip():
        raise InputProblem(
            f"{options.source_name}: empty output: an export has at least its header; do not call sacct with -n, and "
            "look at its exit status"
        )
    if b"\0" in body[:4] or body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputProblem(
            f"{options.source_name}: this is no UTF-8 text; convert it with iconv, or {REMEDY}"
        )
    first, ended, _ = body.partition(b"\n")
    if not ended and len(head) == _HEAD_BYTES:
        raise InputProblem(
            f"{options.source_name}: line {first_line}: longer than {_HEAD_BYTES >> 20} MiB, so no header of sacct; "
            + REMEDY
        )
    if b"\r" in first.rstrip(b"\r"):
        raise InputProblem(
            f"{options.source_name}: line {first_line}: lines end with a bare carriage return; convert them with: "
            "tr '\\r' '\\n' < FILE | slurm-trace import sacct -"
        )
    lines = [decode(line)[0] for line in body.split(b"\n")[:20]]
    layout, header_lines = find_layout(lines, options)
    if header_lines:
        body = body.partition(b"\n")[2]
        first_line += header_lines
    yield from _Reading(stream, options, layout).blocks(body, first_line)


def _read_head(stream: IO[bytes]) -> bytes:
    head = b""
    while len(head) < _HEAD_BYTES:
        chunk = stream.read(_HEAD_BYTES - len(head))
        if not chunk:
            break
        head += chunk
    return head


class _Reading:
    """One pass over the lines behind the header."""

    def __init__(self, stream: IO[bytes], options: ReadOptions, layout: Layout) -> None:
        self._stream = stream
        self._options = options
        self._layout = layout
        self._maker = BlockMaker(options)
        self._parser = BlockParser(layout, RowReader(options))

    def blocks(self, pending: bytes, line: int) -> Iterator[RunBlock]:
        while True:
            chunk = self._stream.read(BLOCK_BYTES)
            data = pending + chunk
            if not chunk:
                break
            end = data.rfind(b"\n") + 1
            if len(data) - end > MAX_LINE_BYTES:
                yield from self._parse(data[:end], line, last=False)
                line += data.count(b"\n", 0, end)
                yield self._maker.make(empty_columns(), [_too_long(data[end:], line)], last=False)
                pending, line = self._after_line(), line + 1
                continue
            whole, pending = self._cut(data)
            if whole:
                yield from self._parse(whole, line, last=False)
                line += whole.count(b"\n")
        yield from self._parse(data, line, last=True)

    def _after_line(self) -> bytes:
        while chunk := self._stream.read(BLOCK_BYTES):
            if b"\n" in chunk:
                return chunk.partition(b"\n")[2]
        return b""

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        """What can be read now, and what must wait: the last whole row may go on in lines that are still to come."""
        end = data.rfind(b"\n") + 1
        gap, gaps = self._layout.delimiter.encode(), self._layout.width - 1
        start = end
        while start > 0 and end - start < BLOCK_BYTES:
            start = data.rfind(b"\n", 0, start - 1) + 1
            if data.count(gap, start, data.index(b"\n", start)) == gaps:
                return data[:start], data[start:]
        return data[:end], data[end:]

    def _parse(self, data: bytes, line: int, *, last: bool) -> Iterator[RunBlock]:
        other = None if self._options.one_answer else self._other_header(data)
        if other is None:
            yield self._maker.make(*self._parser.parse(data, line), last=last)
            return
        yield self._maker.make(*self._parser.parse(data[:other], line), last=True)
        line += data.count(b"\n", 0, other)
        raise InputProblem(
            f"{self._options.source_name}: line {line}: another export with other columns "
            "begins here; import it as a file of its own"
        )

    def _other_header(self, data: bytes) -> int | None:
        """Where a header of other columns begins, if there is one."""
        folded = data.lower()
        at = folded.find(b"jobid")
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            layout = header_layout(header_text(data[start:end]).removesuffix("\r"), None)
            if (
                layout is not None
                and (layout.names, layout.trailing) != (self._layout.names, self._layout.trailing)
                and not self._goes_on(data[end + 1 :].partition(b"\n")[0], layout)
            ):
                return start
            at = folded.find(b"jobid", end)
        return None

    def _goes_on(self, following: bytes, other: Layout) -> bool:
        """Whether the line behind a header is a row of this export and can be none of the other one's.

        Then the header stood in the name of a job.
        """
        gaps = [following.count(layout.delimiter.encode()) + 1 for layout in (self._layout, other)]
        return gaps[0] == self._layout.width and gaps[1] != other.width


def _too_long(data: bytes, line: int) -> RejectedRow:
    return RejectedRow(line, f"line longer than {MAX_LINE_BYTES >> 20} MiB", data[:KEPT_BYTES])
