"""`import spool`: bring the samplers' sealed files into the store, and join them with accounting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_trace.cli import output
from slurm_trace.cli.importing import INPUT_REJECTED, SHOWN_REJECTED

if TYPE_CHECKING:
    from slurm_trace.store.spool_ingest import Progress, SpoolSummary

SCHEMA = "slurm-trace/import-spool/1"


@click.command()
@click.argument("directory", metavar="DIR|FILE", type=click.Path(path_type=Path))
@click.option("--cluster", metavar="NAME", help="Cluster of the files that name none.")
@output.format_options
@click.pass_context
def spool(context: click.Context, directory: Path, cluster: str | None, output_format: str) -> None:
    """Import sealed spool files from the outbox DIR, or one FILE.

    Files stay where they are, and one that is in the store already is passed over. A damaged one is moved into the
    folder `damaged` beside it, where that can be written to, and is listed.
    """
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.spool_ingest import find_files, import_spools

    find_files(directory)
    store = open_store(context.obj["store"], create=True)
    try:
        with _progress() as progress:
            summary = import_spools(store, directory, cluster, progress)
    finally:
        store.close()
    _tell(summary, output_format)
    if summary.rejected:
        context.exit(INPUT_REJECTED)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, whole: None
        return
    with click.progressbar(length=1000, label="importing", file=sys.stderr) as bar:
        yield lambda done, whole: bar.update(max(0, done * 1000 // max(whole, 1) - bar.pos))


def _tell(summary: SpoolSummary, output_format: str) -> None:
    counts = {
        "read": summary.read,
        "inserted": summary.inserted,
        "unchanged": summary.unchanged,
        "bytes": summary.bytes,
        "leases": summary.leases,
        "joined": summary.joined,
    }
    rejected = summary.rejected
    if output_format == "json":
        told = {"rejected": [asdict(one) for one in rejected], "warnings": summary.warnings}
        output.print_json({"schema": SCHEMA, **counts, **told})
    elif output_format == "csv":
        output.print_csv([*counts, "rejected"], [{**counts, "rejected": len(rejected)}])
    else:
        rows = [*counts.items(), ("rejected", len(rejected))]
        names = {"read": "files read", "leases": "leases touched", "joined": "of them joined with a run"}
        output.print_table(
            ("spool", "count"),
            [(names.get(name, name), str(count)) for name, count in rows],
            right=("count",),
        )
    for warning in summary.warnings:
        output.warn(warning)
    for one in rejected[:SHOWN_REJECTED]:
        output.warn(f"{one.file} rejected: {one.reason}; it is {one.kept}")
    if len(rejected) > SHOWN_REJECTED:
        output.warn(f"{len(rejected) - SHOWN_REJECTED} more files rejected; --json lists them all")
