"""The first lines of a text: its columns and delimiter, or why it is no export of sacct."""

from __future__ import annotations

import re

from slurm_trace.accounting.fields import KNOWN_COLUMNS, SHAPES, Layout, make_layout
from slurm_trace.accounting.options import ReadOptions, plain_delimiter
from slurm_trace.accounting.realign import realign
from slurm_trace.errors import InputProblem

#: What to do about an input that is no export of sacct.
REMEDY = (
    "export again with: TZ=UTC SLURM_TIME_FORMAT=%s sacct -a -D -P --delimiter=$'\\x1f' -S START -E END "
    "-o JobID,JobIDRaw,Cluster,User,UID,Account,Partition,State,Submit,Start,End,Elapsed,Suspended,TimelimitRaw,"
    "NNodes,AllocCPUS,NodeList,AllocTRES,WorkDir,JobName"
)

#: Delimiters tried on a text without header if none is given; longer ones first.
_USUAL = ("^|^", ";|;", "|#", "\x1f", "|", "\t", ";", ",", "^", "~", "@", "#", ":")

_FIRST_GAP = re.compile(r"[A-Za-z]+([^A-Za-z0-9]+)[A-Za-z]")
_DASHES = re.compile(r"-+( +-+)+ *")
_FIXED = re.compile(r" *\S+(?: {2,}| +\S+ {2,})\S")


def find_layout(lines: list[str], options: ReadOptions) -> tuple[Layout, int]:
    """The layout of a text and how many of its first lines are header.

    Args:
        lines: The first lines, without their ends; the first one is not blank.
        options: Delimiter and columns as given by the caller, which count only where the text has no header.

    Raises:
        InputProblem: This is no sacct text that can be read.
    """
    crlf = lines[0].endswith("\r")
    first = lines[0].removesuffix("\r")
    delimiter = plain_delimiter(options.delimiter) if options.delimiter else None
    layout = header_layout(first, delimiter, crlf=crlf)
    if layout is not None:
        return layout, 1
    if options.fields:
        return _given_layout(lines, options.fields, delimiter, options, crlf=crlf), 0
    raise InputProblem(_refusal(first, lines, options))


def header_layout(line: str, delimiter: str | None, *, crlf: bool = False) -> Layout | None:
    """The layout that a line names as a header, or None if it is none."""
    if delimiter is None:
        gap = _FIRST_GAP.match(line)
        if gap is None or not gap.group(1).strip(" "):
            return None
        delimiter = gap.group(1)
    names = line.split(delimiter)
    trailing = len(names) > 1 and names[-1] == ""
    if trailing:
        names.pop()
    known = [name for name in names if name.strip().lower() in KNOWN_COLUMNS]
    layout = make_layout(names, delimiter, trailing=trailing, crlf=crlf)
    has_id = "job_id" in layout.columns or "job_id_raw" in layout.columns
    return layout if has_id and len(known) > 1 else None


def _given_layout(
    lines: list[str], fields: tuple[str, ...], delimiter: str | None, options: ReadOptions, *, crlf: bool
) -> Layout:
    names = [field.partition("%")[0] for field in fields]
    if not {"jobid", "jobidraw"} & {name.strip().lower() for name in names}:
        raise InputProblem(
            f"{options.source_name}: --fields names neither JobID nor JobIDRaw; name every column"
        )
    layouts = [
        make_layout(names, candidate, trailing=trailing, crlf=crlf)
        for candidate in ((delimiter,) if delimiter else _USUAL)
        for trailing in (False, True)
    ]
    for fits in (_is_whole, _is_overfull):
        fitting = [sum(fits(line.removesuffix("\r"), layout) for line in lines) for layout in layouts]
        if any(fitting):
            return layouts[fitting.index(max(fitting))]
    raise InputProblem(
        f"{options.source_name}: line 1: no line of this text falls into the {len(names)} columns of --fields; "
        "name the columns that are there, or give --delimiter"
    )


def _is_whole(line: str, layout: Layout) -> bool:
    pieces = line.split(layout.delimiter)
    if len(pieces) != layout.width or layout.width == 1 or (layout.trailing and pieces[-1]):
        return False
    row = layout.row(pieces)
    return SHAPES["jobid"].fullmatch(row.get("job_id") or row.get("job_id_raw", "")) is not None


def _is_overfull(line: str, layout: Layout) -> bool:
    return realign(line.split(layout.delimiter), layout) is not None


def _refusal(first: str, lines: list[str], options: ReadOptions) -> str:
    where = f"{options.source_name}: line 1:"
    if any(_DASHES.fullmatch(line.removesuffix("\r")) for line in lines[:3]) or _FIXED.match(first):
        return f"{where} this is fixed-width output, in which sacct cuts names and states; {REMEDY}"
    if first.startswith(("sacct:", "slurm_")):
        return f"{where} sacct reported a failure ({_shorten(first)}); repair that and {REMEDY}"
    return f"{where} no header of sacct ({_shorten(first)}); name the columns with --fields, or {REMEDY}"


def _shorten(text: str) -> str:
    return ascii(text[:60])
