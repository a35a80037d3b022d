"""What a live Slurm says of itself: name, version, what it hides and what it has purged."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass
from datetime import UTC

from slurm_trace.accounting.commands import BACKOFF_S, Runner, ask
from slurm_trace.accounting.events import Events, event_call, read_event_lines
from slurm_trace.errors import EnvironmentProblem

_UNIT_S = {"hour": 3600, "day": 86_400, "month": 31 * 86_400}
_PURGE = re.compile(r"(\d+)\s*(hour|day|month)s?", re.IGNORECASE)
_RANGE = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\S*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A cluster that answers.

    Attributes:
        version: Slurm's version as sacct prints it, such as "22.05.8".
        private_data: True if other users' jobs are hidden from this user; None if it is not known.
        purge_after_s: slurmdbd deletes runs that were submitted longer ago; None = it keeps all.
        widest_s: Widest window that slurmdbd allows; None = any.
    """

    name: str
    version: str
    private_data: bool | None = None
    purge_after_s: int | None = None
    widest_s: int | None = None

    @property
    def release(self) -> tuple[int, int]:
        """MAJOR and MINOR of the version, by which Slurm's interfaces change."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def discover(runner: Runner, cluster: str | None = None) -> LiveCluster:
    """Ask the live Slurm about itself.

    Args:
        runner: Runs the commands.
        cluster: A cluster of the same slurmdbd; by default the one this host belongs to.

    Raises:
        EnvironmentProblem: Slurm does not answer, or the cluster's name cannot be told.
    """
    version = _VERSION.search(ask(runner, ["sacct", "--version"]))
    if version is None:
        raise EnvironmentProblem("sacct --version printed no version; check which sacct is first on PATH")
    config = read_config(ask(runner, ["sacctmgr", "--readonly", "show", "configuration"], pauses=BACKOFF_S))
    return LiveCluster(
        name=cluster or _cluster_name(runner),
        version=version[0],
        private_data=_hides_jobs(runner, config),
        purge_after_s=_purge_s(config.get("PurgeJobAfter", ["NONE"])[-1]),
        widest_s=_range_s(config.get("MaxQueryTimeRange", ["UNLIMITED"])[-1]),
    )


def query_events(runner: Runner, cluster: str) -> Events:
    """All node and TRES events of a live cluster.

    Raises:
        EnvironmentProblem: sacctmgr failed.
    """
    lines = ask(runner, event_call(cluster), pauses=BACKOFF_S).encode().split(b"\n")
    return read_event_lines(lines, cluster, UTC, "sacctmgr show event")


def read_config(text: str) -> dict[str, list[str]]:
    """`Name = value` lines, as scontrol and sacctmgr print them; a name may come more than once."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip():
            values.setdefault(name.strip(), []).append(value.strip())
    return values


def _cluster_name(runner: Runner) -> str:
    # Accounting first: it answers while the controller is down, and mostly knows one cluster only.
    names = ask(
        runner, ["sacctmgr", "--readonly", "--parsable2", "--noheader", "show", "cluster", "format=Cluster"]
    ).split()
    if len(names) > 1:
        names = read_config(ask(runner, ["scontrol", "show", "config"])).get("ClusterName", [])
    if len(names) != 1:
        raise EnvironmentProblem("Slurm names no cluster of its own; name the one to read with --cluster")
    return names[0]


def _hides_jobs(runner: Runner, config: dict[str, list[str]]) -> bool | None:
    listed = {word.strip().lower() for value in config.get("PrivateData", []) for word in value.split(",")}
    if not listed:
        return None
    if not listed & {"jobs", "all"}:
        return False
    return not _is_operator(runner, config)


def _is_operator(runner: Runner, config: dict[str, list[str]]) -> bool:
    uid = os.geteuid()
    if uid == 0 or any(f"({uid})" in value for value in config.get("SlurmUser", [])):
        return True
    try:
        level = ask(
            runner,
            [
                "sacctmgr",
                "--readonly",
                "--parsable2",
                "--noheader",
                "show",
                "user",
                getpass.getuser(),
                "format=AdminLevel",
            ],
        )
    except EnvironmentProblem:
        return False
    return level.strip().lower() in ("operator", "administrator")


def _purge_s(value: str) -> int | None:
    found = _PURGE.search(value)
    return int(found[1]) * _UNIT_S[found[2].lower()] if found else None


def _range_s(value: str) -> int | None:
    found = _RANGE.search(value)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
