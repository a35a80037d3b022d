"""`rank` and `explain`: the question put to runs, and to one run in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_trace.cli import output, tables
from slurm_trace.cli.jobs import find_run
from slurm_trace.cli.tables import TOP
from slurm_trace.errors import CheckFailed

if TYPE_CHECKING:
    from slurm_trace.analysis.measured import Stretch
    from slurm_trace.assess import Assessment

_F = TypeVar("_F", bound=Callable[..., Any])

SAVED_AT_ONCE = 50_000
BASES = ("max_any_op", "max_fp_sparse", "max_fp_dense", "bf16_dense")
RUNGS = ("allocation", "cycles_elapsed", "cycles_active", "pipe_cycles", "busy")

JOB_COLUMNS = (
    "rank", "cluster", "job_id", "job_id_raw", "submit", "start", "end", "user", "account", "state",
    "nodes", "gpus", "gpu_count", "run_s", "held_s", "gpu_seconds", "bound_gpu_flop", "bound_cpu_flop",
    "bound_flop", "bound_flop_strict", "ratio", "rung", "verdict", "verdict_strict", "assumptions", "coverage",
    "flags", "reasons", "routes",
)  # fmt: skip
TERM_COLUMNS = (
    "node", "gpu", "kind", "device", "count", "from", "to", "seconds", "rung", "ceiling_flop_s", "flop", "source",
)  # fmt: skip


def question_options(command: _F) -> _F:
    """Threshold, basis, margin, trust, window and overlay, the same for every report."""
    for option in reversed(
        (
            click.option(
                "--threshold",
                default="eu-gpai",
                show_default=True,
                help="Id of a threshold, or a number of FLOP.",
            ),
            click.option(
                "--basis",
                type=click.Choice(BASES),
                default="max_any_op",
                show_default=True,
                help="What counts; bf16_dense is an estimate and rules nothing out.",
            ),
            click.option(
                "--trust",
                type=click.Choice(RUNGS),
                default="allocation",
                show_default=True,
                help="Lowest rung to go down to; below allocation the nodes' counters are believed.",
            ),
            click.option(
                "--margin",
                default="0.05",
                show_default=True,
                help="Fraction added to a bound before comparing.",
            ),
            click.option(
                "--since",
                metavar="TIME",
                help="Runs that touch the time from here (ISO time, UTC, or epoch).",
            ),
            click.option("--until", metavar="TIME", help="... to here, exclusive."),
            click.option("--rates-overlay", metavar="FILE", help="The site's own rates and thresholds."),
        )
    ):
        command = option(command)
    return command


def assessment(context: click.Context, options: Mapping[str, Any], **more: Any) -> Assessment:
    """Open the store and put the question; `more` is what a command adds to the `Request`."""
    from slurm_trace.accounting.times import parse_moment
    from slurm_trace.analysis.verdicts import margin_of
    from slurm_trace.assess import Request, assess
    from slurm_trace.store.engine import open_store

    request = Request(
        threshold=options["threshold"],
        basis=options["basis"],
        margin=margin_of(options["margin"]),
        since=None if options["since"] is None else parse_moment(options["since"]),
        until=None if options["until"] is None else parse_moment(options["until"]),
        profile=context.obj["config"],
        overlay=options["rates_overlay"],
        trust=options["trust"],
        **more,
    )
    store = open_store(context.obj["store"], create=False)
    try:
        return assess(store, request)
    finally:
        store.close()


@click.command()
@question_options
@click.option(
    "--top", type=click.IntRange(min=1), help=f"How many runs to print (table: {TOP} by default, else all)."
)
@click.option("--check", is_flag=True, help="Exit 1 unless every run is ruled out.")
@click.option("--save", is_flag=True, help="Keep the verdicts in the store, with what they were given on.")
@output.format_options
@click.pass_context
def rank(
    context: click.Context, /, output_format: str, top: int | None, check: bool, save: bool, **options: Any
) -> None:
    """Rank jobs by their compute bound against a threshold."""
    found = assessment(context, options, routes=output_format != "table")
    if output_format == "json":
        decisions = found.decisions()
        head = found.head("slurm-trace/rank/1") | {
            "verdicts": found.tally(),
            "verdicts_strict": found.tally(strict=True),
            "runaway_jobs": list(found.jobs(runaway=True, decisions=decisions)),
        }
        output.print_json(head, "jobs", found.jobs(top, decisions=decisions))
    elif output_format == "csv":
        output.print_csv(JOB_COLUMNS, found.jobs(top, decisions=found.decisions()))
    else:
        listed, apart = found.order(top or TOP), found.order(TOP, runaway=True)
        tables.print_ranking(with_routes(context, found, [*listed, *apart]), listed, apart)
    tables.warn_of_gaps(found)
    if save:
        _save(context, found)
    if check and not found.all_ruled_out:
        raise CheckFailed("not every run is ruled out, or not every row could be read")


@click.command()
@click.argument("job")
@question_options
@click.option("--strict", is_flag=True, help="The terms when nothing is granted that is not proven.")
@output.format_options
@click.pass_context
def explain(context: click.Context, /, job: str, output_format: str, strict: bool, **options: Any) -> None:
    """Print every term of one bound, its sources, and why it is not lower.

    JOB is [CLUSTER:]ID[@SUBMIT]; ID is the number that Slurm shows or its raw one.
    """
    found = assessment(context, options)
    position = find_run(found.envelope.runs, job)
    found = with_routes(context, found, [position])
    decisions = found.decisions([position])
    entry = next(iter(found.rows([position], decisions)))
    stretches = _stretches(context, found, position)
    if found.envelope.ladder is None:
        entry["reasons"] += _not_believed(stretches)
    terms = found.envelope.terms(position, strict=strict, stretches=stretches)
    told = [asdict(t) | {"from": t.from_, "flop": t.flop} for t in terms]
    ordered = [{name: term[name] for name in TERM_COLUMNS} for term in told]
    if output_format == "json":
        entry.pop("rank")
        output.print_json(
            found.head("slurm-trace/explain/1")
            | {"strict": strict, "job": entry, "energy": found.energy(position)},
            "terms",
            ordered,
        )
    elif output_format == "csv":
        output.print_csv(TERM_COLUMNS, ordered)
    else:
        tables.print_explanation(found, entry, ordered, strict=strict)
        tables.print_energy(found.energy(position))
        if not strict:
            tables.print_rules(decisions.counted(position))
    tables.warn_of_gaps(found)


def with_routes(context: click.Context, found: Assessment, positions: Sequence[int]) -> Assessment:
    """The assessment with what the rules take that speak of these runs beside their verdicts."""
    from slurm_trace.store.engine import open_store

    store = open_store(context.obj["store"], create=False)
    try:
        return found.near(store, positions)
    finally:
        store.close()


def _stretches(context: click.Context, found: Assessment, position: int) -> Sequence[Stretch]:
    """What telemetry proves of one run, stretch by stretch."""
    if found.envelope.runs["lease_gpus"].isna().to_numpy()[position]:
        return ()
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.telemetry import load_stretches

    store = open_store(context.obj["store"], create=False)
    try:
        return load_stretches(store, int(found.envelope.runs["run_id"].to_numpy()[position]))
    finally:
        store.close()


def _not_believed(stretches: Sequence[Stretch]) -> list[str]:
    """What counters prove and nothing is made of, since no trust goes to them."""
    proven = [one for one in stretches if one.kind.rung is not None]
    if not proven:
        return []
    lowest = max((str(one.kind.rung) for one in proven), key=[*RUNGS].index)
    seconds = sum(one.to_s - one.from_s for one in proven)
    return [f"counters of {seconds} GPU seconds are not believed without --trust, down to {lowest}"]


def _save(context: click.Context, found: Assessment) -> None:
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.verdicts import save_verdicts

    store = open_store(context.obj["store"], create=False)
    try:
        verdicts = found.verdicts()
        while part := list(islice(verdicts, SAVED_AT_ONCE)):
            save_verdicts(store, part)
    finally:
        store.close()
