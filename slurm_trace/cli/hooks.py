"""`hooks install` and `hooks print`: the node side's files and the lines for slurm.conf."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurm_trace.errors import UsageProblem
from slurm_trace.node import install as node_install

_FLAGS = click.option(
    "--prolog-flags",
    type=click.Choice(node_install.PROLOG_FLAGS),
    default="alloc",
    show_default=True,
    help="Which PrologFlags the lines for slurm.conf have.",
)
_DROP_INS = click.option(
    "--drop-ins", is_flag=True, help="For slurm.conf with Prolog=/etc/slurm/prolog.d/* (likewise Epilog)."
)
_NEXT = """\
Then, on the node:
  systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload
  systemctl enable --now slurm-trace-node
  /usr/libexec/slurm-trace/slurm-trace-node doctor
Only then, in slurm.conf, followed by scontrol reconfigure:
"""


@click.command()
@_FLAGS
@_DROP_INS
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Install below this directory: an image, a package being built.",
)
@click.option(
    "--sampler",
    type=click.Path(path_type=Path),
    help="The sampler's single file (make node); without it, this Python is called.",
)
@click.option("--force", is_flag=True, help="Overwrite files that somebody else wrote or changed.")
@click.option("--yes", is_flag=True, help="Carry the plan out without asking.")
def install(
    prolog_flags: str, drop_ins: bool, root: Path, sampler: Path | None, force: bool, yes: bool
) -> None:
    """Install hooks, units and settings on this node; shows the plan first, can be repeated."""
    plan = node_install.make_plan(root, drop_ins=drop_ins, sampler=sampler, force=force)
    for step in plan:
        click.echo(f"{step.action:<10} {step.mode:04o} {step.path}")
    if all(step.action in ("unchanged", "kept") for step in plan):
        click.echo("Nothing to do.")
    else:
        if not yes and not any(step.action == "conflict" for step in plan):
            if not sys.stdin.isatty():
                raise UsageProblem("this is the plan; add --yes to carry it out")
            click.confirm("Carry this out?", abort=True)
        node_install.carry_out(root, plan)
        click.echo("Done.")
    click.echo(f"\n{_NEXT}")
    click.echo(node_install.slurm_conf_lines(prolog_flags, drop_ins=drop_ins), nl=False)


@click.command("print")
@_FLAGS
@_DROP_INS
@click.argument("name", required=False)
def print_(prolog_flags: str, drop_ins: bool, name: str | None) -> None:
    """Print the lines for slurm.conf, or one file (NAME: prolog, epilog, a path of `hooks install`)."""
    pieces = {piece.source: piece for piece in node_install.PIECES + node_install.DROP_INS}
    if name is None:
        click.echo(node_install.slurm_conf_lines(prolog_flags, drop_ins=drop_ins), nl=False)
        return
    for piece in pieces.values():
        if name in (piece.source, piece.target, Path(piece.source).name):
            click.echo(node_install.hook_file(piece.source), nl=False)
            return
    raise UsageProblem(f"{name}: no such file; there are {', '.join(pieces)}")
