"""One entry for what a user hands over: text or JSON, told apart by the first byte that is not blank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, cast

from slurm_trace.accounting.json_reader import read_json
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunBlock
from slurm_trace.accounting.text import read_text
from slurm_trace.errors import InputProblem

_HEAD_BYTES = 1 << 12
_UTF8_MARK = b"\xef\xbb\xbf"

#: First bytes of compressed files, and what unpacks them.
_PACKED = (
    (b"\x1f\x8b", "gzip -dc"),
    (b"\xfd7zXZ", "xz -dc"),
    (b"(\xb5/\xfd", "zstd -dc"),
    (b"BZh", "bzip2 -dc"),
)


class _Rewound:
    """A stream whose first bytes were looked at and are given out again."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as many as asked for unless the stream ends."""
        if not self._head:
            return self._stream.read(size)
        if size < 0:
            data, self._head = self._head + self._stream.read(), b""
            return data
        data, self._head = self._head[:size], self._head[size:]
        return data if len(data) == size else data + self._stream.read(size - len(data))


def read_any(stream: IO[bytes], options: ReadOptions) -> Iterator[RunBlock]:
    """Read an export of sacct, text or JSON.

    Raises:
        InputProblem: The input is neither.
        EnvironmentProblem: Slurm reported an error inside of it.
    """
    head = b""
    while len(head) < _HEAD_BYTES and (chunk := stream.read(_HEAD_BYTES - len(head))):
        head += chunk
    for mark, remedy in _PACKED:
        if head.startswith(mark):
            raise InputProblem(
                f"{options.source_name}: the file is compressed; use: {remedy} FILE | slurm-trace import sacct -"
            )
    rewound = cast(IO[bytes], _Rewound(head.removeprefix(_UTF8_MARK), stream))
    is_json = head.removeprefix(_UTF8_MARK).lstrip()[:1] in (b"{", b"[")
    yield from (read_json if is_json else read_text)(rewound, options)
