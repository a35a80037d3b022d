"""How figures reach the user: a table for people, JSON and CSV for programs. Figures on stdout, all else on stderr."""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from slurm_trace.errors import EnvironmentProblem, UsageProblem

FORMATS = ("table", "json", "csv")

COLUMN_GAP = 3
"""Blanks between two columns of a table."""

_STEERING = frozenset({"Cc", "Cf", "Cs"})
"""Unicode categories of control and format characters (C0, C1, marks that turn the direction) and of no characters."""

_F = TypeVar("_F", bound=Callable[..., Any])


def format_options(command: _F) -> _F:
    """The options `--format` and `--json`; the command receives `output_format`."""
    command = click.option("--json", "output_format", flag_value="json", help="The same as --format json.")(
        command
    )
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print the figures.",
    )(command)


_told: ContextVar[set[str] | None] = ContextVar("_told", default=None)


def warn(message: str) -> None:
    """One line on stderr, stripped of control characters that a record may have brought along."""
    told = _told.get()
    if told is None or message not in told:
        click.echo("warning: " + printable(message), err=True)
    if told is not None:
        told.add(message)


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Inside of it, a warning that was given already is not given again: for several commands in one process."""
    token = _told.set(set())
    try:
        yield
    finally:
        _told.reset(token)


def printable(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _steerless(text: str) -> str:
    """Text for a program that a terminal may show too: what steers it is replaced, tabs and line ends are kept."""
    if text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _STEERING and c not in "\t\n" else c
        for c in text
    )


def whole_file(path: Path, option: str) -> Path:
    """Where a file that is written whole or not at all really lies: a link stays, and no device is replaced by a file.

    Raises:
        UsageProblem: There is something that is no file.
    """
    try:
        real = path.resolve()
        if path.name and (real.is_file() or not real.exists()):
            return real
    except (OSError, RuntimeError) as error:
        raise EnvironmentProblem(f"{path}: {error}; name another file with {option}") from error
    raise UsageProblem(f"{str(path)!r} is no file; name one with {option}")


def print_json(
    head: Mapping[str, Any], key: str | None = None, rows: Iterable[Mapping[str, Any]] = ()
) -> None:
    """A JSON object; `rows` is streamed as the last member, one entry a line, so that a million of them fit."""
    if key is None:
        click.echo(json.dumps(head, indent=2))
        return
    out = sys.stdout
    encode = json.JSONEncoder().encode
    text = json.dumps(head, indent=2)
    out.write(text[: text.rindex("\n}")] + f',\n  "{key}": [')
    separator = "\n    "
    for row in rows:
        out.write(separator + encode(row))
        separator = ",\n    "
    out.write("\n  ]\n}\n" if separator.startswith(",") else "]\n}\n")
    out.flush()


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """CSV with a header; lists and objects inside a cell are JSON, NULL is an empty cell."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    sys.stdout.flush()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        # A spreadsheet would run a cell that begins like a formula.
        return _steerless("'" + value if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value)
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    spare: Sequence[str] | None = None,
) -> None:
    """A table on stdout. Cells are text, never markup.

    Args:
        columns: Their names.
        rows: A cell a column.
        title: Stands above the table.
        right: Columns of figures, set to the right.
        spare: Columns that a terminal too narrow goes without, the first of them first. No cell is folded then; with
            None the cells of all columns are, as far as it takes.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 160)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    lines = [[printable(cell) for cell in row] for row in rows]
    shown, left_out = list(range(len(columns))), []
    if spare is not None:
        needs = [max(map(cell_len, (columns[i], *(line[i] for line in lines)))) + COLUMN_GAP for i in shown]
        for name in spare:
            if sum(needs[i] for i in shown) <= console.width:
                break
            shown.remove(columns.index(name))
            left_out.append(name)
        console.width = max(console.width, sum(needs[i] for i in shown))
    for i in shown:
        justify: Literal["left", "right"] = "right" if columns[i] in right else "left"
        table.add_column(columns[i], justify=justify, overflow="fold", no_wrap=spare is not None)
    for line in lines:
        table.add_row(*(Text(line[i]) for i in shown))
    console.print(table)
    if left_out:
        click.echo(f"  too narrow for: {', '.join(left_out)}; widen the terminal, or take --format csv")
