"""Who a run belongs to: a person is a uid, whatever the name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.analysis.exact import Ints

NOBODY = "(none)"
"""Key of the runs whose record names no account or no user."""


def people(runs: pd.DataFrame) -> tuple[Ints, list[str]]:
    """Who each run belongs to: a code a person, and the label of each code.

    A person is a uid, whatever the name; without one a name, or the uid that this name has in other rows of its
    cluster, else of all clusters. A name of several uids tells none of them, so that a run with only that is nobody's.
    """
    names = runs["user"].astype("category")
    uid = runs["uid"].fillna(-1).to_numpy(dtype=np.int64, copy=True)
    told = runs["uid"].notna().to_numpy(dtype=bool, copy=True)
    name: Ints = names.cat.codes.to_numpy().astype(np.int64)
    if not told.all():
        cluster = runs["cluster"].astype("category").cat.codes.to_numpy().astype(np.int64)
        _look_up(uid, told, name, cluster)
        name[~told & np.isin(name, name[told])] = -1
    codes, firsts = first_of(np.where(told, uid, -2 - name))
    labels = [NOBODY if name[i] < 0 else str(names.cat.categories[name[i]]) for i in firsts]
    return codes, [
        f"{label} ({uid[i]})" if told[i] else label or NOBODY for label, i in zip(labels, firsts, strict=True)
    ]


def _look_up(uid: Ints, told: npt.NDArray[np.bool_], name: Ints, cluster: Ints) -> None:
    """Fill in the uids of names that have only one."""
    known = pd.DataFrame({"c": cluster, "n": name, "u": uid})
    given = known[told].drop_duplicates()
    for by in (["c", "n"], ["n"]):
        single = given.groupby(by)["u"].agg(["min", "max"])
        alike = single[single["min"] == single["max"]]["min"]
        looked_up = known.loc[~told, by].join(alike, on=by)["min"].to_numpy(dtype=np.float64)
        found = ~np.isnan(looked_up) & (name[~told] >= 0)
        at = np.flatnonzero(~told)[found]
        uid[at], told[at] = looked_up[found].astype(np.int64), True


def first_of(values: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Dense codes of values in their order, and where each of them stands first."""
    seen, uniques = pd.factorize(values)
    order = np.argsort(uniques, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    codes = rank[seen].astype(np.int64)
    firsts = np.empty(len(uniques), dtype=np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, firsts
