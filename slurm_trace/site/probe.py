"""Writes a site profile from a live Slurm: what its configuration says, and what that leaves open.

Slurm knows what it was told, not what is in the box: everything here is `declared`. A fact holds from the moment at
which the cluster last registered other resources; before that the probe knows nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_trace.accounting.commands import Runner, ask
from slurm_trace.accounting.discovery import query_events, read_config
from slurm_trace.accounting.events import REGISTERED, Event, Events
from slurm_trace.errors import EnvironmentProblem
from slurm_trace.site.nodes import SlurmNode, read_nodes
from slurm_trace.site.profile import ClusterProfile, NodeGroup, TresPeriod

# The registry's id of a Slurm type, if exactly one device fits it.
Resolve = Callable[[str], str | None]

_SHARES = {"shard", "mps"}
_CONFINED = (
    "devices_confined and cores_confined are what cgroup.conf says on this host; they are true only if no node says "
    "otherwise, every card of a node is in its gres list, and no container daemon hands out devices"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is read from a live Slurm; None = not readable here.

    Attributes:
        config: `scontrol show config`.
        nodes: `scontrol show node`.
        cgroup: Text of cgroup.conf.
        gres: Text of gres.conf.
        zone: IANA name of this host's zone.
    """

    config: str
    nodes: str
    events: Events | None
    cgroup: str | None
    gres: str | None
    zone: str | None
    now: int


@dataclass(frozen=True, slots=True)
class Probed:
    """A profile and what a person still has to look at."""

    name: str
    cluster: ClusterProfile
    notes: tuple[str, ...]


def gather(runner: Runner, zone: str | None) -> Facts:
    """Ask the live Slurm.

    Raises:
        EnvironmentProblem: The controller does not answer.
    """
    config = ask(runner, ["scontrol", "show", "config"])
    values = read_config(config)
    try:
        events = query_events(runner, values.get("ClusterName", [""])[0])
    except EnvironmentProblem:
        events = None
    directory = Path(values.get("SLURM_CONF", ["/etc/slurm/slurm.conf"])[0]).parent
    return Facts(
        config=config,
        nodes=ask(runner, ["scontrol", "show", "node"]),
        events=events,
        cgroup=_text(directory / "cgroup.conf"),
        gres=_text(directory / "gres.conf"),
        zone=zone,
        now=runner.now(),
    )


def build(facts: Facts, resolve: Resolve, inert: Collection[str] = ()) -> Probed:
    """A profile from what was read.

    Args:
        facts: What was read.
        resolve: Finds the card that a Slurm type must mean.
        inert: Names of generic resources that compute nothing.

    Raises:
        EnvironmentProblem: The configuration names no cluster.
    """
    config = read_config(facts.config)
    names = config.get("ClusterName", [])
    if len(names) != 1:
        raise EnvironmentProblem("scontrol show config names no ClusterName; check that slurmctld answers")
    notes: list[str] = []
    periods = _tres_periods(facts.events.events if facts.events else [], names[0])
    if not periods:
        recorded = config.get("AccountingStorageTRES", [""])[0]
        periods = (TresPeriod(names=tuple(recorded.split(",")), from_=facts.now),) if recorded else ()
        notes.append("registered_tres holds from now on only: the cluster's events could not be read")
    since = periods[-1].from_ if periods and periods[-1].to is None else facts.now
    devices, cores = _confinement(facts, config, notes)
    pattern = NodeGroup(hosts="", devices_confined=devices, cores_confined=cores, from_=since)
    groups = tuple(_groups(read_nodes(facts.nodes), pattern, resolve, inert, notes))
    if groups:
        notes.append(
            "cpu_model is not known to Slurm: add it from lscpu, else the largest registered CPU counts"
        )
        notes.append("nodes hold from their `from` on: move it back as far as the nodes were the same")
    if facts.gres is not None and "autodetect" not in facts.gres.lower():
        notes.append(
            "gres.conf lists cards by hand (no AutoDetect): check that no card of a node is left out"
        )
    cluster = ClusterProfile(
        zone=facts.zone,
        kill_wait_s=_seconds(config, "KillWait"),
        unkillable_step_timeout_s=_seconds(config, "UnkillableStepTimeout"),
        gres_types=_words(config, "GresTypes"),
        registered_tres=periods,
        nodes=groups,
    )
    return Probed(names[0], cluster, tuple(notes))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _seconds(config: dict[str, list[str]], name: str) -> int | None:
    found = re.match(r"\d+", config.get(name, [""])[0])
    return int(found[0]) if found else None


