"""`import sacct` and `import events`: bring accounting records and events into the store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_trace.cli import output
from slurm_trace.errors import UsageProblem

if TYPE_CHECKING:
    from slurm_trace.cli.import_sources import FileRequest, Progress
    from slurm_trace.store.ingest import ImportSummary

SCHEMA = "slurm-trace/import/1"
SHOWN_REJECTED = 20
INPUT_REJECTED = 3
"""Exit code: done, but some input was rejected."""

_F = TypeVar("_F", bound=Callable[..., Any])


def _common_options(command: _F) -> _F:
    for option in reversed(
        (
            click.option("--cluster", metavar="NAME", help="Cluster of the rows that name none."),
            click.option("--tz", metavar="ZONE", help="Zone of local times, e.g. Europe/Helsinki."),
            click.option("--covers", metavar="FROM..TO", help="The file holds every run of this time."),
            output.format_options,
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("file", required=False)
@_common_options
@click.option("--delimiter", metavar="D", help="What stands between columns; default: found in the header.")
@click.option("--fields", metavar="A,B,C", help="Column names of a file without a header.")
@click.option(
    "--queried-at", metavar="TIME", help="When the file was written; unfinished runs count up to then."
)
@click.option(
    "--since", metavar="TIME", help="Without FILE: runs from here on; default: where the last import ended."
)
@click.option("--until", metavar="TIME", help="Without FILE: runs up to here; default: now.")
@click.option(
    "--source", type=click.Choice(["sacct", "pyslurm"]), help="Without FILE: what to ask; default: sacct."
)
@click.pass_context
def sacct(
    context: click.Context,
    /,
    file: str | None,
    output_format: str,
    since: str | None,
    until: str | None,
    **options: Any,
) -> None:
    """Import accounting records from FILE (`-`: standard input), or without FILE from Slurm itself.

    FILE is the output of sacct -p or -P, with any delimiter, or of sacct --json.
    """
    from slurm_trace.cli.import_sources import import_file

    if file is None:
        summary = _import_live(context, since, until, options)
    else:
        unfit = [
            name
            for name, given in (("--since", since), ("--until", until), ("--source", options["source"]))
            if given
        ]
        if unfit:
            raise UsageProblem(f"{unfit[0]} asks Slurm itself; leave out FILE, or the option")
        request = _file_request(context, file, options)
        with progress_bar() as progress:
            summary = import_file(context.obj["store"], request, progress)
    tell(context, summary, output_format)


@click.command()
@click.argument("file", required=False)
@_common_options
@click.pass_context
def events(context: click.Context, /, file: str | None, output_format: str, **options: Any) -> None:
    """Import node and TRES events from FILE (`-`: standard input), or without FILE from Slurm itself.

    FILE is the output of sacctmgr -P show event all_time.
    """
    from slurm_trace.cli.import_sources import import_event_file
    from slurm_trace.store.engine import open_store

    store = open_store(context.obj["store"], create=True)
    try:
        if file is None:
            from slurm_trace.cli.import_live import import_live_events

            summary = import_live_events(store, options["cluster"])
        else:
            summary = import_event_file(store, _file_request(context, file, options))
    finally:
        store.close()
    tell(context, summary, output_format)


def _import_live(
    context: click.Context, since: str | None, until: str | None, options: dict[str, Any]
) -> ImportSummary:
    from slurm_trace.accounting.times import parse_moment
    from slurm_trace.cli.import_live import LiveRequest, import_live
    from slurm_trace.store.engine import open_store

    names = ("covers", "delimiter", "fields", "queried_at")
    unfit = [name for name in names if options[name] is not None]
    if unfit:
        raise UsageProblem(
            f"--{unfit[0].replace('_', '-')} describes a file; name the FILE, or leave the option out"
        )
    zone = _zone(context, options) or UTC
    request = LiveRequest(
        cluster=options["cluster"],
        since=None if since is None else parse_moment(since, zone),
        until=None if until is None else parse_moment(until, zone),
        source=options["source"] or "sacct",
    )
    if request.since is not None and request.until is not None and request.since >= request.until:
        raise UsageProblem("the window is empty: --since must lie before --until")
    store = open_store(context.obj["store"], create=True)
    try:
        with progress_bar() as progress:
            return import_live(store, request, progress)
    finally:
        store.close()


def _file_request(context: click.Context, file: str, options: dict[str, Any]) -> FileRequest:
    from slurm_trace.accounting.options import plain_delimiter
    from slurm_trace.accounting.times import parse_moment
    from slurm_trace.cli.import_sources import FileRequest

    zone = _zone(context, options)
    local = zone or UTC
    fields = options.get("fields")
    delimiter = options.get("delimiter")
    queried_at = options.get("queried_at")
    return FileRequest(
        path=file,
        cluster=options["cluster"],
        zone=zone,
        delimiter=None if delimiter is None else plain_delimiter(delimiter),
        fields=None if fields is None else tuple(name.strip() for name in fields.split(",")),
        covers=None if options["covers"] is None else interval(options["covers"], local),
        queried_at=None if queried_at is None else parse_moment(queried_at, local),
    )


def _zone(context: click.Context, options: dict[str, Any]) -> tzinfo | None:
    """The zone of local times: as given, else as the profile has it for the cluster."""
    from slurm_trace.accounting.times import parse_zone
    from slurm_trace.site.profile import load_profile

    if options["tz"] is not None:
        return parse_zone(options["tz"])
    profile = load_profile(context.obj["config"])
    name = options["cluster"] or (next(iter(profile.clusters)) if len(profile.clusters) == 1 else None)
    zone = profile.cluster(name).zone
    return None if zone is None else parse_zone(zone)


def interval(text: str, zone: tzinfo) -> tuple[int, int]:
    """The half-open interval of `--covers FROM..TO`."""
    from slurm_trace.accounting.times import parse_moment

    from_, dots, to = text.partition("..")
    if not dots:
        raise UsageProblem(
            f"--covers {text[:40]!r} is no interval; write FROM..TO, e.g. 2025-01-01..2025-02-01"
        )
    covered = parse_moment(from_, zone), parse_moment(to, zone)
    if covered[0] >= covered[1]:
        raise UsageProblem(f"--covers {text[:60]!r} is empty: FROM must lie before TO")
    return covered


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda seen, whole: None
        return
    with click.progressbar(length=1000, label="importing", file=sys.stderr) as bar:
        yield lambda seen, whole: bar.update(max(0, seen * 1000 // whole - bar.pos) if whole else 0)


def tell(
    context: click.Context, summary: ImportSummary, output_format: str, names: Mapping[str, str] | None = None
) -> None:
    """Print the counts of an import, and end with exit code 3 where rows were rejected.

    Args:
        context: The command's.
        summary: The counts.
        output_format: table, json or csv.
        names: What the table calls the counts that it shows.
    """
    counts = {
        "read": summary.read,
        "jobs": summary.jobs,
        "inserted": summary.inserted,
        "updated": summary.updated,
        "unchanged": summary.unchanged,
        "steps_skipped": summary.steps_skipped,
    }
    rejected = [{"line": row.line, "reason": row.reason} for row in summary.rejected]
    if output_format == "json":
        output.print_json({"schema": SCHEMA, **counts, "rejected": rejected, "warnings": summary.warnings})
    elif output_format == "csv":
        output.print_csv([*counts, "rejected"], [{**counts, "rejected": len(rejected)}])
    else:
        shown = {name: name.replace("_", " ") for name in counts} if names is None else names
        rows = [(shown[name], str(count)) for name, count in counts.items() if name in shown]
        output.print_table(("rows", "count"), [*rows, ("rejected", str(len(rejected)))], right=("count",))
    for warning in summary.warnings:
        output.warn(warning)
    for row in rejected[:SHOWN_REJECTED]:
        output.warn(f"line {row['line']} rejected: {row['reason']}")
    if len(rejected) > SHOWN_REJECTED:
        output.warn(f"{len(rejected) - SHOWN_REJECTED} more rows rejected; --json lists them all")
    if rejected:
        context.exit(INPUT_REJECTED)
