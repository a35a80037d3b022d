"""`site probe` and `site show`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_trace.cli import output
from slurm_trace.errors import EnvironmentProblem, UsageProblem

if TYPE_CHECKING:
    from slurm_trace.site.profile import SiteProfile

DEFAULT_FILE = "site.toml"
SHOW_SCHEMA = "slurm-trace/site/1"
_COLUMNS = (
    "hosts",
    "gpus",
    "sku",
    "mig",
    "cpu_model",
    "cores",
    "devices",
    "cores confined",
    "basis",
    "from",
    "to",
)


@click.command()
@click.option(
    "--output",
    "target",
    metavar="FILE",
    help=f"Profile to write [--config, else {DEFAULT_FILE}; - = stdout].",
)
@click.option("--force", is_flag=True, help="Replace this cluster's part of an existing profile.")
@click.option("--rates-overlay", metavar="FILE", help="The site's own rates.")
@click.pass_context
def probe(context: click.Context, target: str | None, force: bool, rates_overlay: str | None) -> None:
    """Write a site profile from a live Slurm."""
    from slurm_trace.accounting.commands import SubprocessRunner
    from slurm_trace.analysis.rates import Rates
    from slurm_trace.site.probe import build, gather
    from slurm_trace.site.profile import SiteProfile, dump_profile, load_profile

    path = Path(target or context.obj["config"] or DEFAULT_FILE)
    to_stdout = target == "-"
    if not to_stdout and path.exists() and not force:
        raise UsageProblem(
            f"{path} exists; keep it, name another --output, or replace the cluster's part with --force"
        )
    clusters = {} if to_stdout or not path.exists() else dict(load_profile(path).clusters)
    rates = Rates.load(Path(rates_overlay) if rates_overlay else None)

    def resolve(slurm_type: str) -> str | None:
        found = rates.resolve(slurm_type)
        return found.device_ids[0] if found.how in ("exact", "alias") and len(found.device_ids) == 1 else None

    probed = build(gather(SubprocessRunner(), host_zone()), resolve, rates.inert_gres)
    clusters[probed.name] = probed.cluster
    header = (f"Site profile of {probed.name}, written by slurm-trace site probe.", "Still to look at:")
    text = dump_profile(SiteProfile(clusters), (*header, *(f"- {note}" for note in probed.notes)))
    if to_stdout:
        click.echo(text, nl=False)
        return
    write_atomically(path, text)
    click.echo(f"wrote {path}; {len(probed.notes)} points are left to look at, listed at its top", err=True)


@click.command()
@output.format_options
@click.pass_context
def show(context: click.Context, output_format: str) -> None:
    """Show the site profile and what it leaves open."""
    from slurm_trace.site.profile import load_profile

    profile = load_profile(context.obj["config"])
    if output_format == "json":
        _show_json(profile)
    elif output_format == "csv":
        output.print_csv(("cluster", *_COLUMNS), _rows(profile))
    else:
        _show_table(profile, context.obj["config"])


def host_zone() -> str | None:
    """IANA name of this host's zone, by which sacct prints; None if it has no name."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name:
        name = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")[2]
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key if name else None
    except (KeyError, OSError, ValueError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageProblem: There is something that is no file.
        EnvironmentProblem: It cannot be written.
    """
    path = output.whole_file(path, "--output")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}; choose another --output") from error


def _rows(profile: SiteProfile) -> list[dict[str, object]]:
    return [
        {
            "cluster": name,
            "hosts": g.hosts,
            "gpus": g.gpus,
            "sku": g.sku,
            "mig": g.mig,
            "cpu_model": g.cpu_model,
            "cores": g.cores,
            "devices": g.devices_confined,
            "cores confined": g.cores_confined,
            "basis": g.basis,
            "from": g.from_,
            "to": g.to,
        }
        for name, cluster in profile.clusters.items()
        for g in cluster.nodes
    ]


def _show_json(profile: SiteProfile) -> None:
    from slurm_trace.site.gaps import open_points
    from slurm_trace.site.profile import plain_clusters

    output.print_json(
        {
            "schema": SHOW_SCHEMA,
            "digest": profile.digest,
            "clusters": plain_clusters(profile),
            "open": {name: open_points(cluster) for name, cluster in profile.clusters.items()},
        }
    )


def _show_table(profile: SiteProfile, path: str | None) -> None:
    from slurm_trace.site.gaps import open_points
    from slurm_trace.site.profile import ClusterProfile

    if not profile.clusters:
        where = f"{path} describes no cluster" if path else "no site profile (--config, SLURM_TRACE_CONFIG)"
        click.echo(
            f"{where}: everything works, with these stand-ins. `slurm-trace site probe` writes a profile."
        )
        for point in open_points(ClusterProfile()):
            output.warn(point)
        return
    for name, cluster in profile.clusters.items():
        click.echo(f"cluster {name}, profile {profile.digest[:12]}")
        click.echo(f"  zone {_known(cluster.zone)}")
        click.echo(f"  KillWait {_seconds(cluster.kill_wait_s)}")
        click.echo(f"  UnkillableStepTimeout {_seconds(cluster.unkillable_step_timeout_s)}")
        click.echo(
            f"  GresTypes {_known(None if cluster.gres_types is None else ','.join(cluster.gres_types))}"
        )
        for period in cluster.registered_tres:
            bounds = (period.from_, period.to)
            since = "" if bounds == (None, None) else f" from {_day(bounds[0])} to {_day(bounds[1])}"
            click.echo(f"  TRES recorded{since}: {','.join(period.names)}")
        cells = [row for row in _rows(profile) if row["cluster"] == name]
        if cells:
            output.print_table(
                _COLUMNS,
                [[_day(r[c]) if c in ("from", "to") else _known(r[c]) for c in _COLUMNS] for r in cells],
            )
        for point in open_points(cluster):
            output.warn(f"{name}: {point}")


def _known(value: object) -> str:
    return (
        "?" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    )


def _seconds(value: int | None) -> str:
    return _known(None if value is None else f"{value} s")


def _day(moment: object) -> str:
    from datetime import UTC, datetime

    return (
        datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%MZ") if isinstance(moment, int) else ".."
    )
