"""`node doctor`: what `checks` finds, printed. 1: a check failed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm_trace.errors import TraceError
from slurm_trace.node.checks import Check, Place, run_checks
from slurm_trace.node.config import configure
from slurm_trace.node.install import LIBEXEC

SCHEMA = "slurm-trace/node-doctor/1"


def main(arguments: Sequence[str]) -> int:
    """Run the command; the first argument is its name."""
    from slurm_trace.node.main import add_options, make_source

    parser = argparse.ArgumentParser(prog="slurm-trace node doctor", description="Check this node.")
    add_options(parser)
    parser.add_argument("--hooks", type=Path, default=Path(LIBEXEC), help=f"default {LIBEXEC}")
    parser.add_argument("--slurm-conf", type=Path, help="default: SLURM_CONF, /etc/slurm/slurm.conf")
    parser.add_argument("--node", help="the node's name in Slurm (default: the host's)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = vars(parser.parse_args(arguments[1:]))
    hooks, slurm_conf, node, as_json = (given.pop(key) for key in ("hooks", "slurm_conf", "node", "json"))
    try:
        config = configure(given.pop("config"), given)
        place = Place(
            directory=Path(config.directory),
            spool=config.spool_folder,
            gres_conf=Path(config.gres_conf),
            hooks=hooks,
            slurm_conf=slurm_conf,
            node=node,
            source=lambda: make_source(config),
        )
        found = []
        for check in run_checks(place):
            found.append(check)
            if not as_json:
                sys.stdout.write(f"{check.status:<8} {check.name}: {check.text}\n")
    except TraceError as error:
        sys.stderr.write(f"slurm-trace: {error}\n")
        return error.exit_code
    if as_json:
        sys.stdout.write(_as_json(found))
    return 1 if any(check.status == "fail" for check in found) else 0


def _as_json(found: Sequence[Check]) -> str:
    rows = [{"name": one.name, "status": one.status, "text": one.text} for one in found]
    return json.dumps({"schema": SCHEMA, "checks": rows}, indent=2) + "\n"
