"""`store init`, `store upgrade`, `store info`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from slurm_trace.cli import output

if TYPE_CHECKING:
    from slurm_trace.store.load import ImportRecord

SHOWN_PROBLEM = 100


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

    store = open_store(context.obj["store"], create=False)
    try:
        runs, rejected, imports = count_runs(store), count_rejected(store), load_imports(store)
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
        output.print_json({**head, "clusters": clusters, "rejected_elsewhere": other}, "imports", rows)
    elif output_format == "csv":
        output.print_csv(list(rows[0]) if rows else ["id"], rows)
    else:
        click.echo(f"store {store.url}, schema {REVISIONS[-1]}")
        counts = [(name, str(count), str(rejected.get(name, 0))) for name, count in runs.items()]
        if rejected.get(None):
            counts.append(("(not known)", "0", str(rejected[None])))
        output.print_table(("cluster", "runs", "rejected rows"), counts, right=("runs", "rejected rows"))
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
