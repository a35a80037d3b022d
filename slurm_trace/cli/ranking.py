"""`rank`, `groups` and `explain`: the question put to runs, to groups of runs, and to one run in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context
from itertools import islice
from typing import TYPE_CHECKING, Any, SupportsInt, TypeVar

import click

from slurm_trace.cli import output
from slurm_trace.errors import CheckFailed, UsageProblem

if TYPE_CHECKING:
    from slurm_trace.analysis.groups import Group
    from slurm_trace.assess import Assessment

_F = TypeVar("_F", bound=Callable[..., Any])

TOP = 20
SAVED_AT_ONCE = 50_000
BASES = ("max_any_op", "max_fp_sparse", "max_fp_dense", "bf16_dense")
BY = ("all", "cluster", "account", "user")

JOB_COLUMNS = (
    "rank", "cluster", "job_id", "job_id_raw", "submit", "start", "end", "user", "account", "state",
    "nodes", "gpus", "gpu_count", "run_s", "held_s", "gpu_seconds", "bound_gpu_flop", "bound_cpu_flop",
    "bound_flop", "bound_flop_strict", "ratio", "rung", "verdict", "verdict_strict", "assumptions", "coverage",
    "flags", "reasons",
)  # fmt: skip
TERM_COLUMNS = (
    "node", "gpu", "kind", "device", "count", "from", "to", "seconds", "rung", "ceiling_flop_s", "flop", "source",
)  # fmt: skip

RANK_COLUMNS = (
    "#", "job", "user", "account", "state", "nodes", "GPUs", "held", "bound FLOP", "of T", "verdict", "strict",
)  # fmt: skip
RANK_FIGURES = ("#", "nodes", "held", "bound FLOP", "of T")
RANK_SPARE = ("nodes", "account", "state", "user", "strict", "#")

ALWAYS_GRANTED = frozenset({"records_unaltered", "units_left_out"})
"""What the strict verdict rests on too: nothing in accounting could prove it."""


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
                type=click.Choice(["allocation"]),
                default="allocation",
                help="Lowest rung to rely on.",
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


def assessment(context: click.Context, options: Mapping[str, Any]) -> Assessment:
    """Open the store and put the question."""
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
    found = assessment(context, options)
    if output_format == "json":
        head = found.head("slurm-trace/rank/1") | {
            "verdicts": found.tally(),
            "verdicts_strict": found.tally(strict=True),
            "runaway_jobs": list(found.jobs(runaway=True)),
        }
        output.print_json(head, "jobs", found.jobs(top))
    elif output_format == "csv":
        output.print_csv(JOB_COLUMNS, found.jobs(top))
    else:
        print_ranking(found, top or TOP)
    _warnings(found)
    if save:
        _save(context, found)
    if check and not found.all_ruled_out:
        raise CheckFailed("not every run is ruled out, or not every row could be read")


@click.command()
@question_options
@click.option("--by", type=click.Choice(BY), default="all", show_default=True, help="Which groups.")
@click.option(
    "--top", type=click.IntRange(min=1), help=f"How many groups to print (table: {TOP} by default, else all)."
)
@click.option("--check", is_flag=True, help="Exit 1 unless every group is ruled out.")
@output.format_options
@click.pass_context
def groups(
    context: click.Context, /, output_format: str, by: Any, top: int | None, check: bool, **options: Any
) -> None:
    """Put the same question to groups of jobs, top down."""
    found = assessment(context, options)
    lines = found.groups(by)
    if output_format == "json":
        output.print_json(found.head("slurm-trace/groups/1"), "groups", map(asdict, lines[:top]))
    elif output_format == "csv":
        names = list(asdict(lines[0])) if lines else ["by", "key"]
        output.print_csv(names, map(asdict, lines[:top]))
    else:
        print_groups(found, lines, top or TOP)
    _warnings(found)
    unread = not lines and not found.all_ruled_out
    if check and (unread or any(g.verdict != "RULED_OUT" for g in lines)):
        raise CheckFailed("not every group is ruled out")


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
    position = find_run(found, job)
    entry = next(iter(found.rows([position])))
    terms = [
        {
            **{k: v for k, v in asdict(t).items() if k != "from_"},
            "from": t.from_,
            "rung": entry["rung"],
            "flop": t.flop,
        }
        for t in found.envelope.terms(position, strict=strict)
    ]
    ordered = [{name: term[name] for name in TERM_COLUMNS} for term in terms]
    if output_format == "json":
        entry.pop("rank")
        output.print_json(
            found.head("slurm-trace/explain/1") | {"strict": strict, "job": entry}, "terms", ordered
        )
    elif output_format == "csv":
        output.print_csv(TERM_COLUMNS, ordered)
    else:
        print_explanation(found, entry, ordered, strict=strict)
    _warnings(found)


def find_run(found: Assessment, job: str) -> int:
    """Position of the run that JOB names.

    Raises:
        UsageProblem: It names none, or several.
    """
    from slurm_trace.accounting.times import parse_moment

    text, _, submit = job.partition("@")
    cluster, _, job_id = text.rpartition(":")
    runs = found.envelope.runs
    when = runs["submit"].fillna(runs["start"])  # some exports lack Submit
    shown = runs["job_id"].astype(str)
    hit = shown == job_id
    if job_id.isdecimal() and len(job_id) < 19:
        hit |= (runs["job_id_raw"] == int(job_id)).fillna(False)
        hit |= shown.str.startswith((job_id + "_", job_id + "+"))  # tasks of an array, parts of a het job
    if cluster:
        hit &= runs["cluster"].astype(str) == cluster
    if submit:
        hit &= (when == parse_moment(submit)).fillna(False)
    positions = [int(i) for i in hit.to_numpy(dtype=bool).nonzero()[0]]
    if len(positions) == 1:
        return positions[0]
    if not positions:
        raise UsageProblem(
            f"no run {output.printable(job)} in the store; JOB is [CLUSTER:]ID[@SUBMIT], see `slurm-trace rank`"
        )
    names = [
        f"{runs['cluster'].iat[i]}:{runs['job_id'].iat[i]}@{moment(when.iat[i])}" for i in positions[:TOP]
    ]
    more = f" and {len(positions) - TOP} more" if len(positions) > TOP else ""
    raise UsageProblem(
        f"{output.printable(job)} is the name of several runs: {', '.join(names)}{more}; name one of them"
    )


# Tables


def print_ranking(found: Assessment, top: int) -> None:
    """The first lines say what was asked and what came out, then the top of the list."""
    for line in summary(found):
        click.echo(line)
    output.print_table(
        RANK_COLUMNS,
        (_job_cells(job) for job in found.jobs(top)),
        right=RANK_FIGURES,
        spare=RANK_SPARE,
    )
    runaway = list(found.jobs(TOP, runaway=True))
    if runaway:
        click.echo("Records that were never closed (not ranked; they count in every group):")
        output.print_table(
            RANK_COLUMNS,
            (_job_cells(job) for job in runaway),
            right=RANK_FIGURES,
            spare=RANK_SPARE,
        )


def summary(found: Assessment) -> list[str]:
    """What was asked, what came out under both readings, and what it was computed from."""
    from slurm_trace.analysis.verdicts import ESTIMATES

    head = found.head("")
    inputs, tally, strict = head["inputs"], found.tally(), found.tally(strict=True)
    lines = [
        f"Which runs cannot have reached {head['threshold']['id']} ({flop(found.threshold.flop)} FLOP)? "
        f"Counted: {found.question.basis}, rung {head['trust']}, margin {head['margin']:g}",
        "  each run by itself, with the declared and the default assumptions: " + _tally(tally),
        "  each run by itself, granting nothing that is not proven: " + _tally(strict),
        f"  from {inputs['jobs']} runs: {inputs['never_started']} never started, {inputs['runaway']} never closed, "
        f"{inputs['rejected']} rows rejected; rates {inputs['rates'][:12]}, evaluator {inputs['evaluator']}",
    ]
    if found.question.basis in ESTIMATES:
        lines.append(
            f"  {found.question.basis} is an estimate and no upper bound: nothing is ruled out by it"
        )
    elif found.question.basis != "max_any_op":
        lines.append(
            f"  {found.question.basis} is one reading of what counts, narrower than every operation the hardware has"
        )
    return lines


def _tally(tally: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in tally.items())


def _job_cells(job: Mapping[str, Any]) -> tuple[str, ...]:
    gpus = " ".join(f"{g['count']}x{g['type'] or 'gpu'}" for g in job["gpus"])
    return (
        str(job["rank"]),
        f"{job['cluster']}:{job['job_id']}",
        job["user"] or "-",
        job["account"] or "-",
        job["state"],
        _or_dash(job["nodes"]),
        gpus or ("unknown" if job["gpu_count"] is None else "0"),
        duration(job["held_s"]),
        flop(job["bound_flop"]),
        ratio(job["ratio"]),
        job["verdict"],
        job["verdict_strict"],
    )


def print_groups(found: Assessment, lines: Sequence[Group], top: int) -> None:
    """What came out for all groups, then the first of them, the ones that can't be ruled out first."""
    asked, *_, inputs = summary(found)[:4]
    click.echo(asked.replace("Which runs", "Which groups"))
    click.echo(
        "  with the declared and the default assumptions: " + _tally(Counter(g.verdict for g in lines))
    )
    click.echo("  granting nothing that is not proven: " + _tally(Counter(g.verdict_strict for g in lines)))
    click.echo(inputs)
    output.print_table(
        (
            "group",
            "runs",
            "users",
            "GPU hours",
            "bound FLOP",
            "of T",
            "verdict",
            "strict",
            "fewest runs",
            "fewest users",
        ),
        (
            (
                g.key,
                str(g.jobs),
                str(g.users),
                hours(g.gpu_seconds) + (f" (+{g.gpu_unknown_jobs} unknown)" if g.gpu_unknown_jobs else ""),
                flop(g.bound_flop),
                ratio(g.ratio),
                g.verdict,
                g.verdict_strict,
                _or_dash(g.fewest_jobs),
                _or_dash(g.fewest_users),
            )
            for g in lines[:top]
        ),
        right=("runs", "users", "GPU hours", "bound FLOP", "of T", "fewest runs", "fewest users"),
        spare=("users", "GPU hours", "fewest users", "strict", "fewest runs"),
    )
    if len(lines) > top:
        click.echo(f"  and {len(lines) - top} more groups, further down in the same order (--top)")
    reasons = dict.fromkeys(
        (
            "ruled out by its capacity all the same" if g.verdict == "RULED_OUT" else "not enough to tell",
            reason,
        )
        for g in lines[:top]
        for reason in g.reasons
    )
    for what, reason in list(reasons)[:TOP]:
        click.echo(f"  {what}: {output.printable(reason)}")


