"""Reads `scontrol show node`: what Slurm is told that each node holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

# Values that hold no blank and stand before any free text of the record.
_PAIR = re.compile(r"(?:^|\s)(NodeName|CoresPerSocket|Gres|Sockets|ThreadsPerCore)=(\S*)")
_FREE_TEXT = re.compile(r"^\s+(?:Reason|Comment|Extra|OS|ActiveFeatures|AvailableFeatures)=", re.MULTILINE)
_GRES = re.compile(r"([\w.\-]+)(?::([\w.\-]+))??(?::(\d+)([KMG]?))?(?:\(.*\))?")
_MIG = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_COUNT_UNIT = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class NodeGres:
    """One entry of a node's Gres: `gpu:h100:8`."""

    name: str
    type: str | None
    count: int

    @property
    def is_slice(self) -> bool:
        """A slice of a card, of which the number of cards cannot be told."""
        return self.type is not None and _MIG.search(self.type) is not None


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm is configured; None = not printed, or not readable."""

    name: str
    gres: tuple[NodeGres, ...] | None
    cores: int | None
    threads_per_core: int | None


def read_nodes(text: str) -> list[SlurmNode]:
    """Nodes from the output of `scontrol show node`."""
    return [_node(record) for record in _records(text)]


def read_gres(text: str) -> tuple[NodeGres, ...]:
    """The entries of a node's Gres, `gpu:h100:8(S:0-1),shard:32`.

    Raises:
        ValueError: An entry cannot be read.
    """
    if text in ("", "(null)"):
        return ()
    return tuple(_gres(part) for part in re.split(r",(?![^(]*\))", text))


def _gres(part: str) -> NodeGres:
    found = _GRES.fullmatch(part)
    if found is None:
        raise ValueError(f"unreadable gres {part!r}")
    name, kind, count, unit = found.groups()
    return NodeGres(name, kind, 1 if count is None else int(count) * _COUNT_UNIT[unit])


def _records(text: str) -> Iterator[str]:
    starts = [m.start() for m in re.finditer(r"^NodeName=", text, re.MULTILINE)]
    yield from (text[begin:end] for begin, end in pairwise([*starts, len(text)]))


def _node(record: str) -> SlurmNode:
    values: dict[str, str] = {}
    for line in record.splitlines():
        if not _FREE_TEXT.match(line):
            for name, value in _PAIR.findall(line):
                values.setdefault(name, value)
    sockets, per_socket = values.get("Sockets", ""), values.get("CoresPerSocket", "")
    threads = values.get("ThreadsPerCore", "")
    try:
        gres = read_gres(values.get("Gres", ""))
    except ValueError:
        gres = None
    return SlurmNode(
        values["NodeName"],
        gres,
        int(sockets) * int(per_socket) if sockets.isdecimal() and per_socket.isdecimal() else None,
        int(threads) if threads.isdecimal() else None,
    )
