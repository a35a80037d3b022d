"""`demo`: the whole chain on example records, in a store that is gone afterwards.

Every step is a command as a user would type it, printed before it runs.
"""

from __future__ import annotations

import shlex
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from slurm_trace.cli.output import each_warning_once

JOBS = 40_000
SEED = 1
RECORDED = "2026-11-30T15:19:00..2026-11-30T15:24:00"
GENERATED = "2025-01-01..2026-01-01"
EXPLAINED = "pretrain-13b"


@click.command()
@click.option(
    "--output",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The HTML report.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1000),
    default=JOBS,
    show_default=True,
    help="Rows of the generated year.",
)
def demo(output: str, jobs: int) -> None:
    """Run the whole chain on recorded and generated accounting; write report.html."""
    from slurm_trace.examples.generate import CLUSTER, write

    with (
        TemporaryDirectory(prefix="slurm-trace-demo-") as work,
        as_file(files("slurm_trace.examples")) as examples,
        each_warning_once(),
    ):
        recorded, generated = examples / "recorded" / "slurm-2411", Path(work, "year")
        write(generated, jobs, SEED)
        steps = _Steps(
            (f"{examples}/", f"{work}/"), _profile(Path(work), recorded, generated), f"{work}/demo.db"
        )
        steps.run("store", "init")
        for folder, covers in ((recorded, RECORDED), (generated, GENERATED)):
            steps.run("import", "sacct", f"{folder}/sacct.txt", "--tz", "UTC", "--covers", covers)
            steps.run("import", "events", f"{folder}/events.txt", "--tz", "UTC")
        steps.run("rank", "--top", "10")
        steps.run("groups")
        steps.run("groups", "--by", "account", "--top", "5")
        steps.run("groups", "--by", "user", "--top", "5")
        steps.run("explain", f"{CLUSTER}:{_job_named(EXPLAINED, generated)}")
        steps.run("report", "--html", output)


class _Steps:
    """Runs commands of ours in this process, on one store and one profile."""

    def __init__(self, folders: tuple[str, ...], profile: Path, store: str) -> None:
        self._folders = folders
        self._base = ["--config", str(profile), "--store", store]

    def run(self, *arguments: str) -> None:
        """Print a command without its folders, and run it."""
        from slurm_trace.cli.main import app

        shown = shlex.join(("slurm-trace", *arguments))
        for folder in self._folders:
            shown = shown.replace(folder, "")
        click.secho(f"\n$ {shown}", bold=True)
        app.main([*self._base, *arguments], prog_name="slurm-trace", standalone_mode=False)


def _profile(work: Path, *folders: Path) -> Path:
    """One site profile for all clusters."""
    path = work / "site.toml"
    path.write_text(
        "\n".join((f / "site.toml").read_text(encoding="utf-8") for f in folders), encoding="utf-8"
    )
    return path


def _job_named(name: str, folder: Path) -> str:
    with (folder / "sacct.txt").open(encoding="utf-8") as rows:
        return next(row.split("|", 1)[0] for row in rows if row.rstrip("\n").endswith(f"|{name}"))
