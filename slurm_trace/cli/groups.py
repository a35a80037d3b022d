"""`groups`: the question put to groups of runs, top down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.cli import group_tables, output, tables
from slurm_trace.cli.ranking import assessment, question_options
from slurm_trace.cli.spans import seconds
from slurm_trace.cli.tables import TOP
from slurm_trace.errors import CheckFailed, UsageProblem, unreadable

if TYPE_CHECKING:
    from slurm_trace.accounting.sreport import ControlTotal
    from slurm_trace.analysis.groups import Group
    from slurm_trace.assess import Assessment

BY = ("all", "cluster", "account", "user", "lineage", "family")
PAUSE = "14d"
AT_ONCE = 5_000
"""Groups that the rules are put to at once."""


@click.command()
@question_options
@click.option(
    "--by",
    "kinds",
    type=click.Choice(BY),
    multiple=True,
    default=("all",),
    show_default=True,
    help="Which groups; may be given more than once. lineage: runs of one user that look like one piece of work. "
    "family: rows of one job.",
)
@click.option(
    "--within",
    metavar="LENGTH",
    callback=seconds,
    help="Of each group, only the runs that touch its worst window of this length.",
)
@click.option(
    "--pause",
    metavar="LENGTH",
    callback=seconds,
    default=PAUSE,
    show_default=True,
    help="Longest pause inside a lineage.",
)
@click.option(
    "--base-flop",
    metavar="FLOP",
    help="Training compute of the base model that the runs went on from: a line of its own, or what sets the "
    "threshold of a modification.",
)
@click.option(
    "--sreport",
    "reports",
    metavar="FILE",
    multiple=True,
    help="What sreport -P -t seconds -T cpu,gres/gpu cluster AccountUtilizationByUser printed: records that hold "
    "less are not complete.",
)
@click.option(
    "--tz", default="UTC", show_default=True, metavar="ZONE", help="Zone of the times in --sreport."
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help=f"How many groups of a kind to print (table: {TOP} by default, else all).",
)
@click.option("--check", is_flag=True, help="Exit 1 unless every group is ruled out.")
@output.format_options
@click.pass_context
def groups(
    context: click.Context,
    /,
    output_format: str,
    kinds: tuple[Any, ...],
    within: int | None,
    pause: int,
    base_flop: str | None,
    reports: tuple[str, ...],
    tz: str,
    top: int | None,
    check: bool,
    **options: Any,
) -> None:
    """Put the same question to groups of jobs, top down."""
    from slurm_trace.analysis.groups import Group, Terms

    terms = Terms(pause, within, None if base_flop is None else _flop(base_flop))
    kinds = tuple(dict.fromkeys(kinds))
    found = assessment(context, options, kinds=kinds, terms=terms, control=_control(reports, tz))
    grouping = found.grouping()
    lines = {by: grouping.groups(by) for by in kinds}
    chosen = (group for listed in lines.values() for group in listed[:top])
    if output_format == "json":
        output.print_json(found.head("slurm-trace/groups/1") | head(found), "groups", entries(found, chosen))
    elif output_format == "csv":
        output.print_csv([*(field.name for field in fields(Group)), "routes"], entries(found, chosen))
    else:
        group_tables.print_groups(found, grouping, lines, top or TOP)
    tables.warn_of_gaps(found)
    group_tables.warn_of_records(found)
    unread = not any(len(listed) for listed in lines.values()) and not found.all_ruled_out
    if check and (
        unread or not all(_cleared(listed.tally(), listed.tally_with_base()) for listed in lines.values())
    ):
        raise CheckFailed("not every group is ruled out")


def _cleared(tally: Mapping[str, int], with_base: Mapping[str, int] | None) -> bool:
    found = tally if with_base is None else with_base
    return not any(n for verdict, n in found.items() if verdict != "RULED_OUT")


def head(found: Assessment) -> dict[str, Any]:
    """What a report on groups says besides, before the groups."""
    terms, base_flop = found.terms, found.request.terms.base_flop
    return {
        "pause_s": terms.pause_s,
        "within_s": terms.within_s,
        "base_model": None
        if base_flop is None
        else {"flop": base_flop, "use": "threshold" if terms.base_flop is None else "added"},
        "control_totals": [
            asdict(c.total) | {"records_s": c.records_s, "short_s": c.short_s} for c in found.control
        ],
        "job_ids": {name: asdict(ids) for name, ids in found.job_ids.items()},
    }


def entries(found: Assessment, groups: Iterable[Group]) -> Iterator[dict[str, Any]]:
    """Groups in the form of the JSON contract."""
    left = iter(groups)
    while part := list(islice(left, AT_ONCE)):
        for group, routes in zip(part, found.group_routes(part), strict=True):
            yield {field.name: getattr(group, field.name) for field in fields(group)} | {"routes": routes}


def _flop(text: str) -> int:
    from slurm_trace.analysis.thresholds import number

    value = number(text)
    if value is None or value < 1:
        raise UsageProblem(f"--base-flop {text[:60]!r}: give a number of operations such as 3e23")
    return -(-value.numerator // value.denominator)


def _control(reports: tuple[str, ...], tz: str) -> tuple[ControlTotal, ...]:
    from slurm_trace.accounting.sreport import read_sreport
    from slurm_trace.accounting.times import parse_zone

    zone, found = parse_zone(tz), []
    for name in reports:
        try:
            with Path(name).open(encoding="utf-8-sig", errors="replace") as lines:
                found += read_sreport(lines, zone, name)
        except (OSError, ValueError) as error:
            raise unreadable(name, error, "name a file that sreport wrote with --sreport") from error
    return tuple(found)
