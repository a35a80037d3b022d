"""From the live Slurm into the store: windows of runs, each committed and noted as complete, and its events."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_trace.accounting.commands import Runner, SubprocessRunner
from slurm_trace.accounting.discovery import LiveCluster, discover, query_events
from slurm_trace.accounting.events import Events
from slurm_trace.accounting.live import LiveQuery, LiveWindow, notices, read_live
from slurm_trace.accounting.lock import only_one
from slurm_trace.accounting.pyslurm_source import read_pyslurm
from slurm_trace.accounting.windows import OVERLAP_S
from slurm_trace.cli.import_sources import Progress
from slurm_trace.store.engine import Store
from slurm_trace.store.ingest import ImportInfo, ImportSummary, Watermark, begin_import
from slurm_trace.store.load import load_unsettled, load_watermark
from slurm_trace.store.upsert import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """What to ask the live Slurm for; times in UTC epoch seconds."""

    cluster: str | None = None
    since: int | None = None
    until: int | None = None
    source: str = "sacct"


def import_live(
    store: Store, request: LiveRequest, progress: Progress, runner: Runner | None = None
) -> ImportSummary:
    """Import runs and events of the live cluster.

    Raises:
        EnvironmentProblem: Slurm or the store failed; the windows before that are kept.
    """
    runner = runner or SubprocessRunner()
    live = discover(runner, request.cluster)
    with only_one(f"sacct-{live.name}"):
        return _import_cluster(store, request, progress, runner, live)


def _import_cluster(
    store: Store, request: LiveRequest, progress: Progress, runner: Runner, live: LiveCluster
) -> ImportSummary:
    total = ImportSummary()
    total.warn(notices(live))
    found = query_events(runner, live.name)
    # Its counts are of runs; events are told by `import events`.
    total.add(replace(_store_events(store, live.name, found), runs=Counts()))
    mark = load_watermark(store, live.name, "sacct")
    query = LiveQuery(
        since=request.since,
        until=request.until,
        watermark=mark,
        first_seen=found.first_seen,
        refresh=load_unsettled(store, live.name, None if mark is None else mark - OVERLAP_S),
    )
    read = read_pyslurm if request.source == "pyslurm" else read_live
    for window in read(runner, live, query):
        total.add(_store_window(store, live.name, window))
        progress(0, 0)
    return total


def import_live_events(store: Store, cluster: str | None, runner: Runner | None = None) -> ImportSummary:
    """Import the events of the live cluster alone."""
    runner = runner or SubprocessRunner()
    live = discover(runner, cluster)
    return _store_events(store, live.name, query_events(runner, live.name))


def _store_events(store: Store, cluster: str, found: Events) -> ImportSummary:
    info = ImportInfo("events", "sacctmgr show event", cluster=cluster, zone="UTC")
    with begin_import(store, info) as running:
        running.add_events(found.events, found.rejected)
        running.summary.warn(found.warnings)
        return running.finish()


def _store_window(store: Store, cluster: str, window: LiveWindow) -> ImportSummary:
    asked = None if window.asked is None else [window.asked.since, window.asked.until]
    source = str(window.flags["source"])
    info = ImportInfo(
        source,
        source if asked is None else f"{source} {asked[0]}..{asked[1]}",
        cluster=cluster,
        zone="UTC",
        flags={**window.flags, "cluster": cluster, "asked": asked, "queried_at": window.queried_at},
    )
    with begin_import(store, info) as running:
        for block in window.blocks():
            running.add(block)
        running.summary.warn(window.warnings)
        covers = None if window.covers is None else (window.covers.since, window.covers.until)
        mark = None if window.watermark is None else Watermark(cluster, "sacct", window.watermark)
        return running.finish(covers=covers, watermark=mark)
