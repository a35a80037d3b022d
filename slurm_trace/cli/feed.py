"""`feed`: the question put to cloud accounts, by what their provider charged for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.analysis.figures import ratio
from slurm_trace.cli import output
from slurm_trace.cli.footnotes import COLUMN, Footnotes
from slurm_trace.cli.ranking import BASES
from slurm_trace.cli.tables import TOP, flop
from slurm_trace.errors import UsageProblem

if TYPE_CHECKING:
    from slurm_trace.analysis.feed import AccountLine, Bound, SkuLine
    from slurm_trace.analysis.feed_disclosure import Disclosure
    from slurm_trace.assess_feed import FeedAssessment

Routes = list[dict[str, str | None]]

SCHEMA = "slurm-trace/feed/1"
DEFAULT_MARGIN = "0.05"
DISCLOSED_SCHEMA = "slurm-trace/feed-disclosed/1"
COLUMNS = (
    "provider", "account", "sku", "taken_as", "how", "device", "devices", "vcpus", "verified", "charges", "hours",
    "bound_gpu_flop", "bound_cpu_flop", "bound_flop", "bound_flop_strict", "ratio", "verdict", "verdict_strict",
    "reasons",
)  # fmt: skip
ACCOUNT_COLUMNS = (
    *(n for n in COLUMNS if n not in ("sku", "taken_as", "how", "device", "devices", "vcpus", "verified")),
    "routes",
)
DISCLOSED_COLUMNS = ("key", "accounts_below", "charges_below", "hours_below", "bound_flop_below", "verdict")


@click.command()
@click.option(
    "--threshold", default="eu-gpai", show_default=True, help="Id of a threshold, or a number of FLOP."
)
@click.option(
    "--basis", type=click.Choice(BASES), default="max_any_op", show_default=True, help="What counts."
)
@click.option(
    "--margin", default=DEFAULT_MARGIN, show_default=True, help="Fraction added to a bound before comparing."
)
@click.option(
    "--since", metavar="TIME", help="Charges that touch the time from here (ISO time, UTC, or epoch)."
)
@click.option("--until", metavar="TIME", help="... to here, exclusive.")
@click.option("--rates-overlay", metavar="FILE", help="The site's own rates, thresholds and SKUs.")
@click.option(
    "--by",
    type=click.Choice(["account", "sku"]),
    default="account",
    show_default=True,
    help="A line an account, or one a SKU (of each account; with --disclose over all accounts).",
)
@click.option(
    "--disclose",
    is_flag=True,
    help="Only what may leave the house: coarse figures, no names, no small cells.",
)
@click.option(
    "--min-cell", metavar="K", type=click.IntRange(min=2), help="With --disclose: smallest cell; default: 5."
)
@output.format_options
@click.pass_context
def feed(context: click.Context, /, output_format: str, **options: Any) -> None:
    """Bound the compute of cloud accounts by their billing feeds (see `import feed`)."""
    if options["min_cell"] is not None and not options["disclose"]:
        raise UsageProblem("--min-cell says how coarse --disclose is; add --disclose, or leave it out")
    if options["disclose"]:
        _refuse_probing(options)
    found = _assessment(context, options)
    if options["disclose"]:
        _disclose(found, options["by"], options["min_cell"], output_format)
    elif output_format == "json":
        output.print_json(_head(found), "accounts", map(_account_json, found.accounts, found.routes()))
    elif output_format == "csv":
        columns = ACCOUNT_COLUMNS if options["by"] == "account" else COLUMNS
        output.print_csv(columns, _rows(found, options["by"]))
    else:
        _print(found, options["by"])


def _assessment(context: click.Context, options: Mapping[str, Any]) -> FeedAssessment:
    from slurm_trace.accounting.times import parse_moment
    from slurm_trace.analysis.question import margin_of
    from slurm_trace.assess_feed import FeedRequest, assess_feed
    from slurm_trace.store.engine import open_store

    request = FeedRequest(
        threshold=options["threshold"],
        basis=options["basis"],
        margin=margin_of(options["margin"]),
        since=None if options["since"] is None else parse_moment(options["since"]),
        until=None if options["until"] is None else parse_moment(options["until"]),
        overlay=options["rates_overlay"],
    )
    store = open_store(context.obj["store"], create=False)
    try:
        return assess_feed(store, request)
    finally:
        store.close()


def _head(found: FeedAssessment) -> dict[str, Any]:
    complete = found.records.complete
    inputs = {
        "charges": found.total.bound.charges,
        "rejected": sum(found.records.rejected.values()),
        **found.digests,
    }
    return {
        **found.head(SCHEMA),
        "inputs": inputs,
        "records_complete": {"status": complete.status, "gaps": list(complete.gaps)},
        "total": {**_bound(found.total.bound), **_grounds(found.total)},
    }


def _account_json(line: AccountLine, routes: Routes) -> dict[str, Any]:
    return {
        "provider": line.provider,
        "account": line.account,
        **_bound(line.bound),
        "routes": routes,
        **_grounds(line),
        "skus": [_sku(sku) for sku in line.skus],
    }


def _grounds(line: AccountLine) -> dict[str, Any]:
    return {
        "assumptions": [{"id": name, "status": status} for name, status in line.assumptions.items()],
        "notes": list(line.notes),
    }


def _bound(bound: Bound) -> dict[str, Any]:
    # Nothing in a feed is proven, so that no strict bound follows from it.
    return {**asdict(bound), "bound_flop_strict": None, "reasons": list(bound.reasons)}


def _sku(line: SkuLine) -> dict[str, Any]:
    one = line.taken_as
    return {
        "sku": line.sku,
        "how": line.how,
        "taken_as": None if one is None else one.sku,
        "device": None if one is None else one.device,
        "devices": None if one is None else one.count,
        "vcpus": None if one is None else one.vcpus,
        "verified": None if one is None else one.verified,
        **_bound(line.bound),
    }


def _rows(found: FeedAssessment, by: str) -> Iterator[dict[str, Any]]:
    for account, routes in zip(found.accounts, found.routes(), strict=True):
        whose = {"provider": account.provider, "account": account.account}
        if by == "account":
            yield {**whose, **_bound(account.bound), "routes": routes}
        for sku in account.skus if by == "sku" else ():
            yield {**whose, **_sku(sku)}


def _print(found: FeedAssessment, by: str) -> None:
    bound, digests = found.total.bound, found.digests
    click.echo(
        f"Which cloud accounts cannot have reached {found.threshold.id} ({flop(found.threshold.flop)} FLOP)? "
        f"Counted: {found.question.basis}, margin {float(found.question.margin):g}"
    )
    click.echo(
        f"  all {len(found.accounts)} accounts together: {_most(bound.bound_flop)}, {bound.verdict}; granting nothing "
        f"that is not proven: {bound.verdict_strict}"
    )
    click.echo(
        f"  from {bound.charges} charges, {sum(found.records.rejected.values())} rows rejected; SKUs "
        f"{digests['skus'][:12]}, rates {digests['rates'][:12]}, evaluator {digests['evaluator']}"
    )
    lines, notes = list(_rows(found, by)), Footnotes()
    columns = ("account", *(() if by == "account" else ("SKU", "taken for")))
    figures = ("charges", "hours", "bound FLOP", "of T")
    output.print_table(
        (*columns, *figures, "verdict", "strict", *((COLUMN,) if by == "account" else ())),
        (
            (
                f"{line['provider'] or '-'}:{line['account']}",
                *(() if by == "account" else (line["sku"], _taken_for(line))),
                f"{line['charges']:,}",
                f"{line['hours']:,}",
                flop(line["bound_flop"]),
                ratio(line["ratio"]),
                line["verdict"],
                line["verdict_strict"],
                *((notes.mark(line["routes"]),) if by == "account" else ()),
            )
            for line in lines[:TOP]
        ),
        right=figures,
        spare=("strict", "hours", "charges"),
    )
    if len(lines) > TOP:
        click.echo(f"  and {len(lines) - TOP} more lines, further down in the same order (--format csv)")
    for note in notes.lines():
        click.echo(note)
    for text in (*bound.reasons, *found.total.notes):
        click.echo(f"  {output.printable(text)}")
    rests = (f"{name} ({status})" for name, status in found.total.assumptions.items())
    click.echo("  rests on: " + ", ".join(rests))


def _most(bound_flop: int | None) -> str:
    return "no bound" if bound_flop is None else f"at most {flop(bound_flop)} FLOP"


def _taken_for(line: Mapping[str, Any]) -> str:
    if line["taken_as"] is None:
        return "no bound"
    gpus = f"{line['devices']}x{line['device']}" if line["device"] else "no GPU"
    return f"{gpus}, {line['vcpus']} vCPU" if line["how"] != "no_compute" else "no compute"


def _refuse_probing(options: Mapping[str, Any]) -> None:
    """Asked again with slightly other limits, a verdict would tell a suppressed figure to any number of digits."""
    from slurm_trace.analysis.thresholds import number

    if options["margin"] != DEFAULT_MARGIN:
        raise UsageProblem(
            "--disclose takes no other --margin: verdicts at many limits would tell what is left out"
        )
    if number(options["threshold"]) is not None:
        raise UsageProblem("--disclose takes the id of a threshold, no number; see `slurm-trace thresholds`")


def _disclose(found: FeedAssessment, by: Any, min_cell: int | None, output_format: str) -> None:
    from slurm_trace.analysis.feed_disclosure import DEFAULT_MIN_CELL, disclose

    size = min_cell or DEFAULT_MIN_CELL
    told = disclose(found.accounts, found.question, by, size)
    if output_format == "json":
        head = {
            **found.head(DISCLOSED_SCHEMA),
            "inputs": found.digests,
            "by": by,
            "min_cell": size,
            "suppressed": told.suppressed,
            "total": asdict(told.total),
        }
        output.print_json(head, "cells", map(asdict, told.cells))
    elif output_format == "csv":
        output.print_csv(DISCLOSED_COLUMNS, map(asdict, (told.total, *told.cells)))
    else:
        _print_disclosed(found, told, size)


def _print_disclosed(found: FeedAssessment, told: Disclosure, min_cell: int) -> None:
    click.echo(
        f"Which cloud accounts cannot have reached {found.threshold.id} ({flop(found.threshold.flop)} FLOP)? "
        f"Counted: {found.question.basis}, margin {float(found.question.margin):g}"
    )
    output.print_table(
        ("", "accounts", "charges", "hours", "bound FLOP", "verdict"),
        (
            (
                cell.key,
                *(
                    "-" if value is None else f"< {flop(value) if value > 10**6 else f'{value:,}'}"
                    for value in (
                        cell.accounts_below,
                        cell.charges_below,
                        cell.hours_below,
                        cell.bound_flop_below,
                    )
                ),
                cell.verdict or "-",
            )
            for cell in (told.total, *told.cells)
        ),
        right=("accounts", "charges", "hours", "bound FLOP"),
    )
    if told.suppressed:
        click.echo(f"  suppressed: cells of fewer than {min_cell}, and what could be told from them")
