"""What a reader of accounting is told about its input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo

_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|t|\\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How one input is to be read.

    Attributes:
        cluster: Name for rows that name no cluster themselves.
        zone: Zone of times that carry none; None reads them as UTC, warns once and flags the runs.
        delimiter: What stands between two columns; None finds it in the header.
        fields: Names of the columns if the input has no header.
        queried_at: Moment (epoch seconds) at which the records were true; None if unknown.
        source_name: Name of the input in messages.
        one_answer: sacct itself just wrote it, so that a header in its middle can only stand in a name.
    """

    cluster: str | None = None
    zone: tzinfo | None = None
    delimiter: str | None = None
    fields: tuple[str, ...] | None = None
    queried_at: int | None = None
    source_name: str = "input"
    one_answer: bool = False


def plain_delimiter(text: str) -> str:
    r"""A delimiter as typed on a command line, its escapes `\t`, `\\` and `\x1f` resolved."""

    def resolve(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if code[0] == "x" else {"t": "\t", "\\": "\\"}[code]

    return _ESCAPE.sub(resolve, text)
