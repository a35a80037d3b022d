"""`rules`: the rules that every verdict and warning follows from, what they ask, and what another generation says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_trace.analysis.names import moment
from slurm_trace.cli import output, tables
from slurm_trace.cli.groups import BY
from slurm_trace.cli.ranking import assessment, question_options
from slurm_trace.errors import UsageProblem

if TYPE_CHECKING:
    from slurm_trace.analysis.memberships import By
    from slurm_trace.analysis.rules.compare import Change, Comparison
    from slurm_trace.analysis.rules.evaluate import Columns
    from slurm_trace.analysis.rules.rule import Rule, Subject
    from slurm_trace.analysis.rules.ruleset import RuleSet
    from slurm_trace.assess import Assessment

_F = TypeVar("_F", bound=Callable[..., Any])

RULE_COLUMNS = (
    "id", "kind", "subjects", "since", "until", "when", "route", "reason", "rests_on", "basis", "source", "revision",
    "verified",
)  # fmt: skip
FEATURE_COLUMNS = ("id", "observable", "kind", "unit", "values", "subjects", "sources", "what")
SOURCE_COLUMNS = (
    "id",
    "title",
    "needs",
    "gives",
    "altered_by",
    "basis",
    "source",
    "revision",
    "verified",
    "notes",
)
RUN = "run"
"""What `compare` compares where it compares no groups."""
RUN_COLUMNS = ("cluster", "job_id", "job_id_raw", "submit", "user", "account")
GROUP_COLUMNS = ("by", "key", "label")
CHANGE_COLUMNS = ("verdict_from", "verdict_to", "routes_from", "routes_to", "rules_from", "rules_to")

rules_option = click.option(
    "--rules",
    "rules_folder",
    metavar="DIR",
    help="Further rules of the site's own: files named as the built-in ones.",
)


def _generation_option(command: _F) -> _F:
    return click.option(
        "--generation", type=int, help="Which generation of the rules; the current one by default."
    )(command)


@click.command("list")
@_generation_option
@rules_option
@output.format_options
def list_(generation: int | None, rules_folder: str | None, output_format: str) -> None:
    """Print the rules, in the order in which a later verdict decides over an earlier one."""
    rules = _load(generation, rules_folder)
    if output_format == "json":
        output.print_json(_head(rules), "rules", map(_entry, rules.rules))
    elif output_format == "csv":
        output.print_csv(RULE_COLUMNS, map(_row, rules.rules))
    else:
        output.print_table(
            ("rule", "kind", "of", "route", "when"),
            [(r.id, r.kind, ", ".join(sorted(r.subjects)), r.route_text, str(r.when)) for r in rules.rules],
            title=f"Rules, generation {rules.generation.generation} ({rules.generation.changes}; {rules.digest[:16]})",
        )
        for one in rules.precedence:
            click.echo(f"  {one.first} decides over {', '.join(one.over)}: {one.reason}")
        click.echo(f"  where no rule gives a verdict it is {rules.default}: {rules.default_reason}")


@click.command()
@click.argument("rule")
@_generation_option
@rules_option
@output.format_options
def show(rule: str, generation: int | None, rules_folder: str | None, output_format: str) -> None:
    """Print one rule: its condition, its reason in words, and where it comes from."""
    rules = _load(generation, rules_folder)
    found = next((r for r in rules.rules if r.id == rule), None)
    if found is None:
        raise UsageProblem(
            f"no rule {output.printable(rule)!r} in generation {rules.generation.generation}: "
            "`slurm-trace rules list` lists them"
        )
    if output_format == "json":
        output.print_json(_head(rules) | {"rule": _entry(found)})
    elif output_format == "csv":
        output.print_csv(RULE_COLUMNS, [_row(found)])
    else:
        shown = {**_row(found), "route": found.route_text}
        lines = [(name, _text(value)) for name, value in shown.items() if value is not None]
        lines += [
            ("precedence", f"{one.first} decides over {', '.join(one.over)}: {one.reason}")
            for one in rules.precedence
            if rule in (one.first, *one.over)
        ]
        output.print_table(("field", "value"), lines, title=found.id)


@click.command()
@output.format_options
def observables(output_format: str) -> None:
    """Print what rules may ask of runs and of groups."""
    from slurm_trace.analysis.rules.observables import Observables

    registry = Observables.load()
    rows = [
        {
            "id": f.id,
            "observable": registry.observables[f.id.partition(".")[0]]["title"],
            "kind": f.kind,
            "unit": f.unit,
            "values": list(f.values),
            "subjects": sorted(f.subjects),
            "sources": list(f.sources),
            "what": f.what,
        }
        for f in registry.features.values()
    ]
    if output_format == "json":
        output.print_json({"schema": "slurm-trace/observables/1"}, "features", rows)
    elif output_format == "csv":
        output.print_csv(FEATURE_COLUMNS, rows)
    else:
        names = ("id", "kind", "unit", "subjects", "sources", "what")
        output.print_table(names, [[_text(row[name]) for name in names] for row in rows])


@click.command()
@output.format_options
def sources(output_format: str) -> None:
    """Print where values come from, what a site needs to have them, and who could alter them."""
    from slurm_trace.analysis.rules.observables import Observables

    rows = list(Observables.load().sources.values())
    if output_format == "json":
        output.print_json({"schema": "slurm-trace/sources/1"}, "sources", rows)
    elif output_format == "csv":
        output.print_csv(SOURCE_COLUMNS, rows)
    else:
        names = ("id", "needs", "gives", "altered_by")
        output.print_table(names, [[_text(row[name]) for name in names] for row in rows])


@click.command()
@question_options
@rules_option
@click.option("--from", "earlier", type=int, required=True, help="A generation of the rules.")
@click.option("--to", "later", type=int, help="Another one; the current one by default.")
@click.option(
    "--by",
    type=click.Choice((RUN, *BY)),
    default=RUN,
    show_default=True,
    help="What to compare: runs, or groups of this kind.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help=f"How many runs or groups to print (table: {tables.TOP} by default, else all).",
)
@output.format_options
@click.pass_context
def compare(
    context: click.Context,
    /,
    earlier: int,
    later: int | None,
    by: Any,
    output_format: str,
    top: int | None,
    **options: Any,
) -> None:
    """Put one generation of the rules beside another: which runs or groups come out otherwise, and by which rules."""
    from slurm_trace.analysis.rules.compare import Comparison
    from slurm_trace.analysis.rules.evaluate import evaluate

    before, after = (_load(number, options["rules_folder"]) for number in (earlier, later))
    of_runs = by == RUN
    found = assessment(context, options, routes=of_runs, kinds=() if of_runs else (by,))
    names, columns = _of_runs(found) if of_runs else _of_groups(found, by)
    subject: Subject = "run" if of_runs else "group"
    compared = Comparison(evaluate(before, columns, subject), evaluate(after, columns, subject))
    positions = compared.changed
    rows = _changes(names, compared.changes(positions if top is None else positions[:top]))
    if output_format == "json":
        head = _comparison_head(found, before, after, compared) | {"by": by}
        output.print_json(head, "changes", rows)
    elif output_format == "csv":
        output.print_csv((*(RUN_COLUMNS if of_runs else GROUP_COLUMNS), *CHANGE_COLUMNS), rows)
    else:
        _print_comparison(found, before, after, compared, names, by, top or tables.TOP)


Name = Callable[[int], dict[str, Any]]
"""What a report calls the subject at a position of the columns."""


def _of_runs(found: Assessment) -> tuple[Name, Columns]:
    runs, at = found.envelope.runs, found.members.nonzero()[0]
    columns = {feature: column[found.members] for feature, column in found.observed().items()}

    def name(position: int) -> dict[str, Any]:
        row = int(at[position])
        return {column: _plain(runs[column].iat[row]) for column in RUN_COLUMNS}

    return name, columns


def _of_groups(found: Assessment, by: By) -> tuple[Name, Columns]:
    groups = found.groups(by)

    def name(position: int) -> dict[str, Any]:
        group = groups[position]
        return {column: getattr(group, column) for column in GROUP_COLUMNS}

    return name, found.observed_groups(groups)


def _load(generation: int | None, folder: str | None) -> RuleSet:
    from slurm_trace.analysis.rules.ruleset import RuleSet

    return RuleSet.load(generation, Path(folder) if folder else None)


def _head(rules: RuleSet) -> dict[str, Any]:
    from slurm_trace.analysis.rules.ruleset import generations

    return {
        "schema": "slurm-trace/rule-list/1",
        "generation": rules.generation.generation,
        "generations": [
            {
                "generation": g.generation,
                "evaluator": g.evaluator,
                "revision": g.revision,
                "changes": g.changes,
            }
            for g in generations()
        ],
        "digest": rules.digest,
        "when_none_fires": {"route": rules.default, "reason": rules.default_reason},
        "precedence": [
            {
                "id": p.id,
                "first": p.first,
                "over": list(p.over),
                "reason": p.reason,
                "provenance": dict(p.provenance),
            }
            for p in rules.precedence
        ],
    }


def _entry(rule: Rule) -> dict[str, Any]:
    """A rule as JSON: its own fields, and the condition in words."""
    return {
        "id": rule.id,
        "kind": rule.kind,
        "subjects": sorted(rule.subjects),
        "generations": {"since": rule.since, "until": rule.until},
        "when": str(rule.when),
        "route": rule.route,
        "group": rule.group,
        "reason": rule.reason,
        "rests_on": list(rule.rests_on),
        "provenance": dict(rule.provenance),
    }


def _row(rule: Rule) -> dict[str, Any]:
    entry = _entry(rule)
    return {name: entry[name] for name in RULE_COLUMNS if name in entry} | {
        "since": rule.since,
        "until": rule.until,
        "route": rule.route_text,
        **{name: rule.provenance[name] for name in ("basis", "source", "revision", "verified")},
    }


def _changes(names: Name, changes: Iterator[Change]) -> Iterator[dict[str, Any]]:
    for change in changes:
        yield {
            **names(change.position),
            "verdict_from": change.verdict_before,
            "verdict_to": change.verdict_after,
            "routes_from": list(change.routes_before),
            "routes_to": list(change.routes_after),
            "rules_from": list(change.rules_before),
            "rules_to": list(change.rules_after),
        }


def _comparison_head(
    found: Assessment, before: RuleSet, after: RuleSet, compared: Comparison
) -> dict[str, Any]:
    sides = {}
    for name, rules, tally in zip(("from", "to"), (before, after), compared.tallies(), strict=True):
        sides[name] = {"generation": rules.generation.generation, "digest": rules.digest, "verdicts": tally}
    return (
        found.head("slurm-trace/rules-compare/1")
        | sides
        | {
            "verdicts_changed": int(compared.verdict_changed.sum()),
            "changed": len(compared.changed),
            "by_rule": compared.by_rule(),
        }
    )


def _print_comparison(
    found: Assessment,
    before: RuleSet,
    after: RuleSet,
    compared: Comparison,
    names: Name,
    by: str,
    top: int,
) -> None:
    what = "runs" if by == RUN else "groups"
    head = _comparison_head(found, before, after, compared)
    numbers = before.generation.generation, after.generation.generation
    click.echo(
        f"{found.threshold.id}, {len(compared.before)} {what}, rules of generation {numbers[0]} and {numbers[1]}: "
        f"{head['verdicts_changed']} verdicts changed, {head['changed']} {what} have other routes"
    )
    for name, n in head["by_rule"].items():
        click.echo(f"  {n:+d} {what} by {name}")
    rows = list(_changes(names, compared.changes(compared.changed[:top])))
    if rows:
        output.print_table(
            (
                *(("run", "user") if by == RUN else (by, "what")),
                f"routes in {numbers[0]}",
                f"routes in {numbers[1]}",
                "rules no more",
                "rules now",
            ),
            [
                (
                    *_called(row),
                    *(_text(row[name]) for name in ("routes_from", "routes_to", "rules_from", "rules_to")),
                )
                for row in rows
            ],
        )
    if len(compared.changed) > top:
        click.echo(f"  and {len(compared.changed) - top} more (--top, or --format csv)")


def _called(row: Mapping[str, Any]) -> tuple[str, str]:
    if "key" in row:
        return row["key"], row["label"] or "-"
    return f"{row['cluster']}:{row['job_id']}@{moment(row['submit'])}", row["user"] or "-"


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


def _plain(value: object) -> object:
    import pandas as pd

    if isinstance(value, str):
        return value
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]
