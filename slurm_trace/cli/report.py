"""`report`: the audit report as one HTML file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.cli import groups as group_command
from slurm_trace.cli import output
from slurm_trace.cli.ranking import assessment, question_options, with_routes
from slurm_trace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from slurm_trace.analysis.memberships import By
    from slurm_trace.assess import Assessment

TOP = 50
GROUPS: tuple[By, ...] = ("all", "cluster", "account", "user")


@click.command()
@question_options
@click.option("--html", "path", required=True, metavar="FILE", help="Where to write.")
@click.option(
    "--top", type=click.IntRange(min=1), default=TOP, show_default=True, help="How many runs to list."
)
@click.pass_context
def report(context: click.Context, /, path: str, top: int, **options: Any) -> None:
    """Write the audit report as one HTML file."""
    found = assessment(context, options)
    runs = [*found.order(top), *found.order(top, runaway=True)]
    write_html(with_routes(context, found, runs), Path(path), top)
    click.echo(f"wrote {path}", err=True)


def write_html(found: Assessment, path: Path, top: int = TOP) -> None:
    """Write the report of an assessment; a file that is there is replaced whole or left as it is.

    Args:
        found: The assessment, with the routes of the runs that are listed.
        path: Where to write.
        top: Runs to list.

    Raises:
        UsageProblem: There is something that is no file.
        EnvironmentProblem: The file can't be written.
    """
    from slurm_trace.analysis.picture import histogram
    from slurm_trace.analysis.report import render
    from slurm_trace.analysis.rules.ruleset import RuleSet
    from slurm_trace.analysis.thresholds import Thresholds

    listed, apart = found.order(top), found.order(top, runaway=True)
    decisions = found.decisions([*listed.tolist(), *apart.tolist()])
    rank = found.head("slurm-trace/rank/1") | {
        "verdicts": found.tally(),
        "verdicts_strict": found.tally(strict=True),
        "runaway_jobs": list(found.rows(apart, decisions)),
        "jobs": list(found.rows(listed, decisions)),
    }
    grouping, head = found.grouping(), found.head("slurm-trace/groups/1") | group_command.head(found)
    groups = [head | {"groups": list(group_command.entries(found, grouping.groups(by)))} for by in GROUPS]
    bounds = found.envelope.magnitude()[found.ranking_members].tolist()
    overlay = found.request.overlay
    marks = [(t.id, t.flop) for t in Thresholds.load(Path(overlay) if overlay else None)]
    page = render(rank, groups, marks, histogram(bounds, found.threshold.flop), RuleSet.load().rules)
    path = output.whole_file(path, "--html")
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise EnvironmentProblem(
            f"{path}: {error.strerror}; name a file in a folder you may write to"
        ) from error
