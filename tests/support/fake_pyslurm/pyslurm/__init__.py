"""A stand-in for pyslurm 25.11 with the faults that the real one was seen to have; FAKE_PYSLURM says which."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_scenario = json.loads(os.environ.get("FAKE_PYSLURM", "{}"))
__version__ = _scenario.get("version", "25.11.2")

if os.environ.get("PYSLURM_DISABLE_AUTO_INIT") != "1":
    os._exit(1)  # what libslurm's fatal() does


class RPCError(Exception):
    pass


def slurm_init() -> None:
    if not Path(os.environ["SLURM_CONF"]).is_file() or "fatal" in _scenario:
        os._exit(1)


def _job(values: dict[str, Any]) -> SimpleNamespace:
    tres = values.pop("allocated_tres", None)
    steps = {key: SimpleNamespace(**step) for key, step in values.pop("steps", {}).items()}
    if tres is not None:
        gres = {name: SimpleNamespace(count=n) for name, n in tres.pop("gres", {}).items()}
        tres = SimpleNamespace(gres=gres, **{name: SimpleNamespace(count=n) for name, n in tres.items()})
    return SimpleNamespace(**values, allocated_tres=tres, steps=steps)


class _Jobs(dict[int, Any]):
    """Keyed by job id, so that of several runs only the last one stays."""

    @classmethod
    def load(cls, wanted: Any) -> _Jobs:
        if "rpc" in _scenario:
            raise RPCError(_scenario["rpc"])
        if "index" in _scenario:
            raise IndexError("list index out of range")
        if "chatter" in _scenario:
            sys.stdout.write("slurm: a message of libslurm\n")
        jobs = cls((values["id"], _job(dict(values))) for values in _scenario.get("jobs", []))
        if "crash" in _scenario:
            jobs = _Crashing(jobs)
        return jobs


class _Crashing(_Jobs):
    def values(self) -> Any:  # type: ignore[override]
        yield next(iter(super().values()))
        os._exit(0)


class _JobFilter:
    def __init__(self, *, clusters: list[str], start_time: int, end_time: int) -> None:
        assert start_time > 0, "0 means today"
        assert end_time > start_time
        assert clusters == ["lab"]


db = SimpleNamespace(Jobs=_Jobs, JobFilter=_JobFilter)
