"""Entry point. A command's module is imported when that command is called, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Any

import click

from slurm_trace.errors import TraceError, UsageProblem
from slurm_trace.version import VERSION

_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "": {
        "demo": ("demo:demo", "Run the whole chain on recorded and generated accounting; write report.html."),
        "import": ("", "Bring accounting records, spool files and events into the store."),
        "site": ("", "Write or show the site profile."),
        "rank": ("ranking:rank", "Rank jobs by their compute bound against a threshold."),
        "groups": ("groups:groups", "The same question for groups of jobs."),
        "feed": ("feed:feed", "The same question for cloud accounts, by their billing feeds."),
        "explain": ("ranking:explain", "Every term of one job's bound, and why it is not lower."),
        "classify": (
            "classify:classify",
            "What one job's readings say of its purpose: evidence, never a verdict.",
        ),
        "report": ("report:report", "Write the audit report as one HTML file."),
        "corpus": ("", "The boundary corpus: has any decision changed?"),
        "thresholds": ("registries:thresholds", "Print the registry of compute thresholds."),
        "rates": ("registries:rates", "Print the registry of device rates."),
        "rules": ("", "Print the rules that verdicts and warnings follow from; compare their generations."),
        "hooks": ("", "Install the hooks of the node side, print the lines for slurm.conf."),
        "node": ("", "The node side: sampler, its state, checks."),
        "store": ("", "Create, upgrade and inspect the store."),
    },
    "corpus": {
        "run": ("corpus:run", "Put constructed sites through the analysis and compare their routes."),
    },
    "hooks": {
        "install": ("hooks:install", "Install hooks, units and settings on this node."),
        "print": ("hooks:print_", "Print the lines for slurm.conf, or one of the files."),
    },
    "node": {
        "run": ("node:run", "Follow the leases and sample the GPUs that they hold."),
        "status": ("node:status", "Show whether a sampler runs, and what lies in the spool."),
        "doctor": ("node:doctor", "Check this node: hooks, directories, slurm.conf, devices, clock, space."),
    },
    "import": {
        "sacct": ("importing:sacct", "Import accounting records from a file or from sacct itself."),
        "spool": ("import_spool:spool", "Import sealed files of the samplers."),
        "events": ("importing:events", "Import node and TRES events (sacctmgr show event)."),
        "feed": ("import_feed:feed", "Import a cloud account's billing feed (CSV)."),
    },
    "rules": {
        "list": ("rules:list_", "Print the rules."),
        "show": ("rules:show", "Print one rule, with its reason and where it comes from."),
        "observables": ("rules:observables", "Print what rules may ask of runs and of groups."),
        "sources": ("rules:sources", "Print where values come from, and what a site needs to have them."),
        "compare": ("rules:compare", "Put one generation of the rules beside another, run by run."),
    },
    "site": {
        "probe": ("site:probe", "Write a site profile from a live Slurm."),
        "show": ("site:show", "Show the site profile and what it leaves open."),
    },
    "store": {
        "init": ("store:init", "Create the store."),
        "upgrade": ("store:upgrade", "Bring the store's schema up to date."),
        "info": ("store:info", "Show what the store holds."),
        "prune": ("store:prune", "Remove raw samples by their age; summaries stay."),
    },
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and one line of help, and imports them on demand."""

    def __init__(self, path: str = "", **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self._path = path

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(_GROUPS[self._path])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now."""
        entry = _GROUPS[self._path].get(cmd_name)
        if entry is None:
            return None
        target, summary = entry
        if not target:
            return LazyGroup(path=cmd_name, name=cmd_name, help=summary)
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(f"slurm_trace.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _GROUPS[self._path].items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(VERSION, prog_name="slurm-trace")
@click.option("--config", metavar="FILE", envvar="SLURM_TRACE_CONFIG", help="Site profile (TOML).")
@click.option("--store", envvar="SLURM_TRACE_STORE", help="Store URL or path of a SQLite file.")
@click.pass_context
def app(ctx: click.Context, config: str | None, store: str | None) -> None:
    """Which Slurm jobs cannot have been a training run above a compute threshold, and which cannot be cleared."""
    ctx.obj = {"config": config, "store": store}


class _Outlet(io.FileIO):
    """A standard stream that never raises: a reader that leaves early is no failure; all else is told at the end."""

    problem: OSError | None = None

    def write(self, data: Any, /) -> Any:
        """Write, or drop what can no longer be written."""
        if self.problem is None:
            try:
                return super().write(data)
            except OSError as error:
                self.problem = error
        return memoryview(data).nbytes


def run() -> None:
    """Run the command line; every error of ours becomes one line and an exit code."""
    outlet = _open_streams()
    code = _outcome()
    sys.stdout.flush()
    if outlet.problem is not None and not isinstance(outlet.problem, BrokenPipeError):
        _complain(
            f"standard output: {outlet.problem.strerror}; what was printed is not whole, make room and repeat"
        )
        code = TraceError.exit_code
    sys.exit(code)


def _open_streams() -> _Outlet:
    """Standard streams that take whatever a record holds, also where the caller closed them."""
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_RDONLY), encoding="utf-8", closefd=False)  # noqa: SIM115
    outlets = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        fd = os.open(os.devnull, os.O_WRONLY) if stream is None else stream.fileno()
        outlet = _Outlet(fd, "w", closefd=False)
        encoding = "utf-8" if stream is None else stream.encoding
        line_wise = name == "stderr" or outlet.isatty()
        text = io.TextIOWrapper(
            io.BufferedWriter(outlet), encoding, "backslashreplace", line_buffering=line_wise
        )
        setattr(sys, name, text)
        outlets.append(outlet)
    return outlets[0]


def _outcome() -> int:
    try:
        _refuse_undecodable()
        code = app.main(standalone_mode=False)
        return code if isinstance(code, int) else 0
    except TraceError as error:
        _complain(str(error))
        return error.exit_code
    except click.exceptions.Abort:
        _complain("interrupted; everything committed so far is kept, run the command again")
    except MemoryError:
        _complain("not enough memory; everything committed so far is kept, give the command more")
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        _complain(f"{where}{error.strerror or error}; the system refuses that, repair it and repeat")
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return TraceError.exit_code


def _refuse_undecodable() -> None:
    """Neither the store nor a report can hold a name that is no text."""
    given = [("argument", text) for text in sys.argv[1:]]
    given += [(name, os.environ.get(name, "")) for name in ("SLURM_TRACE_CONFIG", "SLURM_TRACE_STORE")]
    for what, text in given:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageProblem(
                f"{what} {text[:60]!r} is no UTF-8; rename it, or pipe a file and name `-`"
            ) from None


def _complain(message: str) -> None:
    output = importlib.import_module("slurm_trace.cli.output")
    click.echo("slurm-trace: " + output.printable(message), err=True)
