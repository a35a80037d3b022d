"""What `rank`, `groups` and `explain` print for people. Programs get the exact figures as JSON or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.analysis.figures import ratio
from slurm_trace.analysis.names import moment
from slurm_trace.cli import output
from slurm_trace.cli.footnotes import COLUMN, Footnotes

if TYPE_CHECKING:
    from slurm_trace.analysis.exact import Ints
    from slurm_trace.analysis.rules.rule import Rule
    from slurm_trace.assess import Assessment

STRICTLY = "granting nothing unproven but records_unaltered and units_left_out"
"""The strict reading in words."""

TOP = 20
RANK_COLUMNS = (
    "#", "job", "user", "account", "state", "nodes", "GPUs", "held", "bound FLOP", "of T", "verdict", "strict", COLUMN,
)  # fmt: skip
RANK_FIGURES = ("#", "nodes", "held", "bound FLOP", "of T")
RANK_SPARE = ("nodes", "account", "state", "user", "#", "GPUs", "strict")

ALWAYS_GRANTED = frozenset({"records_unaltered", "units_left_out"})
"""What the strict verdict rests on too: nothing in accounting could prove it."""


def print_ranking(found: Assessment, listed: Ints, apart: Ints) -> None:
    """The first lines say what was asked and what came out, then the top of the list.

    Args:
        found: The assessment, with the routes of these runs.
        listed: Positions of the runs to print.
        apart: Of the records that were never closed.
    """
    for line in summary(found):
        click.echo(line)
    decisions, notes = found.decisions([*listed.tolist(), *apart.tolist()]), Footnotes()
    _print_runs(found.rows(listed, decisions), notes)
    if len(apart):
        click.echo("Records that were never closed (not ranked; they count in every group):")
        _print_runs(found.rows(apart, decisions), notes)
    for line in notes.lines():
        click.echo(line)


def _print_runs(jobs: Iterable[Mapping[str, Any]], notes: Footnotes) -> None:
    output.print_table(
        RANK_COLUMNS,
        [(*_job_cells(job), notes.mark(job["routes"])) for job in jobs],
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
        "  each run by itself, with the declared and the default assumptions: " + tally_line(tally),
        f"  each run by itself, {STRICTLY}: " + tally_line(strict),
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


def tally_line(tally: Mapping[str, int]) -> str:
    """Verdicts and how many there are of each."""
    return ", ".join(f"{n} {verdict}" for verdict, n in tally.items())


def _job_cells(job: Mapping[str, Any]) -> tuple[str, ...]:
    gpus = " ".join(f"{g['count']}x{g['type'] or 'gpu'}" for g in job["gpus"])
    return (
        str(job["rank"]),
        f"{job['cluster']}:{job['job_id']}",
        job["user"] or "-",
        job["account"] or "-",
        job["state"],
        or_dash(job["nodes"]),
        gpus or ("unknown" if job["gpu_count"] is None else "0"),
        duration(job["held_s"]),
        flop(job["bound_flop"]),
        ratio(job["ratio"]),
        job["verdict"],
        job["verdict_strict"],
    )


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
    _print_terms(terms)
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


def print_rules(rules: Sequence[Rule]) -> None:
    """The rules behind the routes of one run, each with its reason."""
    for rule in rules:
        click.echo(f"  rule {rule.id}: {rule.route_text}: {output.printable(rule.reason)}")


def _print_terms(terms: Sequence[Mapping[str, Any]]) -> None:
    """The parts of a sum; where counters lower it, which GPU from when to when by which rung."""
    cells: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "device": lambda t: t["device"],
        "count": lambda t: f"{t['count']:,}",
        "node": lambda t: t["node"] or "-",
        "seconds": lambda t: f"{t['seconds']:,}",
        "ceiling FLOP/s": lambda t: f"{t['ceiling_flop_s']:,}",
        "FLOP": lambda t: f"{t['flop']:,}",
        "source": lambda t: t["source"],
    }
    if any(t["rung"] != "allocation" for t in terms):
        measured: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "device": lambda t: t["device"] if t["kind"] == "cpu" else t["gpu"],
            "from": lambda t: moment(t["from"]),
            "to": lambda t: moment(t["to"]),
            "rung": lambda t: t["rung"],
        }
        cells = {
            **measured,
            **{name: cells[name] for name in cells if name not in ("device", "ceiling FLOP/s")},
        }
    if terms:
        output.print_table(
            tuple(cells),
            (tuple(cell(t) for cell in cells.values()) for t in terms),
            right=tuple(n for n in ("count", "seconds", "ceiling FLOP/s", "FLOP") if n in cells),
            spare=(),
        )


def print_energy(energy: Mapping[str, Any] | None) -> None:
    """Energy beside the bound, and whether the allocation explains it."""
    if energy is None:
        return
    by = {
        "counter": "by their counters",
        "samples": "by samples of their counters",
        "power": "by sampled power",
    }
    each = energy["joule_per_flop"]
    told = f"  energy of its GPUs {by[energy['source']]}: {energy['energy_mj'] / 1000:,.0f} J"
    told += "" if each is None else f", {each:.2g} J for each FLOP of their bound"
    click.echo(f"{told} (evidence, no part of the bound)")
    if energy["unexplained"]:
        click.echo(
            f"  that is more than its allocation explains, {energy['most_mj'] / 1000:,.0f} J: use outside it, or more "
            "devices than it was given"
        )


def _taken_high(
    found: Assessment, entry: Mapping[str, Any], terms: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Where a term stands for the fastest of several devices."""
    by_label = any(a["id"] == "labels_true" and a["status"] == "assumed" for a in entry["assumptions"])
    for label in dict.fromkeys(g["type"] for g in entry["gpus"] if by_label):
        cards = found.rates.resolve(label)
        if label is not None and cards.how == "ambiguous":
            yield f"{label!r} may be any of {len(cards.device_ids)} cards: the fastest counts (a sku tells)"
    models = {g.cpu_model for g in found.site.cluster(entry["cluster"]).nodes}
    if (not models or None in models) and any(t["kind"] == "cpu" for t in terms):
        yield "the site profile names no CPU model for every node: the fastest core of the registry counts"


def warn_of_gaps(found: Assessment) -> None:
    """On stderr: what the profile or the records leave open, and what to add."""
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


def hours(seconds: int) -> str:
    """Hours for people: whole ones, or two digits where there are few."""
    return f"{seconds / 3600:,.0f}" if seconds >= 36_000 or not seconds else f"{seconds / 3600:.2g}"


def duration(seconds: int | None) -> str:
    """D-HH:MM:SS as Slurm writes it."""
    if seconds is None:
        return "-"
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def or_dash(value: object) -> str:
    """What is not known is a dash."""
    return "-" if value is None else str(value)
