"""Connected components over arrays: who belongs together, when links come as pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Links = tuple[Ints, Ints]


def components(size: int, links: list[Links]) -> Ints:
    """The smallest member of each one's component.

    Every root that is linked to a smaller one is hung below the smallest such; what is left are local minima, at most
    half of those that still have links, so a million members take a few rounds.

    Args:
        size: Number of members, counted from 0.
        links: Pairs of members that belong together, as two arrays of equal length.
    """
    root = np.arange(size, dtype=np.int64)
    left, right = (np.concatenate([pair[n] for pair in links] or [root[:0]]) for n in (0, 1))
    while True:
        low, high = np.minimum(root[left], root[right]), np.maximum(root[left], root[right])
        apart = low != high
        if not apart.any():
            return root
        left, right = low[apart], high[apart]
        np.minimum.at(root, right, left)
        while True:
            above = root[root]
            if np.array_equal(above, root):
                break
            root = above


def linked(codes: Ints) -> Links:
    """Links that hold the members of each code together; a code below 0 is none."""
    order = np.argsort(codes, kind="stable")
    same = (codes[order][1:] == codes[order][:-1]) & (codes[order][1:] >= 0)
    return order[:-1][same], order[1:][same]


def dense(*parts: npt.NDArray[np.integer[Any]]) -> Ints:
    """A code from 0 on, equal where all parts are equal."""
    key = np.zeros(len(parts[0]), dtype=np.int64)
    for part in parts:
        codes, values = pd.factorize(part)
        key = pd.factorize(key * max(len(values), 1) + codes)[0].astype(np.int64)
    return key
