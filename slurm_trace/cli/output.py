"""How figures reach the user: a table for people, JSON and CSV for programs. Figures on stdout, all else on stderr."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

FORMATS = ("table", "json", "csv")

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


def warn(message: str) -> None:
    """One line on stderr, stripped of control characters that a record may have brought along."""
    click.echo("warning: " + printable(message), err=True)


def printable(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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
        return "'" + value if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
) -> None:
    """A table on stdout. Cells are text, never markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 160)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
