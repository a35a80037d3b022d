"""The site profile: what a site declares about its clusters, read from TOML.

Everything works without one. A fact that is not given is `None`, which analysis resolves upward, never 0.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime, tzinfo
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import tomli_w

from slurm_trace.accounting.nodes import expand
from slurm_trace.errors import InputProblem, unreadable

SCHEMA_FILE = "site-profile.schema.json"

MAX_BYTES = 16 << 20
"""Of a profile: a line for each of the 65,533 nodes that Slurm can have fits in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes during [from_, to).

    Attributes:
        hosts: Slurm hostlist.
        gpus: Cards in each node (cards in the box, not what Slurm schedules), in the unit that `sku` counts: an MI250X
            is two of `amd-mi250x-gcd` or one of `amd-mi250x-module`.
        sku: Id in the rate registry, or NVML's name of the card.
        mig: MIG layout of each card, such as "7x1g.10gb".
        cores: Physical cores of each node.
        devices_confined: A job reaches no GPU but its own.
        cores_confined: A job reaches no core but its own.
        basis: "declared" (somebody says so) or "proven" (read on the nodes themselves).
        from_: UTC epoch seconds, inclusive; None = since ever.
        to: UTC epoch seconds, exclusive; None = still so.
    """

    hosts: str
    gpus: int | None = None
    sku: str | None = None
    mig: str | None = None
    cpu_model: str | None = None
    cores: int | None = None
    threads_per_core: int | None = None
    devices_confined: bool | None = None
    cores_confined: bool | None = None
    basis: Literal["proven", "declared"] = "declared"
    from_: int | None = None
    to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TresPeriod:
    """The TRES a cluster recorded during [from_, to), UTC epoch seconds."""

    names: tuple[str, ...]
    from_: int | None = None
    to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProfile:
    """What is known of one cluster; the default knows nothing.

    Attributes:
        gres_types: GresTypes of slurm.conf: without `shard` and `mps` in it no share of a card is handed out.

    Raises:
        ValueError: A hostlist cannot be read, or a node is in two groups at once.
    """

    zone: str | None = None
    kill_wait_s: int | None = None
    unkillable_step_timeout_s: int | None = None
    max_gpus_per_node: int | None = None
    gres_types: tuple[str, ...] | None = None
    registered_tres: tuple[TresPeriod, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    _groups: Mapping[str, tuple[NodeGroup, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_groups", _index(self.nodes))

    def inventory(self) -> Mapping[str, tuple[NodeGroup, ...]]:
        """Every host that was ever listed, with its groups in order of time."""
        return self._groups

    def group_of(self, node: str, at: int) -> NodeGroup | None:
        """The group a node belonged to at one moment; None if the profile does not say."""
        return next((g for g in self._groups.get(node, ()) if _holds(g, at)), None)

    def groups_during(self, node: str, since: int, until: int) -> tuple[NodeGroup | None, ...]:
        """The groups a node belonged to in [since, until), in order; a None for each stretch left open.

        A run that saw two groups needs the larger one; one that saw a None is not covered by the inventory.
        """
        found: list[NodeGroup | None] = []
        reached = since
        for group in self._groups.get(node, ()):
            start, end = _bounds(group)
            if end <= since or start >= max(until, since + 1):
                continue
            if start > reached:
                found.append(None)
            found.append(group)
            reached = int(min(end, until))
        if reached < until or not found:
            found.append(None)
        return tuple(found)

    def registered_tres_at(self, at: int) -> frozenset[str] | None:
        """Names of the TRES recorded at one moment; None if the profile does not say."""
        return next((frozenset(p.names) for p in self.registered_tres if _holds(p, at)), None)


@dataclass(frozen=True, slots=True)
class SiteProfile:
    """All clusters of a site. `digest` is the SHA-256 of its content, whatever the layout of the file."""

    clusters: Mapping[str, ClusterProfile] = field(default_factory=dict)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        content = json.dumps(plain_clusters(self), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "digest", hashlib.sha256(content.encode()).hexdigest())

    def cluster(self, name: str | None) -> ClusterProfile:
        """The profile of a cluster; an empty one if the site says nothing about it."""
        return self.clusters.get(name, _EMPTY) if name is not None else _EMPTY


def load_profile(path: str | Path | None) -> SiteProfile:
    """Read and check a profile; without a path the empty one.

    Raises:
        InputProblem: The file says something that is not allowed.
        TraceError: It cannot be read (see `unreadable`).
    """
    if path is None:
        return SiteProfile()
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        remedy = "name a file with --config or SLURM_TRACE_CONFIG, or write one with `slurm-trace site probe`"
        raise unreadable(path, error, remedy) from error
    if len(data) > MAX_BYTES:
        raise InputProblem(
            f"site profile {path}: longer than {MAX_BYTES >> 20} MiB, so no profile; name another with --config"
        )
    try:
        document = tomllib.loads(data.decode())
    # Besides TOMLDecodeError: no UTF-8, nested too deep, or a number with thousands of digits.
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0]
        raise InputProblem(f"site profile {path}: no valid TOML: {reason}; correct that line") from error
    _validate(document, path)
    clusters = {
        name: _cluster(table, f"{path}: clusters.{name}")
        for name, table in document.get("clusters", {}).items()
    }
    return SiteProfile(clusters)


def dump_profile(profile: SiteProfile, header: tuple[str, ...] = ()) -> str:
    """The profile as TOML, below a comment of the given lines. Loading it again gives the same digest."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header)
    return comment + tomli_w.dumps({"clusters": _document(profile.clusters)})


