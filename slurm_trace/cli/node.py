"""`node run`, `node status`, `node doctor`: the node side's own command, which has its own options."""

from __future__ import annotations

import click


def _passed_on(name: str, summary: str) -> click.Command:
    @click.command(
        name,
        help=summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> int:
        from slurm_trace.node.main import main

        return main([name, *arguments])

    return command


run = _passed_on("run", "Follow the leases and sample the GPUs that they hold.")
status = _passed_on("status", "Show whether a sampler runs, and what lies in the spool.")
doctor = _passed_on("doctor", "Check this node: hooks, directories, slurm.conf, devices, clock, space.")
