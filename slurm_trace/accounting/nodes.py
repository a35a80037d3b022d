"""Node lists: `n[1-4,7],gpu-3`, counted quickly or expanded by ClusterShell behind a white list."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

#: Words in NodeList that are no node (sacct(1) prints `None assigned` for a job without an allocation).
NO_NODES: frozenset[str] = frozenset({"", "none assigned", "none", "(null)", "unknown", "n/a"})

#: Largest cluster that a list is expanded for; Slurm's own limit is 65,533 nodes.
MAX_NODES = 70_000

_NAME = r"[A-Za-z0-9_.\-]*"
_RANGE = r"\d{1,10}(?:-\d{1,10})?"
_HOST = rf"{_NAME}(?:\[{_RANGE}(?:,{_RANGE})*\]{_NAME})*"
_LIST = re.compile(rf"{_HOST}(?:,{_HOST})*", re.ASCII)
_COMMA = re.compile(r",(?![^\[]*\])")
_BRACKET = re.compile(r"\[([^\]]*)\]")


@lru_cache(maxsize=16_384)
def count_nodes(text: str) -> int:
    """How many nodes a list names.

    Raises:
        ValueError: The list cannot be read, or names more than `MAX_NODES`.
    """
    if text.strip().lower() in NO_NODES:
        return 0
    if _LIST.fullmatch(text) is None or not all(_COMMA.split(text)):
        raise ValueError(f"{text[:60]!r} is no list of nodes")
    total = 0
    for host in _COMMA.split(text):
        total += prod(sum(map(_range_size, ranges.split(","))) for ranges in _BRACKET.findall(host))
        if total > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES} nodes in {text[:60]!r}")
    return total


def _range_size(text: str) -> int:
    low, dash, high = text.partition("-")
    if not dash:
        return 1
    if int(high) < int(low):
        raise ValueError(f"the range {text} runs backwards")
    return int(high) - int(low) + 1


@lru_cache(maxsize=4096)
def expand(text: str | None, limit: int = MAX_NODES) -> tuple[str, ...]:
    """The names of the nodes in a list, in its order.

    Args:
        text: A node list as Slurm prints it; None, empty and `None assigned` name no node.
        limit: Most nodes to expand.

    Raises:
        ValueError: The list cannot be read, or names more nodes than `limit`.
    """
    if text is None or text.strip().lower() in NO_NODES:
        return ()
    if count_nodes(text) > limit:
        raise ValueError(f"more than {limit} nodes in {text[:60]!r}")
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # slow to import, seldom needed by a reader

    try:
        return tuple(NodeSet(text))
    except NodeSetException as error:
        raise ValueError(f"{text[:60]!r} is no list of nodes: {error}") from error
