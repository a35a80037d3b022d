"""`node doctor`: what `checks` finds, printed. 1: a check failed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slurm_trace.node.checks import Check, Place, run_checks
from slurm_trace.node.config import NodeConfig, configure
from slurm_trace.node.devices.base import DeviceSource
from slurm_trace.node.install import LIBEXEC

SCHEMA = "slurm-trace/node-doctor/1"


def examine(given: dict[str, Any], make_source: Callable[[NodeConfig], DeviceSource]) -> int:
    """Check this node and print what was found."""
    hooks, slurm_conf, node, as_json = (given.pop(key) for key in ("hooks", "slurm_conf", "node", "json"))
    config = configure(given.pop("config"), given)
    place = Place(
        directory=Path(config.directory),
        spool=config.spool_folder,
        gres_conf=Path(config.gres_conf),
        hooks=hooks or Path(LIBEXEC),
        slurm_conf=slurm_conf,
        node=node,
        source=lambda: make_source(config),
    )
    found = []
    for check in run_checks(place):
        found.append(check)
        if not as_json:
            sys.stdout.write(f"{check.status:<8} {check.name}: {check.text}\n")
            sys.stdout.flush()
    if as_json:
        sys.stdout.write(_as_json(found))
    return 1 if any(check.status == "fail" for check in found) else 0


def _as_json(found: Sequence[Check]) -> str:
    rows = [{"name": one.name, "status": one.status, "text": one.text} for one in found]
    return json.dumps({"schema": SCHEMA, "checks": rows}, indent=2) + "\n"
