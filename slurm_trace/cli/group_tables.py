"""What `groups` prints for people. Programs get the exact figures as JSON or CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from slurm_trace.analysis.figures import NAMED, listing, ratio
from slurm_trace.analysis.names import moment
from slurm_trace.cli import output
from slurm_trace.cli.footnotes import COLUMN, Footnotes
from slurm_trace.cli.spans import span
from slurm_trace.cli.tables import STRICTLY, TOP, flop, hours, or_dash, summary, tally_line

if TYPE_CHECKING:
    from slurm_trace.analysis.groups import Group, Grouping, Groups
    from slurm_trace.assess import Assessment


def print_groups(found: Assessment, grouping: Grouping, lines: Mapping[str, Groups], top: int) -> None:
    """What came out for all groups of each kind, then the first of them, the ones that can't be ruled out first."""
    asked, *_, inputs = summary(found)[:4]
    click.echo(asked.replace("Which runs", "Which groups"))
    for by, groups in lines.items():
        of = _of(by, lines)
        click.echo(f"  with the declared and the default assumptions{of}: " + tally_line(groups.tally()))
        click.echo(f"  {STRICTLY}{of}: " + tally_line(groups.tally(strict=True)))
    click.echo(inputs)
    for line in _terms(found, grouping, lines):
        click.echo(line)
    for by, groups in lines.items():
        _print_kind(found, by, groups, top)


def _of(by: str, lines: Mapping[str, Groups]) -> str:
    return f", by {by}" if len(lines) > 1 else ""


def _terms(found: Assessment, grouping: Grouping, lines: Mapping[str, Groups]) -> list[str]:
    terms, base_flop, told = found.terms, found.request.terms.base_flop, []
    if terms.within_s is not None:
        told.append(
            f"  of each group the runs that touch its worst window of {span(terms.within_s)}, each counted whole"
        )
    if "lineage" in lines:
        told.append(
            f"  a lineage may pause for {span(terms.pause_s)}; the wider groups hold what is split further"
        )
    if base_flop is not None and terms.base_flop is None:
        told.append(
            f"  the threshold is {found.threshold.of_base} of the base model's {flop(base_flop)} FLOP"
        )
    elif base_flop is not None:
        told.append(
            f"  apart from the groups' own contribution: {flop(base_flop)} FLOP of a base model, as given"
        )
        for by, groups in lines.items():
            told.append(
                f"  together with the base model, by {by}: " + tally_line(groups.tally_with_base() or {})
            )
    if set(lines) != {"all"} and grouping.everything_ruled_out:
        told.append("  all runs together are ruled out, and so is every group of them")
    unattributed = sum(found.records.unattributed.values())
    if unattributed:
        told.append(f"  {flop(unattributed)} operations were seen while no run held the card (unattributed)")
    return told


def _print_kind(found: Assessment, by: str, groups: Groups, top: int) -> None:
    shown = groups[:top]
    windows, labels = any(g.worst_window for g in shown), any(g.label for g in shown)
    base = found.terms.base_flop is not None
    columns = [
        "group",
        *(["what"] if labels else []),
        *(["worst window from"] if windows else []),
        *("runs", "users", "GPU hours", "bound FLOP", "of T", "verdict", "strict"),
        *(["with base", "verdict with base"] if base else []),
        *("fewest runs", "fewest users", COLUMN),
    ]
    notes = Footnotes()
    output.print_table(
        columns,
        [
            (
                g.key,
                *([g.label or "-"] if labels else []),
                *([moment(g.worst_window["since"]) if g.worst_window else "-"] if windows else []),
                str(g.jobs),
                str(g.users),
                hours(g.gpu_seconds) + (f" (+{g.gpu_unknown_jobs} unknown)" if g.gpu_unknown_jobs else ""),
                flop(g.bound_flop),
                ratio(g.ratio),
                g.verdict,
                g.verdict_strict,
                *([ratio(g.ratio_with_base), g.verdict_with_base or "-"] if base else []),
                or_dash(g.fewest_jobs),
                or_dash(g.fewest_users),
                notes.mark(routes),
            )
            for g, routes in zip(shown, found.group_routes(shown), strict=True)
        ],
        title=f"by {by}" if by != "all" else None,
        right=(
            "runs",
            "users",
            "GPU hours",
            "bound FLOP",
            "of T",
            "with base",
            "fewest runs",
            "fewest users",
        ),
        spare=("users", "GPU hours", "fewest users", "strict", "what", "fewest runs"),
    )
    if len(groups) > top:
        click.echo(f"  and {len(groups) - top} more groups, further down in the same order (--top)")
    for line in notes.lines():
        click.echo(line)
    _print_fewest(shown)
    since, until = map(moment, found.records.period)
    cleared = f"ruled out all the same by what the hardware of the inventory can do from {since} to {until}"
    reasons: dict[tuple[str, str], list[str]] = {}
    for g in shown:
        for reason in g.reasons:
            what = cleared if g.verdict == "RULED_OUT" else "not enough to tell"
            reasons.setdefault((what, reason), []).append(g.key)
    for (what, reason), keys in list(reasons.items())[:TOP]:
        of = "" if len(keys) == len(shown) else f" of {listing(keys)}"
        click.echo(output.printable(f"  {what}{of}: {reason}"))


def _print_fewest(shown: Sequence[Group]) -> None:
    """Of the first groups, and of these the first runs and users; JSON and CSV name more."""
    for group in shown[:NAMED]:
        for what, number, names in (
            ("runs", group.fewest_jobs, group.fewest_jobs_list),
            ("users", group.fewest_users, group.fewest_users_list),
        ):
            if number is not None and not (what == "users" and group.users == 1):
                more = f" and {number - NAMED} more" if number > NAMED else ""
                line = f"  fewest {what} of {group.key} that could reach T: {', '.join(names[:NAMED])}{more}"
                click.echo(output.printable(line))


def warn_of_records(found: Assessment) -> None:
    """On stderr: where the records hold less than another account of the same time, and ids that no record has."""
    from slurm_trace.analysis.job_ids import WHY_ABSENT

    for compared in found.control:
        if compared.short_s:
            output.warn(f"cluster {compared.total.cluster}: {compared.reason}")
    for name, ids in found.job_ids.items():
        if ids.absent:
            output.warn(
                f"cluster {name}: {ids.absent} job ids from {ids.lowest} to {ids.highest} are in no record; "
                + WHY_ABSENT
            )
