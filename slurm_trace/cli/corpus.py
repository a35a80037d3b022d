"""`corpus run`: constructed sites at the boundaries of what is decided, and whether any route has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.cli import output
from slurm_trace.cli.corpus_files import real_folder, refuse_written, write_run
from slurm_trace.errors import CheckFailed
from slurm_trace.version import EVALUATOR_VERSION, VERSION

if TYPE_CHECKING:
    from slurm_trace.analysis.corpus.runner import Outcome

PROCESSES = 2
"""More would not pay for the second that each takes to start."""

COLUMNS = (
    "name", "design", "instances", "runs", "verdicts", "warned", "simulated", "not_one_sided", "not_as_intended",
    "changed", "about",
)  # fmt: skip
DESIGN_COLUMNS = ("name", "design", "about")
VERDICTS = ("RULED_OUT", "NOT_RULED_OUT", "INSUFFICIENT", "NO_RUN_STARTED")
CASES_SHOWN = 5


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), help="Directory for sites and routes; absent or empty."
)
@click.option("--seed", type=int, help="Seed of the sites; by default that of the committed expectations.")
@click.option(
    "--instances", "most", type=click.IntRange(min=1), help="At most so many instances of each family."
)
@click.option("--dry-run", is_flag=True, help="Print the design and check it; judge and write nothing.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit 1 if a route changed, a bound is not one-sided, or the design is not sound.",
)
@output.format_options
def run(
    out: Path | None, seed: int | None, most: int | None, output_format: str, *, dry_run: bool, check: bool
) -> None:
    """Put the boundary corpus through the analysis and compare its routes with the expected ones.

    A match rate is internal consistency, not detection, and has no base rate.
    """
    from slurm_trace.analysis.corpus.design import DEFAULT_SEED

    chosen = DEFAULT_SEED if seed is None else seed
    if dry_run:
        _dry_run(chosen, most, output_format, check=check)
        return
    if out is not None:
        out = real_folder(out)
        refuse_written(out)
    outcome = _judge(chosen, most)
    from slurm_trace.analysis.corpus.report import summary

    figures = summary(outcome, most)
    if out is not None:
        _write(out, outcome, most, figures)
    if output_format == "json":
        output.print_json(figures)
    elif output_format == "csv":
        output.print_csv(COLUMNS, figures["families"])
    else:
        _print(figures, outcome)
    if outcome.changes is None:
        output.warn(f"no routes are expected of seed {chosen}, so none can be said to have changed")
    if not outcome.holds:
        problem = "a route changed, a bound is not one-sided, or a family contradicts its own arithmetic"
        if check:
            raise CheckFailed(problem)
        output.warn(problem)


def _judge(seed: int, most: int | None) -> Outcome:
    from rich.console import Console
    from rich.progress import Progress

    from slurm_trace.analysis.corpus.runner import run as run_corpus

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("sites", total=None)
        return run_corpus(
            seed,
            most,
            min(PROCESSES, os.cpu_count() or 1),
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def _write(out: Path, outcome: Outcome, most: int | None, figures: dict[str, Any]) -> None:
    from slurm_trace.analysis.corpus.design import compact

    config = {
        "schema": "slurm-trace/corpus-config/1",
        "seed": outcome.seed,
        "most_of_a_family": most,
        "version": VERSION,
        "evaluator": EVALUATOR_VERSION,
        "inputs": outcome.digests,
    }
    lines = {
        "sites.jsonl": (case.instance.line() for case in outcome.cases),
        "raw_routes.jsonl": (compact(case.line()) for case in outcome.cases),
    }
    write_run(out, config, outcome.seed, figures, lines)


def _dry_run(seed: int, most: int | None, output_format: str, *, check: bool) -> None:
    from slurm_trace.analysis.corpus.anchors import load_anchors
    from slurm_trace.analysis.corpus.design import self_check
    from slurm_trace.analysis.corpus.families import FAMILIES

    problems = self_check(seed, load_anchors(), most)
    families = [{"name": f.name, "design": f.count, "about": f.about} for f in FAMILIES]
    total = sum(family.count for family in FAMILIES)
    if output_format == "json":
        head = {
            "schema": "slurm-trace/corpus-design/1",
            "seed": seed,
            "total": total,
            "sound": not problems,
            "problems": problems,
        }
        output.print_json(head, "families", families)
    elif output_format == "csv":
        output.print_csv(DESIGN_COLUMNS, families)
    else:
        output.print_table(
            DESIGN_COLUMNS, [[str(f[name]) for name in DESIGN_COLUMNS] for f in families], right=("design",)
        )
        click.echo(f"{total} instances in {len(families)} families, seed {seed}")
        click.echo(
            "self-check: enough families and instances, ids unique, the same bytes when made twice"
            if not problems
            else "self-check failed"
        )
    for problem in problems:
        output.warn(problem)
    if problems and check:
        raise CheckFailed("the design of the corpus is not sound")


def _print(figures: dict[str, Any], outcome: Outcome) -> None:
    columns = ("family", "instances", *VERDICTS, "not one-sided", "changed")
    total = {"name": "all", **figures["total"]}
    rows = [
        [
            f["name"],
            str(f["instances"]),
            *(str(f["verdicts"].get(v, 0)) for v in VERDICTS),
            str(f["not_one_sided"]),
            "-" if f["changed"] is None else str(f["changed"]),
        ]
        for f in [*figures["families"], total]
    ]
    output.print_table(columns, rows, right=columns[1:])
    for change in (outcome.changes or ())[:CASES_SHOWN]:
        varies = ", ".join(f"{name}={value}" for name, value in change.instance.site.varies.items())
        click.echo(
            f"changed: {change.instance.id} ({varies}): expected {change.expected}, found {change.found}"
        )
    for case in figures["not_one_sided"][:CASES_SHOWN]:
        click.echo(f"not one-sided: {case['id']} {case['kind']} {case['key']}: {case['why']}")
    for case in figures["not_as_intended"][:CASES_SHOWN]:
        click.echo(f"not as intended: {case['id']}: intended {case['intended']}, found {case['found']}")
    if figures["match_rate"] is not None:
        click.echo(f"match rate {figures['match_rate']:.6f}. {figures['what_it_shows']}")
    else:
        click.echo(figures["what_it_shows"])
