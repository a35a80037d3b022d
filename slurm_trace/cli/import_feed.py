"""`import feed`: bring a cloud account's billing feed into the store."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import click

from slurm_trace.cli import output
from slurm_trace.cli.importing import interval, progress_bar, tell

if TYPE_CHECKING:
    from slurm_trace.cli.import_sources import Progress
    from slurm_trace.store.ingest import ImportSummary

_UNNAMED = (
    "charges name no provider and are kept without one; imported again with --provider they would count a second time, "
    "so name it in a new store if they have one"
)
SHOWN = {
    "read": "read",
    "jobs": "charges",
    "inserted": "inserted",
    "updated": "updated",
    "unchanged": "unchanged",
}


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--provider", metavar="NAME", help="Provider of the rows that name none: aws, azure, gcp, ...")
@click.option("--covers", metavar="FROM..TO", help="The file holds every charge of this time.")
@output.format_options
@click.pass_context
def feed(
    context: click.Context, file: str, provider: str | None, covers: str | None, output_format: str
) -> None:
    """Import a cloud account's billing feed from FILE (`-`: standard input).

    FILE is CSV with a header: account, resource, sku, hours, start, end, or their names in FOCUS (BillingAccountId,
    ResourceId, SkuId, ConsumedQuantity with ConsumedUnit, ChargePeriodStart, ChargePeriodEnd). docs/FEED.md lists all.
    """
    covered = None if covers is None else interval(covers, UTC)
    with progress_bar() as progress:
        summary = _import(context.obj["store"], file, provider, covered, progress)
    tell(context, summary, output_format, SHOWN)


def _import(
    location: str | None, path: str, provider: str | None, covers: tuple[int, int] | None, progress: Progress
) -> ImportSummary:
    from slurm_trace.accounting.feed import read_feed
    from slurm_trace.cli.import_sources import FileRequest, open_input
    from slurm_trace.store.engine import open_store
    from slurm_trace.store.feed import KIND, FeedImport

    request = FileRequest(path=path, covers=covers)
    with open_input(path, "a billing feed") as source:
        store = open_store(location, create=True)
        try:
            with FeedImport(store, request.info(KIND, source.state)) as running:
                unnamed = 0
                for block in read_feed(source, provider, source.name):
                    running.add_charges(block.charges, block.rejected)
                    unnamed += sum(not charge.provider for charge in block.charges)
                    progress(source.seen, source.whole)
                source.drain()
                summary = running.finish(covers=covers, digest=source.digest, header=source.header)
        finally:
            store.close()
    if unnamed:
        summary.warn([f"{unnamed} {_UNNAMED}"])
    return summary
