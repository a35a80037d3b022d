"""Which devices could a run use? Its own where it is held to them, else all of its nodes.

A claim depends on what a run was given, not on how long it held it: a million runs share a few thousand claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from slurm_trace.accounting.nodes import expand
from slurm_trace.analysis.clocks import Ceiling, Clocks, Note
from slurm_trace.analysis.counting import Counted, Named, count_accelerators
from slurm_trace.analysis.labels import split_mig
from slurm_trace.analysis.rates import AFTER_REGISTRY, Rates
from slurm_trace.analysis.tracking import Status, Tracking, weakest
from slurm_trace.site.profile import NodeGroup, SiteProfile


@dataclass(frozen=True, slots=True)
class Shape:
    """All of a run that decides its claim.

    Attributes:
        since: With `until` the half-open time for which it held its devices.
        gpus_seen: GPUs that its leases are known to have held; 0 where nothing is known of that.
        clock_mhz: The highest clock read on them; 0 where none was, or it can't matter.
    """

    cluster: str
    alloc_tres: str | None
    alloc_gres: str | None
    nodes: int | None
    cpus: int | None
    node_list: str | None
    since: int
    until: int
    gpus_seen: int = 0
    clock_mhz: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """`count` equal devices, each with at most `ceiling_flop_s` operations a second.

    Attributes:
        own: GPUs that the record itself names, and the run is held to.
        clocks: What is to be said of the clocks that were read of such cards.
        beyond_model: They ran faster than any card of the model that they are taken for.
    """

    kind: Literal["gpu", "cpu"]
    device: str
    label: str | None
    count: int
    ceiling_flop_s: int
    source: str
    node: str | None = None
    own: bool = False
    clocks: tuple[Note, ...] = ()
    beyond_model: bool = False

    @property
    def flop_s(self) -> int:
        """Operations a second of all of them."""
        return self.count * self.ceiling_flop_s


@dataclass(frozen=True, slots=True)
class Gpus:
    """Accelerators as the record names them, and the card they are taken for."""

    type: str | None
    count: int
    sku: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a run could use at once.

    Attributes:
        gpu_count: Accelerators of the run itself; None if its record does not tell.
        gpus: The same by type.
        devices: Devices under the declared and the default assumptions; None if they can't be bounded.
        strict: Devices when nothing is granted that is not proven; None if they can't be bounded.
        statuses: gres_recorded, labels_true and confined, each with what stands behind it.
        reasons: Why there are more devices than the record names, or why there is no bound.
        beyond_inventory: The record or the leases tell of accelerators that the inventory of the nodes does not have,
            or of faster ones, so that it caps nothing.
    """

    gpu_count: int | None
    gpus: tuple[Gpus, ...]
    devices: tuple[Device, ...] | None
    strict: tuple[Device, ...] | None
    statuses: dict[str, Status] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    beyond_inventory: bool = False

    @property
    def clock_flags(self) -> list[str]:
        """What is odd about the clocks of its cards."""
        return list(dict.fromkeys(note.flag for d in self.devices or () for note in d.clocks))

    def flop_s(self, kind: Literal["gpu", "cpu"]) -> int:
        """Operations a second of one kind of device under the default assumptions."""
        return sum(d.flop_s for d in self.devices or () if d.kind == kind)

    @property
    def total_flop_s(self) -> int | None:
        """Operations a second of all devices; None if they can't be bounded."""
        return None if self.devices is None else sum(d.flop_s for d in self.devices)

    @property
    def strict_flop_s(self) -> int | None:
        """Operations a second of all devices when nothing is granted that is not proven."""
        return None if self.strict is None else sum(d.flop_s for d in self.strict)


class _Open(Exception):
    """The devices can't be bounded, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of a run and every group it belonged to meanwhile; a None in there is time the inventory leaves open."""

    name: str | None
    groups: tuple[NodeGroup | None, ...]

    @property
    def known(self) -> tuple[NodeGroup, ...]:
        return tuple(g for g in self.groups if g is not None)

    def status(self) -> Status | None:
        """What stands behind the inventory of this node; None if it is not there."""
        if None in self.groups or not self.groups:
            return None
        return "proven" if all(g.basis == "proven" for g in self.known) else "declared"

    def confined(self, what: Literal["devices_confined", "cores_confined"]) -> Status | Literal["no"]:
        answers = [getattr(g, what) for g in self.known]
        if False in answers:
            return "no"
        status = self.status()
        return status if status is not None and all(answers) else "assumed"


