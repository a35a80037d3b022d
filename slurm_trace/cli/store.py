"""`store init`, `store upgrade`, `store info`, `store prune`."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from slurm_trace.cli import output

if TYPE_CHECKING:
    from slurm_trace.store.load import ImportRecord
    from slurm_trace.store.samples import LeaseCount, SampleCount

SHOWN_PROBLEM = 100
DAY_S = 86_400


@click.command()
@click.pass_context
def init(context: click.Context) -> None:
    """Create the store; one that is there already is left as it is."""
    from slurm_trace.store.engine import open_store

    store = open_store(context.obj["store"], create=True)
    store.close()
    click.echo(f"store {store.url} is ready")


@click.command()
@click.pass_context
def upgrade(context: click.Context) -> None:
    """Bring the store's schema up to date."""
    from slurm_trace.store.engine import upgrade_store
    from slurm_trace.store.models import REVISIONS

    store = upgrade_store(context.obj["store"])
    store.close()
    click.echo(f"store {store.url} has schema {REVISIONS[-1]}")


@click.command()
@output.format_options
@click.pass_context
def info(context: click.Context, output_format: str) -> None:
    """Show what the store holds."""
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.load import count_rejected, count_runs, load_imports
    from slurm_trace.store.models import REVISIONS
    from slurm_trace.store.samples import count_leases, count_samples

    store = open_store(context.obj["store"], create=False)
    try:
        runs, rejected, imports = count_runs(store), count_rejected(store), load_imports(store)
        leases, samples = count_leases(store), count_samples(store)
    finally:
        store.close()
    rows = [
        {
            "id": one.id,
            "kind": one.kind,
            "name": one.name,
            "clusters": list(one.clusters),
            "started_at": one.started_at,
            "complete": one.complete,
            "completed_by": one.completed_by,
            "problem": one.problem,
            "covers_from": one.covers_from,
            "covers_to": one.covers_to,
            "read": one.read,
            "jobs": one.jobs,
            "rejected": one.rejected,
        }
        for one in imports
    ]
    if output_format == "json":
        clusters = [
            {"name": name, "runs": count, "rejected": rejected.get(name, 0)} for name, count in runs.items()
        ]
        head = {"schema": "slurm-trace/store-info/1", "store": store.url, "revision": REVISIONS[-1]}
        other = rejected.get(None, 0)
        seen = {"leases": [asdict(one) for one in leases], "samples": asdict(samples)}
        output.print_json(
            {**head, "clusters": clusters, "rejected_elsewhere": other, **seen}, "imports", rows
        )
    elif output_format == "csv":
        output.print_csv(list(rows[0]) if rows else ["id"], rows)
    else:
        click.echo(f"store {store.url}, schema {REVISIONS[-1]}")
        counts = [(name, str(count), str(rejected.get(name, 0))) for name, count in runs.items()]
        if rejected.get(None):
            counts.append(("(not known)", "0", str(rejected[None])))
        output.print_table(("cluster", "runs", "rejected rows"), counts, right=("runs", "rejected rows"))
        if samples.files or samples.rejected_files:
            _show_samples(leases, samples)
        cells = [
            (
                str(one.id),
                _time(one.started_at),
                one.kind,
                one.name,
                str(one.read),
                str(one.rejected),
                _ended(one),
            )
            for one in imports
        ]
        output.print_table(
            ("import", "at", "kind", "source", "read", "rejected", "ended"),
            cells,
            right=("import", "read", "rejected"),
        )


@click.command()
@click.option(
    "--older-than",
    "days",
    metavar="DAYS",
    type=click.IntRange(min=0),
    required=True,
    help="Keep younger samples.",
)
@output.format_options
@click.pass_context
def prune(context: click.Context, days: int, output_format: str) -> None:
    """Remove raw samples by their age; summaries, hourly roll-ups and counters stay.

    A SQLite file keeps its size, and uses the room for what comes next.
    """
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.samples import prune_chunks

    before = int(time.time()) - days * DAY_S
    store = open_store(context.obj["store"], create=False)
    try:
        pruned = prune_chunks(store, before)
    finally:
        store.close()
    told = {
        "before": before,
        "chunks": pruned.chunks,
        "bytes": pruned.bytes,
        "chunks_left": pruned.left.chunks,
        "bytes_left": pruned.left.bytes,
    }
    if output_format == "json":
        output.print_json({"schema": "slurm-trace/store-prune/1", **told})
    elif output_format == "csv":
        output.print_csv(list(told), [told])
    else:
        cells = [
            ("removed", str(pruned.chunks), str(pruned.bytes)),
            ("left", str(pruned.left.chunks), str(pruned.left.bytes)),
        ]
        output.print_table(
            (f"raw chunks before {_time(before)}", "chunks", "bytes"), cells, right=("chunks", "bytes")
        )


def _show_samples(leases: list[LeaseCount], samples: SampleCount) -> None:
    cells = [(one.cluster, str(one.leases), str(one.joined), str(one.open)) for one in leases]
    output.print_table(
        ("cluster", "leases", "joined", "not closed"), cells, right=("leases", "joined", "not closed")
    )
    counts = [str(n) for n in (samples.files, samples.rejected_files, samples.chunks, samples.bytes)]
    names = ("spool files", "damaged files", "raw chunks", "bytes of them")
    output.print_table(names, [counts], right=names)


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _ended(one: ImportRecord) -> str:
    if one.complete:
        covers = one.covers_from is not None and one.covers_to is not None
        return (
            f"complete, covers {_time(one.covers_from or 0)} .. {_time(one.covers_to or 0)}"
            if covers
            else "complete"
        )
    if one.completed_by is not None:
        return f"incomplete, completed by import {one.completed_by}"
    return f"incomplete: {(one.problem or 'killed')[:SHOWN_PROBLEM]}"