def print_explanation(
    found: Assessment, entry: Mapping[str, Any], terms: Sequence[Mapping[str, Any]], *, strict: bool
) -> None:
    """One run in full."""
    from slurm_trace.analysis.verdicts import ESTIMATES

    bound = entry["bound_flop_strict"] if strict else entry["bound_flop"]
    verdict = entry["verdict_strict"] if strict else entry["verdict"]
    click.echo(
        output.printable(
            f"{entry['cluster']}:{entry['job_id']} (raw {entry['job_id_raw']}, submitted {moment(entry['submit'])}) "
            f"{entry['state']}, {entry['user'] or '-'} / {entry['account'] or '-'}"
        )
    )
    click.echo(
        f"{verdict}: its own contribution is {'not bounded' if bound is None else 'at most ' + flop(bound) + ' FLOP'}; "
        f"T is {found.threshold.id} = {flop(found.threshold.flop)} FLOP, margin {float(found.question.margin):g}"
        + (" (strict: nothing is granted that is not proven)" if strict else "")
    )
    if terms:
        output.print_table(
            ("device", "count", "node", "seconds", "ceiling FLOP/s", "FLOP", "source"),
            (
                (
                    t["device"],
                    f"{t['count']:,}",
                    t["node"] or "-",
                    f"{t['seconds']:,}",
                    f"{t['ceiling_flop_s']:,}",
                    f"{t['flop']:,}",
                    t["source"],
                )
                for t in terms
            ),
            right=("count", "seconds", "ceiling FLOP/s", "FLOP"),
            spare=(),
        )
    click.echo(f"sum: {'no bound' if bound is None else f'{bound:,} FLOP'}")
    for reason in (*entry["reasons"], *_taken_high(found, entry, terms)):
        click.echo(f"  why it is not lower: {output.printable(reason)}")
    if found.question.basis in ESTIMATES:
        click.echo(f"  {found.question.basis} is an estimate and no upper bound: nothing is ruled out by it")
    granted = [
        a for a in entry["assumptions"] if not strict or a["status"] == "proven" or a["id"] in ALWAYS_GRANTED
    ]
    click.echo("  rests on: " + ", ".join(f"{a['id']} ({a['status']})" for a in granted))
    if len(granted) < len(entry["assumptions"]):
        click.echo("  not granted: " + ", ".join(a["id"] for a in entry["assumptions"] if a not in granted))
    if entry["flags"]:
        click.echo("  flags: " + ", ".join(entry["flags"]))