class Claims:
    """Works out claims from the rate registry, the site profile and what accounting recorded.

    Args:
        rates: The registry of device rates.
        site: The site profile.
        tracking: What accounting recorded, and when.
        basis: What counts as an operation.
        clocks: The clocks that were read of cards; None: no more than the registry has.
    """

    def __init__(
        self, rates: Rates, site: SiteProfile, tracking: Tracking, basis: str, clocks: Clocks | None = None
    ) -> None:
        self._rates = rates
        self._clocks = Clocks(rates, basis) if clocks is None else clocks
        self._site = site
        self._tracking = tracking
        self._basis = basis

    def boundaries(self) -> list[int]:
        """Moments between which equal allocations have equal claims."""
        moments = {self._rates.complete_through, *self._tracking.boundaries()}
        for profile in self._site.clusters.values():
            for group in profile.nodes:
                moments.update(t for t in (group.from_, group.to) if t is not None)
        return sorted(moments)

    def needs_nodes(self, cluster: str) -> bool:
        """The profile lists nodes of this cluster, so the claim depends on which nodes a run had."""
        return bool(self._site.cluster(cluster).nodes)

    def claim(self, shape: Shape) -> Claim:
        """The claim of one shape."""
        nodes = self._nodes(shape)
        counted = count_accelerators(
            shape.alloc_tres, shape.alloc_gres, len(nodes) or None, self._rates.inert_gres
        )
        recorded = self._gres_recorded(counted, shape, nodes)
        reasons: list[str] = []
        statuses: dict[str, Status] = {
            "gres_recorded": recorded or "proven",
            "labels_true": self._labels(counted, nodes),
            "confined": self._confined(nodes),
        }
        zero = not counted.tells_gpus and recorded is not None
        own_count = counted.devices if (counted.tells_gpus or zero) and not counted.shares else None
        beyond = self._beyond_inventory(shape, nodes, counted)
        if beyond:
            reasons.append(
                "the inventory of its nodes does not have all accelerators that were recorded or seen"
            )
        try:
            gpus = self._gpus(shape, nodes, counted, zero, reasons)
            devices: tuple[Device, ...] | None = (*gpus, *self._cpus(shape, nodes, counted, reasons))
        except _Open as why:
            devices = None
            reasons.append(str(why))
        reasons += [note.text for device in devices or () for note in device.clocks]
        try:
            strict: tuple[Device, ...] | None = (
                *self._strict_gpus(shape, nodes, counted, zero and recorded == "proven"),
                *self._strict_cpus(shape, nodes, counted),
            )
        except _Open:
            strict = None
        return Claim(
            gpu_count=own_count,
            gpus=tuple(self._gpu_lines(shape, nodes, counted)),
            devices=devices,
            strict=strict,
            statuses=statuses,
            reasons=tuple(dict.fromkeys(reasons)),
            beyond_inventory=beyond or any(device.beyond_model for device in devices or ()),
        )

    def _gpu_lines(self, shape: Shape, nodes: Sequence[_Node], counted: Counted) -> Iterator[Gpus]:
        for named in counted.named:
            try:
                sku = self._card(shape, nodes, named.type, named.gres).device
            except _Open:
                sku = "unknown"
            yield Gpus(named.type, named.count, sku)

    # What is known of the nodes

    def _nodes(self, shape: Shape) -> tuple[_Node, ...]:
        try:
            names = expand(shape.node_list) if shape.node_list else ()
        except ValueError:
            names = ()
        profile = self._site.cluster(shape.cluster)
        found = [
            _Node(name, profile.groups_during(name, shape.since, shape.until) if profile.nodes else ())
            for name in names
        ]
        found += [_Node(None, ())] * max(0, (shape.nodes or 0) - len(found))
        return tuple(found)

    def _confined(self, nodes: Sequence[_Node]) -> Status:
        answers = [n.confined(what) for n in nodes for what in ("devices_confined", "cores_confined")]
        return weakest([a for a in answers if a != "no"]) if answers else "assumed"

    def _labels(self, counted: Counted, nodes: Sequence[_Node]) -> Status:
        if not counted.named:
            return "proven"
        statuses = [n.status() if all(g.sku for g in n.known) else None for n in nodes]
        if not statuses or None in statuses:
            return "assumed"
        return weakest([s for s in statuses if s is not None])

    def _beyond_inventory(self, shape: Shape, nodes: Sequence[_Node], counted: Counted) -> bool:
        groups = [g for n in nodes for g in n.known]
        if not groups or any(g.gpus is None for g in groups):
            return False  # it caps nothing anyway
        for named in counted.named:
            cards = _cards(nodes, partial(self._can_be, named))
            if not cards or (_whole(named) and named.count > cards):
                return True
        whole = sum(named.count for named in counted.named if _whole(named))
        return max(whole, shape.gpus_seen) > _cards(nodes, lambda _: True)

    def _can_be(self, named: Named, group: NodeGroup) -> bool:
        """The cards of these nodes can be what the record names."""
        if named.gres != "gpu":
            return False
        if named.type is None or group.sku is None:
            return True
        label, sku = self._rates.resolve(named.type), self._rates.resolve(None, sku=group.sku)
        return not set(label.device_ids).isdisjoint(sku.device_ids)

    def _gres_recorded(self, counted: Counted, shape: Shape, nodes: Sequence[_Node]) -> Status | None:
        """What stands behind a zero; None if nothing does, so that the count is unknown."""
        if counted.tells_gpus:
            return "proven"
        if counted.kind == "unknown":
            return None
        statuses = [n.status() for n in nodes]
        if nodes and None not in statuses and all(g.gpus == 0 for n in nodes for g in n.known):
            return weakest([s for s in statuses if s is not None])
        cards = self._tracking.cards_recorded(shape.cluster, shape.since, shape.until)
        if counted.kind == "zero":
            cards = True  # Slurm writes gres/gpu=0 only where it tracks gres/gpu
        if cards:
            return self._tracking.rest_recorded(shape.cluster, shape.since, shape.until)
        if cards is False:
            return None
        return "assumed" if self._tracking.gpus_seen_before(shape.cluster, shape.until) else None

    # Accelerators

    def _gpus(
        self, shape: Shape, nodes: Sequence[_Node], counted: Counted, zero: bool, reasons: list[str]
    ) -> list[Device]:
        loose = any(n.confined("devices_confined") == "no" for n in nodes)
        beside = [self._named(shape, nodes, named) for named in counted.named if named.gres != "gpu"]
        if zero and not loose and not shape.gpus_seen:
            return beside
        own = self._own(shape, nodes, counted)
        seen = self._seen(shape, nodes, own)
        if seen:
            reasons.append("its leases held more GPUs than its record names: all of them count")
            own = _larger(seen, own)
        if zero and not loose:
            return [*own, *beside]
        if loose or not counted.tells_gpus:
            reasons.append(
                "jobs are not held to their own GPUs on these nodes: every GPU of them counts"
                if loose
                else "the record does not tell how many GPUs there were: every GPU its nodes could hold counts"
            )
            own = _larger(self._whole_nodes(shape, nodes), own)
        elif not seen:
            own = _held_to(own, counted)
        return [*own, *beside]

    def _own(self, shape: Shape, nodes: Sequence[_Node], counted: Counted) -> list[Device]:
        devices = [self._named(shape, nodes, named) for named in counted.named if named.gres == "gpu"]
        if counted.shares:
            cards = sum(d.count for d in self._whole_nodes(shape, nodes))
            card = self._card(shape, nodes, None, "gpu")
            # A share of no card contradicts the inventory.
            count = min(counted.shares, cards) or counted.shares
            devices.append(_gpu(card, None, count, "shares of cards, at most a whole card each"))
        return devices

    def _seen(self, shape: Shape, nodes: Sequence[_Node], own: Sequence[Device]) -> list[Device]:
        """The GPUs of the leases, where they are more than those of the record."""
        if shape.gpus_seen <= sum(d.count for d in own):
            return []
        card = self._card(shape, nodes, None, "gpu")
        return [_gpu(card, None, shape.gpus_seen, "seen in its leases")]

    def _named(self, shape: Shape, nodes: Sequence[_Node], named: Named) -> Device:
        card = self._card(shape, nodes, named.type, named.gres)
        what = f"gres/{named.gres}" + (f":{named.type}" if named.type else "")
        return _gpu(card, named.type, named.count, f"{what}={named.count} of the allocation")

    def _card(self, shape: Shape, nodes: Sequence[_Node], label: str | None, gres: str) -> Ceiling:
        """The largest card that fits a label and what the inventory says of the nodes."""
        skus = {g.sku for n in nodes for g in n.known} if gres == "gpu" else set()
        if not nodes or any(n.status() is None for n in nodes) or not skus:
            skus.add(None)
        fits = [
            self._rates.resolve(label, gres_name=gres, sku=sku, ended_at=shape.until)
            for sku in sorted(skus, key=str)
        ]
        if any(fit.how == AFTER_REGISTRY for fit in fits):
            what = (
                "no type of card is known" if label is None else f"type {label!r} is not in the rate registry"
            )
            raise _Open(
                f"{what}, and the run may have ended after the date up to which the rate registry is complete; "
                "add the card to a rates overlay, its SKU to the site profile, or Start and End to the export"
            )
        found = [self._clocks.ceiling(fit, shape.cluster, shape.clock_mhz) for fit in fits]
        return max(found, key=lambda card: (card.flop_s, card.device))

    def _whole_nodes(self, shape: Shape, nodes: Sequence[_Node], proven_only: bool = False) -> list[Device]:
        if not nodes:
            raise _Open("neither a number of nodes nor a node list: import NNodes, NodeList and AllocTRES")
        limit = self._site.cluster(shape.cluster).max_gpus_per_node
        if limit is None or proven_only:
            limit = self._rates.max_gpus_per_node
        devices: list[Device] = []
        unlisted = 0
        for node in nodes:
            status = node.status()
            if (
                status is None
                or (proven_only and status != "proven")
                or any(g.gpus is None for g in node.known)
            ):
                unlisted += 1
                continue
            found = [
                (group.gpus, self._card(shape, [_Node(node.name, (group,))], None, "gpu"))
                for group in node.known
                if group.gpus
            ]
            if found:
                count, card = max(found, key=lambda f: f[0] * f[1].flop_s)
                devices.append(_gpu(card, None, count, "inventory", node.name))
        if unlisted:
            source = f"{unlisted} nodes x {limit} GPUs, the most a node is taken to hold"
            devices.append(_gpu(self._card(shape, [], None, "gpu"), None, unlisted * limit, source))
        return devices

    def _strict_gpus(
        self, shape: Shape, nodes: Sequence[_Node], counted: Counted, zero: bool
    ) -> list[Device]:
        held = bool(nodes) and all(n.confined("devices_confined") == "proven" for n in nodes)
        beside = [self._any_card(shape, n.gres, n.count) for n in counted.named if n.gres != "gpu"]
        if zero and held and not shape.gpus_seen:
            return beside
        if self._labels(counted, nodes) == "proven":
            own = self._own(shape, nodes, counted)
        else:
            gpus = sum(n.count for n in counted.named if n.gres == "gpu")
            count = gpus + counted.shares
            own = [self._any_card(shape, "gpu", count)] if count else []
        more = shape.gpus_seen > sum(d.count for d in own)
        if more:
            own = _larger([self._any_card(shape, "gpu", shape.gpus_seen)], own)
        if not held or not counted.tells_gpus:
            own = _larger(self._whole_nodes(shape, nodes, proven_only=True), own)
        elif not more:
            own = _held_to(own, counted)
        return [*own, *beside]

    def _any_card(self, shape: Shape, gres: str, count: int) -> Device:
        card = self._card(shape, [], None, gres)
        return _gpu(card, None, count, "count of the allocation, any card")

    # Processor cores

    def _cpus(
        self, shape: Shape, nodes: Sequence[_Node], counted: Counted, reasons: list[str]
    ) -> list[Device]:
        cpus = max(shape.cpus or 0, counted.cpus or 0)  # nothing runs on no CPU: 0 is no count
        loose = any(n.confined("cores_confined") == "no" for n in nodes)
        if loose or not cpus:
            reasons.append(
                "jobs are not held to their own cores on these nodes: every core of them counts"
                if loose
                else "the record does not tell how many CPUs there were: every core its nodes could hold counts"
            )
            whole = self._whole_cores(shape, nodes)
            return _larger(whole, self._own_cores(shape, nodes, cpus)) if cpus else whole
        return self._own_cores(shape, nodes, cpus)

    def _own_cores(self, shape: Shape, nodes: Sequence[_Node], cpus: int) -> list[Device]:
        cores = [max((g.cores for g in n.known if g.cores is not None), default=None) for n in nodes]
        complete = bool(nodes) and all(
            n.status() and all(g.cores is not None for g in n.known) for n in nodes
        )
        if complete:
            cpus = min(cpus, sum(c for c in cores if c is not None)) or cpus
        models = {g.cpu_model for n in nodes for g in n.known}
        named = bool(nodes) and all(n.status() for n in nodes) and None not in models
        core, ceiling = max(
            (self._core(model, shape) for model in (sorted(map(str, models)) if named else [None])),
            key=lambda found: found[1],
        )
        return [
            Device(
                "cpu", core, None, cpus, ceiling, f"{cpus} CPUs of the allocation, each taken as a whole core"
            )
        ]

    def _core(self, model: str | None, shape: Shape) -> tuple[str, int]:
        return self._rates.cpu_core_ops_s(model, self._basis, shape.until)

    def _whole_cores(self, shape: Shape, nodes: Sequence[_Node], proven_only: bool = False) -> list[Device]:
        if not nodes:
            raise _Open(
                "neither CPUs nor a number of nodes nor a node list: import AllocCPUS, NNodes, NodeList and AllocTRES"
            )
        devices: list[Device] = []
        unlisted = 0
        for node in nodes:
            status = node.status()
            if (
                status is None
                or (proven_only and status != "proven")
                or any(g.cores is None for g in node.known)
            ):
                unlisted += 1
                continue
            found = [(g.cores or 0, *self._core(g.cpu_model, shape)) for g in node.known]
            count, core, ceiling = max(found, key=lambda f: f[0] * f[2])
            devices.append(Device("cpu", core, None, count, ceiling, "inventory", node.name))
        if unlisted:
            limit = self._rates.max_cores_per_node
            core, ceiling = self._core(None, shape)
            source = f"{unlisted} nodes x {limit} cores, the most a node is taken to hold"
            devices.append(Device("cpu", core, None, unlisted * limit, ceiling, source))
        return devices

    def _strict_cpus(self, shape: Shape, nodes: Sequence[_Node], counted: Counted) -> list[Device]:
        held = bool(nodes) and all(n.confined("cores_confined") == "proven" for n in nodes)
        own = self._cpus(shape, nodes, counted, [])
        cores = own if held else _larger(self._whole_cores(shape, nodes, proven_only=True), own)
        if any(core.device == AFTER_REGISTRY for core in (*own, *cores)):
            raise _Open("cores of an unknown model, after the date up to which the registry is complete")
        return cores


def _gpu(card: Ceiling, label: str | None, count: int, source: str, node: str | None = None) -> Device:
    at = "" if card.clock_mhz is None else f", at {card.clock_mhz} MHz"
    found = Device("gpu", card.device, label, count, card.flop_s, f"{source}{at}", node)
    return replace(found, clocks=card.notes, beyond_model=card.beyond_model)


def _held_to(own: list[Device], counted: Counted) -> list[Device]:
    """Marks whole GPUs (or MIG slices) of the record itself; a share of a card is no card of its own."""
    return own if counted.shares else [replace(device, own=True) for device in own]


def _larger(one: list[Device], other: list[Device]) -> list[Device]:
    return max(one, other, key=lambda devices: sum(d.flop_s for d in devices))


def _whole(named: Named) -> bool:
    """It counts cards, not slices of them."""
    return named.type is None or split_mig(named.type)[1] is None


def _cards(nodes: Sequence[_Node], chosen: Callable[[NodeGroup], bool]) -> int:
    """The most cards of the chosen groups that these nodes held at once."""
    return sum(max((g.gpus or 0 for g in n.known if chosen(g)), default=0) for n in nodes)