def plain_clusters(profile: SiteProfile) -> dict[str, Any]:
    """The clusters as a JSON document, laid out as in the file; moments are ISO texts in UTC."""
    document: dict[str, Any] = json.loads(
        json.dumps(_document(profile.clusters), default=lambda t: t.isoformat())
    )
    return document


def _index(groups: tuple[NodeGroup, ...]) -> dict[str, tuple[NodeGroup, ...]]:
    by_host: defaultdict[str, list[NodeGroup]] = defaultdict(list)
    for group in groups:
        for host in expand(group.hosts):
            by_host[host].append(group)
    for host, members in by_host.items():
        members.sort(key=lambda g: _bounds(g)[0])
        for earlier, later in pairwise(members):
            if _bounds(later)[0] < _bounds(earlier)[1]:
                raise ValueError(
                    f"node {host} is in {earlier.hosts!r} and {later.hosts!r} at the same time; "
                    "give the earlier group a `to` or take the node out of one"
                )
    return {host: tuple(members) for host, members in by_host.items()}


def _bounds(period: NodeGroup | TresPeriod) -> tuple[float, float]:
    return (
        float("-inf") if period.from_ is None else period.from_,
        float("inf") if period.to is None else period.to,
    )


def _holds(period: NodeGroup | TresPeriod, at: int) -> bool:
    start, end = _bounds(period)
    return start <= at < end


def _validate(document: dict[str, Any], path: str | Path) -> None:
    import jsonschema  # slow to import, needed only when there is a profile

    plain = json.loads(json.dumps(document, default=lambda value: value.isoformat()))
    problem = jsonschema.exceptions.best_match(_validator().iter_errors(plain))
    if problem is None:
        return
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in problem.absolute_path).lstrip(".")
    known = sorted(problem.schema.get("properties", ()))
    remedy = (
        f"known keys: {', '.join(known)}"
        if known
        else str(problem.schema.get("description", "see the schema"))
    )
    raise InputProblem(f"site profile {path}: {where or 'top level'}: {problem.message}; {remedy}")


@cache
def _validator() -> Any:
    import jsonschema

    schema = json.loads(files("slurm_trace.schema.json").joinpath(SCHEMA_FILE).read_text(encoding="utf-8"))
    checker = jsonschema.FormatChecker(formats=())
    checker.checks("date-or-date-time", raises=ValueError)(_is_date)
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def _is_date(value: object) -> bool:
    return not isinstance(value, str) or bool(datetime.fromisoformat(value))


def _cluster(table: dict[str, Any], where: str) -> ClusterProfile:
    zone_name = table.get("zone")
    try:
        zone: tzinfo = ZoneInfo(zone_name) if zone_name else UTC
    except (KeyError, OSError, ValueError) as error:
        raise InputProblem(
            f"site profile {where}.zone: no time zone {zone_name!r}; write an IANA name"
        ) from error
    nodes = tuple(
        NodeGroup(**_dated(t, f"{where}.nodes[{i}]", zone)) for i, t in enumerate(table.get("nodes", ()))
    )
    periods = tuple(
        TresPeriod(**{**_dated(t, f"{where}.registered_tres[{i}]", zone), "names": tuple(t["names"])})
        for i, t in enumerate(table.get("registered_tres", ()))
    )
    scalars = {k: v for k, v in table.items() if k not in ("nodes", "registered_tres")}
    if "gres_types" in scalars:
        scalars["gres_types"] = tuple(scalars["gres_types"])
    try:
        return ClusterProfile(**scalars, nodes=nodes, registered_tres=periods)
    except ValueError as error:
        raise InputProblem(f"site profile {where}.nodes: {error}") from error


def _dated(table: dict[str, Any], where: str, zone: tzinfo) -> dict[str, Any]:
    values = {k: v for k, v in table.items() if k not in ("from", "to")}
    try:
        since, until = (_epoch(table[k], zone) if k in table else None for k in ("from", "to"))
    except (ValueError, OverflowError) as error:
        raise InputProblem(f"site profile {where}: {error}; write dates of the years 2000 to 2100") from error
    if since is not None and until is not None and since >= until:
        raise InputProblem(
            f"site profile {where}: `from` is not before `to`; `to` is the first moment after the period"
        )
    return values | {"from_": since, "to": until}


def _epoch(value: date | datetime | str, zone: tzinfo) -> int:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=zone)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return int(moment.astimezone(UTC).timestamp())


def _document(clusters: Mapping[str, ClusterProfile]) -> dict[str, Any]:
    return {name: dict(_plain_cluster(cluster)) for name, cluster in clusters.items()}


def _plain_cluster(cluster: ClusterProfile) -> Iterator[tuple[str, Any]]:
    for item in fields(cluster):
        if not item.init:
            continue
        value = getattr(cluster, item.name)
        if item.name in ("registered_tres", "nodes"):
            if value:
                yield item.name, [_plain_period(period) for period in value]
        elif value is not None:
            yield item.name, list(value) if isinstance(value, tuple) else value


def _plain_period(period: NodeGroup | TresPeriod) -> dict[str, Any]:
    table = {}
    for key, value in asdict(period).items():
        if value is None:
            continue
        dated = key in ("from_", "to")
        table[key.rstrip("_")] = datetime.fromtimestamp(value, tz=UTC) if dated else value
    return table


_EMPTY = ClusterProfile()