def _taken_high(
    found: Assessment, entry: Mapping[str, Any], terms: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Where a term stands for the fastest of several devices."""
    for label in dict.fromkeys(g["type"] for g in entry["gpus"]):
        cards = found.rates.resolve(label)
        if label is not None and cards.how == "ambiguous":
            yield f"{label!r} may be any of {len(cards.device_ids)} cards: the fastest counts (a sku tells)"
    models = {g.cpu_model for g in found.site.cluster(entry["cluster"]).nodes}
    if (not models or None in models) and any(t["kind"] == "cpu" for t in terms):
        yield "the site profile names no CPU model for every node: the fastest core of the registry counts"


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


def _warnings(found: Assessment) -> None:
    for name, complete in found.records.complete.items():
        profile = found.site.cluster(name)
        if not profile.nodes:
            output.warn(
                f"cluster {name}: no inventory in the site profile, so cards, confinement and idle nodes are assumed; "
                "write one with `slurm-trace site probe` and name it with --config"
            )
        for sku in sorted({g.sku for g in profile.nodes if g.sku}):
            if found.rates.resolve(None, sku=sku).how == "unknown":
                output.warn(
                    f"cluster {name}: sku {output.printable(sku)!r} is no card of the rate registry, so the largest "
                    "card counts; write an id or a driver name that `slurm-trace rates` lists"
                )
        for gap in complete.gaps:
            output.warn(f"cluster {name}: {gap}")


def flop(value: int | None) -> str:
    """A number of operations with three digits, rounded up; exact ones are in the JSON."""
    if value is None:
        return "-"
    digits = len(str(value))
    if digits <= 3:
        return str(value)
    unit = 10 ** (digits - 3)
    lead = -(-value // unit)
    return f"{lead / 100:.2f}e{digits - 1}" if lead < 1000 else f"1.00e{digits}"


def ratio(value: float | None) -> str:
    """bound / T for people, with three digits, rounded up."""
    three = Context(prec=3, rounding=ROUND_CEILING)
    return "-" if value is None else f"{float(three.create_decimal_from_float(value)):.3g}"


def hours(seconds: int) -> str:
    """Hours for people: whole ones, or two digits where there are few."""
    return f"{seconds / 3600:,.0f}" if seconds >= 36_000 or not seconds else f"{seconds / 3600:.2g}"


def moment(epoch_s: object) -> str:
    """A time as `explain` takes it back after the @."""
    if not isinstance(epoch_s, SupportsInt):
        return "unknown"
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: int | None) -> str:
    """D-HH:MM:SS as Slurm writes it."""
    if seconds is None:
        return "-"
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
