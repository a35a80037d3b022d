"""The most a set of nodes can have done, whoever used them: inventory x time. Covers use outside Slurm too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from slurm_trace.analysis.envelope import Bools, Envelope
from slurm_trace.analysis.rates import AFTER_REGISTRY, Rates

from slurm_trace.accounting.nodes import expand
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
    """

    def __init__(self, rates: Rates, site: SiteProfile, basis: str, ended_at: int) -> None:
        self._rates, self._site, self._basis, self._ended_at = rates, site, basis, ended_at
        self._group_flop_s = cache(self._work_out)

    def _work_out(self, group: NodeGroup) -> int | None:
        if group.gpus is None or group.cores is None:
            return None
        cards = 0
        if group.gpus:
            fit = self._rates.resolve(None, gres_name="gpu", sku=group.sku, ended_at=self._ended_at)
            if fit.how == AFTER_REGISTRY:
                return None
            cards = group.gpus * fit.ceiling_flop_s(self._basis)
        return (
            cards + group.cores * self._rates.cpu_core_ops_s(group.cpu_model, self._basis, self._ended_at)[1]
        )

    def node_flop_s(self, cluster: str, node: str, since: int, until: int) -> int | None:
        """The most one node can do a second at any moment of [since, until); None if the inventory leaves it open."""
        found = [
            None if group is None else self._group_flop_s(group)
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
                flop_s = self._group_flop_s(group)
                if flop_s is None:
                    return None
                total += max(0, last - first) * flop_s
        return total if inventory else None

    def lists_all(self, envelope: Envelope, members: Bools) -> dict[str, bool]:
        """By cluster: the inventory knows every node that these runs used."""
        chosen = envelope.runs.loc[members, ["cluster", "node_list"]].drop_duplicates()
        answer: dict[str, bool] = {}
        for cluster, node_list in chosen.itertuples(index=False):
            known = self._site.cluster(str(cluster)).inventory()
            nodes = _names(node_list)
            answer[str(cluster)] = (
                answer.get(str(cluster), True) and bool(nodes) and all(n in known for n in nodes)
            )
        return answer


def _names(node_list: object) -> tuple[str, ...]:
    try:
        return expand(node_list) if isinstance(node_list, str) and node_list else ()
    except ValueError:
        return ()


def capped_flop(
    envelope: Envelope, group: npt.NDArray[np.int64], groups: int, members: Bools, inventory: Inventory
) -> list[int | None]:
    """For each group the most that the nodes of its members can have done while any of the members held them.

    Runs that share a node, or overlap in the records, can't have done more together than the node can. None where a
    member's nodes or its release are not known.
    """
    caps: list[int | None] = [0] * groups
    rows = np.flatnonzero(members)
    lists = envelope.runs["node_list"].astype("category")
    names = [_names(text) for text in lists.cat.categories]
    size = np.array([len(n) for n in names] or [0])
    codes = lists.cat.codes.to_numpy()[rows]
    has_start = envelope.runs["start"].notna().to_numpy()[rows]
    listed = (codes >= 0) & (size[codes] > 0) & has_start & envelope.release.known[rows]
    for g in np.unique(group[rows[~listed]]):
        caps[g] = None
    rows, codes = rows[listed], codes[listed]
    if size[codes].sum() > MOST_SHARES:
        return [None] * groups
    clusters = envelope.runs["cluster"].astype("category")
    start = envelope.runs["start"].fillna(0).to_numpy(dtype=np.int64)
    nodes, node_of = pd.factorize(
        pd.MultiIndex.from_arrays(
            [
                np.repeat(clusters.cat.codes.to_numpy()[rows], size[codes]),
                np.concatenate([np.array(names[c], dtype=object) for c in codes])
                if len(codes)
                else np.array([], dtype=object),
            ]
        )
    )
    spread = np.repeat(rows, size[codes])
    frame = pd.DataFrame(
        {
            "group": group[spread],
            "node": nodes,
            "from": start[spread],
            "to": start[spread] + envelope.release.held_s[spread],
        }
    ).sort_values(["group", "node", "from"], kind="stable")
    by = [frame["group"], frame["node"]]
    reached = frame["to"].groupby(by).cummax().groupby(by).shift(fill_value=0)
    frame["new_s"] = (frame["to"] - np.maximum(frame["from"], reached)).clip(lower=0)
    seconds = frame.groupby(["group", "node"]).agg(
        s=("new_s", "sum"), since=("from", "min"), until=("to", "max")
    )
    for (g, node), s, since, until in seconds.itertuples():
        cluster_code, name = node_of[node]
        flop_s = inventory.node_flop_s(
            str(clusters.cat.categories[cluster_code]), name, int(since), int(until)
        )
        known = caps[g]
        caps[g] = None if known is None or flop_s is None else known + int(s) * flop_s
    return caps


def total_capacity(
    inventory: Inventory, clusters: Sequence[str], whole: Callable[[str], bool], since: int, until: int
) -> int | None:
    """Capacity of several clusters together; None if the inventory of one of them is not whole."""
    found = [inventory.cluster_flop(name, since, until) if whole(name) else None for name in clusters]
    return None if None in found or not found else sum(f for f in found if f is not None)
