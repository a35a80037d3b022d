"""`classify`: how well what was recorded and measured of one run fits each purpose. Evidence, never a verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.analysis.names import moment
from slurm_trace.cli import output
from slurm_trace.cli.jobs import find_run
from slurm_trace.errors import InputProblem
from slurm_trace.version import EVALUATOR_VERSION, VERSION

if TYPE_CHECKING:
    from slurm_trace.analysis.evidence.finding import Standing
    from slurm_trace.analysis.evidence.identify import Identifiability
    from slurm_trace.classify import Classification

NOTICE = (
    "purpose evidence, never a verdict: it says how well readings fit a purpose, not what the run was, "
    "nor how much it computed"
)
CHANNEL_COLUMNS = (
    "channel", "title", "group", "value", "unit", "state", "reason", "inputs", "needs", "cap_centibans",
    "shares_permille", "weights_centibans", "basis", "source", "revision", "verified", "notes",
)  # fmt: skip
JOB_COLUMNS = (
    "run_id", "cluster", "job_id", "job_id_raw", "submit", "start", "end", "user", "account", "state",
)  # fmt: skip
WANTED = 3
"""Channels that the table names as worth having; JSON has all."""
_RUN_COLUMNS = ("run_id", "cluster", "job_id", "job_id_raw", "submit", "start")


@click.command()
@click.argument("job")
@output.format_options
@click.pass_context
def classify(context: click.Context, /, job: str, output_format: str) -> None:
    """Print what the readings of one run say of its purpose: evidence, never a verdict.

    JOB is [CLUSTER:]ID[@SUBMIT]; ID is the number that Slurm shows or its raw one. Accounting alone says little;
    with the samples of its nodes it is more. A reading that is missing is no evidence and weighs nothing.
    """
    from slurm_trace.classify import classify
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.load import load_runs

    store = open_store(context.obj["store"], create=False)
    try:
        runs = load_runs(store, columns=_RUN_COLUMNS)
        found = classify(store, int(runs["run_id"].to_numpy()[find_run(runs, job)]))
    finally:
        store.close()
    if output_format == "json":
        output.print_json(_head(found), "channels", _channels(found))
    elif output_format == "csv":
        output.print_csv(CHANNEL_COLUMNS, _channels(found))
    else:
        _print(found)
    damaged = found.records.chunks_damaged
    if damaged:
        raise InputProblem(
            f"{damaged} of {found.records.chunks_read} chunks of samples could not be unpacked and were left out; "
            "import the spool files again"
        )


def _head(found: Classification) -> dict[str, Any]:
    """The JSON without its channels."""
    run, records, finding = found.records.run, found.records, found.finding
    job = {name: getattr(run, name) for name in JOB_COLUMNS if name != "run_id"}
    return {
        "schema": "slurm-trace/classify/1",
        "generated_at": int(time.time()),
        "notice": NOTICE,
        "inputs": {
            "channels": found.registry.digest,
            "evaluator": f"{VERSION}/{EVALUATOR_VERSION}",
            "leases": found.run.leases,
            "devices": len(found.run.devices),
            "coverage": found.run.coverage,
            "chunks": records.chunks,
            "chunks_read": records.chunks_read,
            "chunks_damaged": records.chunks_damaged,
        },
        "job": {**job, "nodes": run.node_count, "gpu_count": found.run.gpu_count},
        "finding": {
            "standing": finding.leads and _standing(finding.leads),
            "grade": _grade(found),
            "words": _words(found),
        },
        "purposes": [_standing(standing) for standing in finding.standings],
        "pairs": [
            {
                "favoured": pair.pair[0],
                "against": pair.pair[1],
                "weight_centibans": pair.total,
                "groups": {k: v for k, v in finding.sums[pair.pair].groups.items() if v},
                "identifiable": pair.identifiable,
                "matched": list(pair.matched),
                "separated_by": list(pair.separated_by),
                "contradicted_by": list(pair.contradicted_by),
                "would_separate": list(pair.would_separate),
            }
            for pair in finding.pairs
        ],
        "wanted": [
            {
                "channel": one.channel,
                "favoured": one.pair[0],
                "against": one.pair[1],
                "expected_centibans": one.expected,
                "needs": one.needs,
            }
            for one in finding.wanted
        ],
        "recomputed": {"agrees": True, "sums": len(finding.sums)},
        "grades": [
            {"id": grade.id, "from_centibans": grade.from_centibans, "words": grade.words}
            for grade in found.registry.grades
        ],
        "errors": list(found.registry.errors),
    }


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "purpose": standing.purpose,
        "against": standing.rival,
        "weight_centibans": standing.weight,
        "without_one_group_centibans": [standing.lowest, standing.highest],
        "grade": standing.grade.id,
    }


def _channels(found: Classification) -> Iterator[dict[str, Any]]:
    """Every channel, read or not."""
    for channel in found.registry.channels:
        reading = found.finding.readings[channel.id]
        state = None if reading.value is None else channel.states[channel.state_of(reading.value)]
        weights = {
            f"{a}:{b}": found.finding.sums[a, b].channels.get(channel.id, 0) for a, b in found.registry.pairs
        }
        yield {
            "channel": channel.id,
            "title": channel.title,
            "group": channel.group,
            "value": reading.value,
            "unit": channel.unit,
            "state": state and state.words,
            "reason": reading.reason,
            "inputs": list(channel.inputs),
            "needs": channel.needs,
            "cap_centibans": channel.cap_centibans,
            "shares_permille": state and dict(state.shares),
            "weights_centibans": weights,
            "basis": channel.basis,
            "source": channel.source,
            "revision": channel.revision,
            "verified": channel.verified,
            "notes": channel.notes,
        }


def _grade(found: Classification) -> str:
    leads = found.finding.leads
    return found.registry.grades[0].id if leads is None else leads.grade.id


def _words(found: Classification) -> str:
    """The finding in a sentence."""
    leads, registry = found.finding.leads, found.registry
    if leads is None:
        return "no purpose is favoured: nothing that was read tells purposes apart"
    purpose, rival = (registry.purposes[name] for name in (leads.purpose, leads.rival))
    if leads.grade == registry.grades[0]:
        return f"not identifiable: the readings do not tell {purpose} from {rival}"
    return (
        f"the readings fit {purpose} better than {rival}, the next best: {leads.grade.id}, "
        f"{_decibans(leads.weight)} decibans ({leads.grade.words})"
    )


def _print(found: Classification) -> None:
    run, finding, registry = found.records.run, found.finding, found.registry
    click.echo(
        output.printable(
            f"{run.cluster}:{run.job_id} (raw {run.job_id_raw}, submitted {moment(run.submit)}) {run.state}, "
            f"{run.user or '-'} / {run.account or '-'}"
        )
    )
    click.echo(NOTICE)
    click.echo(_words(found))
    output.print_table(
        ("purpose", "against", "decibans", "without any one group", "grade"),
        [
            (
                registry.purposes[s.purpose],
                registry.purposes[s.rival],
                _decibans(s.weight),
                f"{_decibans(s.lowest)} to {_decibans(s.highest)}",
                s.grade.id if s.weight > 0 else "-",
            )
            for s in finding.standings
        ],
        title="\nEach purpose against its strongest rival (10 decibans: a factor of ten)",
        right=("decibans",),
    )
    _print_channels(found)
    grades = ", ".join(f"{grade.id} from {grade.from_centibans / 10:g}" for grade in registry.grades)
    limit = registry.limits.unverified_grade
    click.echo(
        f"  grades in decibans: {grades}; none above {limit} while a table that counts is an assumption"
    )
    for pair in finding.pairs:
        click.echo(f"  {_pair(found, pair)}")
    for one in finding.wanted[:WANTED]:
        click.echo(
            f"  would distinguish {one.pair[0]} from {one.pair[1]} further: {_title(found, one.channel)} "
            f"(needs {one.needs}), {one.expected / 10:.1f} decibans on average"
        )
    for error in registry.errors:
        click.echo(f"  error: {error}")
    click.echo(
        f"  all {len(finding.sums)} sums were computed twice, by different means, and agree; "
        f"channels {registry.digest[:16]}"
    )


def _print_channels(found: Classification) -> None:
    leads, finding = found.finding.leads, found.finding
    pair = found.registry.pairs[0] if leads is None else (leads.purpose, leads.rival)
    rows = [
        (
            channel["title"],
            channel["group"],
            "no reading" if channel["value"] is None else f"{channel['value']:g} {channel['unit']}",
            channel["reason"] or channel["state"],
            _decibans(finding.sums[pair].channels.get(channel["channel"], 0)),
            "yes" if channel["verified"] else channel["basis"],
        )
        for channel in _channels(found)
    ]
    total = finding.sums[pair]
    output.print_table(
        ("channel", "group", "reading", "range, or why there is none", "decibans", "verified"),
        rows,
        title=f"\nWhat weighs for {pair[0]} against {pair[1]}",
        right=("decibans",),
    )
    parts = ", ".join(f"{name} {_decibans(weight)}" for name, weight in total.groups.items() if weight)
    click.echo(f"  by group, each capped: {parts or 'nothing'}; together {_decibans(total.total)} decibans")
    staged = found.registry.limits
    if sum(total.groups.values()) != total.total:
        click.echo(
            f"  what its owner can stage weighs at most {staged.staged_cap_centibans / 10:g} decibans against "
            f"{staged.staged_against}"
        )


def _pair(found: Classification, pair: Identifiability) -> str:
    one, other = pair.pair
    if pair.identifiable:
        told = f"told apart by {', '.join(pair.separated_by)}"
    elif pair.separated_by:
        told = f"not identifiable: {', '.join(pair.separated_by)} would tell them apart, but the sum is too small"
    else:
        told = "not identifiable: nothing that was read tells them apart"
    against = f"; against that {', '.join(pair.contradicted_by)}" if pair.contradicted_by else ""
    return f"{one} / {other} ({_decibans(pair.total)}): {told}{against}"


def _title(found: Classification, channel_id: str) -> str:
    return next(channel.title for channel in found.registry.channels if channel.id == channel_id)


def _decibans(centibans: int) -> str:
    return f"{centibans / 10:+.1f}" if centibans else "0"