def _words(config: dict[str, list[str]], name: str) -> tuple[str, ...] | None:
    text = config.get(name, [None])[0]
    if text is None:
        return None
    return tuple(word for word in text.split(",") if word and word != "(null)")


def _tres_periods(events: Iterable[Event], cluster: str) -> tuple[TresPeriod, ...]:
    """One period for each run of cluster events that name the same TRES, oldest first."""
    periods: list[TresPeriod] = []
    mine = [
        e for e in events if e.cluster == cluster and not e.node and e.tres and e.reason.lower() == REGISTERED
    ]
    for event in sorted(mine, key=lambda e: e.start):
        names = tuple(sorted(part.split("=")[0] for part in (event.tres or "").split(",")))
        periods.append(TresPeriod(names=names, from_=event.start, to=event.end))
    return tuple(periods)


def _confinement(
    facts: Facts, config: dict[str, list[str]], notes: list[str]
) -> tuple[bool | None, bool | None]:
    if "task/cgroup" not in config.get("TaskPlugin", [""])[0]:
        notes.append("no task/cgroup in TaskPlugin: jobs are not held to their own GPUs and cores")
        return False, False
    # Newer releases print the daemons' own cgroup settings below their configuration.
    settings = {
        name.lower(): values[-1].lower()
        for name, values in (read_config(facts.cgroup or "") | config).items()
        if name.lower() in ("constraindevices", "constraincores")
    }
    if facts.cgroup is None and not settings:
        notes.append("cgroup.conf is not readable here: devices_confined and cores_confined are left open")
        return None, None
    notes.append(_CONFINED)
    return settings.get("constraindevices", "no") == "yes", settings.get("constraincores", "no") == "yes"


def _groups(
    nodes: Iterable[SlurmNode], pattern: NodeGroup, resolve: Resolve, inert: Collection[str], notes: list[str]
) -> Iterable[NodeGroup]:
    from ClusterShell.NodeSet import NodeSet  # slow to import

    alike: defaultdict[SlurmNode, list[str]] = defaultdict(list)
    for node in nodes:
        alike[replace(node, name="")].append(node.name)
    for like, names in alike.items():
        hosts = str(NodeSet.fromlist(names))
        yield _with_cards(
            replace(pattern, hosts=hosts, cores=like.cores, threads_per_core=like.threads_per_core),
            like,
            resolve,
            inert,
            notes,
        )


def _with_cards(
    group: NodeGroup, node: SlurmNode, resolve: Resolve, inert: Collection[str], notes: list[str]
) -> NodeGroup:
    """The group with its cards, as far as the gres of its nodes tells them."""
    if node.gres is None:
        notes.append(f"{group.hosts}: the gres is not readable: add gpus and sku")
        return group
    cards = [g for g in node.gres if g.name == "gpu"]
    names = {g.name for g in node.gres} - {"gpu"} - set(inert)
    if names - _SHARES:
        listed = ", ".join(sorted(names - _SHARES))
        notes.append(
            f"{group.hosts}: what gres {listed} computes is not known: add gpus and sku, all accelerators counted"
        )
        return group
    if any(g.is_slice for g in cards):
        notes.append(f"{group.hosts}: Slurm lists MIG slices, not cards: add gpus, sku and mig")
        return group
    if not cards and names:
        notes.append(f"{group.hosts}: shares of cards but no cards are listed: add gpus and sku")
        return group
    if not cards:
        notes.append(
            f"{group.hosts}: gpus = 0 because Slurm schedules none there: check that the boxes hold none"
        )
        return replace(group, gpus=0)
    kinds = {g.type for g in cards}
    sku = resolve(next(iter(kinds)) or "") if len(kinds) == 1 else None
    if sku is None:
        listed = ", ".join(sorted(k or "(untyped)" for k in kinds))
        notes.append(
            f"{group.hosts}: which card {listed} is can't be told: add sku, else the largest that fits counts"
        )
    return replace(group, gpus=sum(g.count for g in cards), sku=sku)
