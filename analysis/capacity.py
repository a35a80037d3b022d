"""The most a set of nodes can have done, whoever used them: inventory x time. Covers use outside Slurm too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.accounting.nodes import expand
from slurm_trace.analysis.clocks import Clocks
from slurm_trace.analysis.envelope import Bools, Envelope, Ints
from slurm_trace.analysis.rates import AFTER_REGISTRY, Rates
from slurm_trace.site.profile import NodeGroup, SiteProfile

MOST_SHARES = 20_000_000
"""Runs x nodes beyond which the cap per node is left out (it only ever lowers a group's bound)."""


class Inventory:
    """Operations a second of every node of the site profile.

    Args:
        rates: The registry of device rates.
        site: The site profile.
        basis: What counts as an operation.
        ended_at: Moment up to which use is asked about; a card that the registry can't know then has no ceiling.
        clocks: The clocks that were read of cards; None: no more than the registry has.
    """

    def __init__(
        self, rates: Rates, site: SiteProfile, basis: str, ended_at: int, clocks: Clocks | None = None
    ) -> None:
        self._rates, self._site, self._basis, self._ended_at = rates, site, basis, ended_at
        self._clocks = Clocks(rates, basis) if clocks is None else clocks
        self._group_flop_s = cache(self._work_out)

    def _work_out(self, cluster: str, group: NodeGroup) -> int | None:
        if group.gpus is None or group.cores is None:
            return None
        cards = 0
        if group.gpus:
            fit = self._rates.resolve(None, gres_name="gpu", sku=group.sku, ended_at=self._ended_at)
            if fit.how == AFTER_REGISTRY:
                return None
            cards = group.gpus * self._clocks.ceiling(fit, cluster).flop_s
        return (
            cards + group.cores * self._rates.cpu_core_ops_s(group.cpu_model, self._basis, self._ended_at)[1]
        )

    def knows(self, cluster: str) -> bool:
        """The profile lists nodes of this cluster."""
        return bool(self._site.cluster(cluster).nodes)

    def node_flop_s(self, cluster: str, node: str, since: int, until: int) -> int | None:
        """The most one node can do a second at any moment of [since, until); None if the inventory leaves it open."""
        found = [
            None if group is None else self._group_flop_s(cluster, group)
            for group in self._site.cluster(cluster).groups_during(node, since, until)
        ]
        return None if None in found else max((f for f in found if f is not None), default=None)

    def cluster_flop(self, cluster: str, since: int, until: int) -> int | None:
        """All that a cluster's nodes can do in [since, until); None without a whole inventory of it."""
        total = 0
        inventory = self._site.cluster(cluster).inventory()
        for groups in inventory.values():
            for group in groups:
                first = since if group.from_ is None else max(since, group.from_)
                last = until if group.to is None else min(until, group.to)
                flop_s = self._group_flop_s(cluster, group)
                if flop_s is None:
                    return None
                total += max(0, last - first) * flop_s
        return total if inventory else None

    def lists_all(self, envelope: Envelope, members: Bools, until: int) -> dict[str, bool]:
        """By cluster: the inventory knows every node that these runs used when they did, and no record goes beyond it.

        Args:
            envelope: The bounds.
            members: The runs.
            until: Up to when a run counts whose release is not known.
        """
        runs, release = envelope.runs.loc[members], envelope.release
        start = runs["start"].fillna(0).to_numpy(dtype=np.int64)
        frame = pd.DataFrame(
            {
                "cluster": runs["cluster"].astype("category").array,
                "node_list": runs["node_list"].astype("category").array,
                "nodes": runs["node_count"].fillna(0).to_numpy(dtype=np.int64),
                "dated": runs["start"].notna().to_numpy(dtype=bool),
                "beyond": _beyond(envelope)[members],
                "since": start,
                "until": np.where(release.known[members], start + release.held_s[members], until),
            }
        )
        by = frame.groupby(["cluster", "node_list"], observed=True, dropna=False)
        table = by.agg({"nodes": "max", "dated": "all", "beyond": "any", "since": "min", "until": "max"})
        answer: dict[str, bool] = {}
        for (cluster, node_list), nodes, dated, beyond, first, last in table.itertuples():
            names = _names(node_list)
            listed = dated and not beyond and bool(names) and len(names) >= nodes
            answer[cluster] = (
                answer.get(cluster, True)
                and listed
                and all(
                    None not in self._site.cluster(cluster).groups_during(name, int(first), int(last))
                    for name in names
                )
            )
        return answer


def _beyond(envelope: Envelope) -> Bools:
    """Runs whose record tells of more than the inventory of their nodes has."""
    found: Bools = np.array([c.beyond_inventory for c in envelope.claims] or [False])[envelope.code]
    return found


def _names(node_list: object) -> tuple[str, ...]:
    try:
        return expand(node_list) if isinstance(node_list, str) and node_list else ()
    except ValueError:
        return ()


def capped_flop(
    envelope: Envelope, rows: Ints, group: Ints, groups: int, inventory: Inventory
) -> list[int | None]:
    """For each group the most that the nodes of its members can have done while any of the members held them.

    Runs that share a node, or overlap in the records, can't have done more together than the node can. None where a
    member's nodes are not all named, its release is not known, or the inventory has not all of the nodes and of the
    accelerators in its record.

    Args:
        envelope: The bounds.
        rows: Positions of the members.
        group: Code of the group of each member, below `groups`.
        groups: Number of groups.
        inventory: Operations a second of the nodes.
    """
    runs = envelope.runs.iloc[rows]
    clusters = runs["cluster"].astype("category")
    if not any(inventory.knows(str(c)) for c in clusters.cat.categories):
        return [None] * groups
    lists = runs["node_list"].astype("category")
    nodes = _NodeIds([_names(text) for text in lists.cat.categories])
    code = lists.cat.codes.to_numpy(dtype=np.int64)
    listed = (code >= 0) & envelope.release.known[rows] & runs["start"].notna().to_numpy(dtype=bool)
    listed &= ~_beyond(envelope)[rows]
    claimed = np.maximum(runs["node_count"].fillna(0).to_numpy(dtype=np.int64), 1)
    listed[listed] = nodes.size[code[listed]] >= claimed[listed]
    if nodes.size[code[listed]].sum() > MOST_SHARES:
        return [None] * groups
    caps: list[int | None] = [0] * groups
    for g in np.unique(group[~listed]):
        caps[g] = None
    code, rows, group = code[listed], rows[listed], group[listed]
    of_cluster = clusters.cat.codes.to_numpy(dtype=np.int64)[listed]
    start = runs["start"].fillna(0).to_numpy(dtype=np.int64)[listed]
    node, member = nodes.spread(code)
    place = of_cluster[member] * len(nodes.names) + node
    frame = pd.DataFrame(
        {
            "group": group[member],
            "place": place,
            "from": start[member],
            "to": start[member] + envelope.release.held_s[rows][member],
        }
    ).sort_values(["group", "place", "from"], kind="stable")
    by = [frame["group"], frame["place"]]
    reached = frame["to"].groupby(by).cummax().groupby(by).shift(fill_value=0)
    frame["s"] = (frame["to"] - np.maximum(frame["from"], reached)).clip(lower=0)
    names = [str(name) for name in clusters.cat.categories]
    busy = frame.groupby(["group", "place"]).agg(s=("s", "sum"), since=("from", "min"), until=("to", "max"))
    for (g, at), s, since, until in busy.itertuples():
        cluster, name = divmod(int(at), len(nodes.names))
        flop_s = inventory.node_flop_s(names[cluster], nodes.names[name], int(since), int(until))
        known = caps[g]
        caps[g] = None if known is None or flop_s is None else known + int(s) * flop_s
    return caps


class _NodeIds:
    """Numbers for the nodes of some node lists, and the lists as one array of numbers."""

    def __init__(self, lists: list[tuple[str, ...]]) -> None:
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(name, len(numbers)) for names in lists for name in names]
        self.names = list(numbers)
        self.size = np.array([len(names) for names in lists], dtype=np.int64)
        self._flat = np.array(flat, dtype=np.int64)
        self._first = np.concatenate([[0], np.cumsum(self.size)])[:-1].astype(np.int64)

    def spread(self, code: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
        """Every node of every run (by the code of its list), and which run it belongs to."""
        size = self.size[code]
        member = np.repeat(np.arange(len(code)), size)
        within = np.arange(len(member)) - np.repeat(np.cumsum(size) - size, size)
        return self._flat[np.repeat(self._first[code], size) + within], member


def total_capacity(
    inventory: Inventory, clusters: Sequence[str], whole: Callable[[str], bool], since: int, until: int
) -> int | None:
    """Capacity of several clusters together; None if the inventory of one of them is not whole."""
    found = [inventory.cluster_flop(name, since, until) if whole(name) else None for name in clusters]
    return None if None in found or not found else sum(f for f in found if f is not None)
