"""How many accelerators does an allocation name? From what was allocated, never from what was requested."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from slurm_trace.accounting.tres import parse_gres, parse_tres, unreadable_gres

SHARES = frozenset({"shard", "mps"})
"""Generic resources that stand for a share of some card, not for cards."""

_OTHER = ("cpu=", "node=")
"""What can be unreadable in AllocTRES without leaving the accelerators open."""


@dataclass(frozen=True, slots=True)
class Named:
    """`count` accelerators of one type; `type` is Slurm's free text, None if it named none."""

    gres: str
    type: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What an allocation says of accelerators.

    Attributes:
        kind: "given": it names some. "zero": it says 0 outright. "absent": it names resources, but no accelerator.
            "unknown": it names nothing at all, or something that can't be read; there may be more than `named`.
        named: The accelerators, typed ones first; the untyped rest has type None.
        shares: Shares of cards (shard, mps).
        cpus: CPUs allocated; None if not given.
    """

    kind: Literal["given", "zero", "absent", "unknown"]
    named: tuple[Named, ...] = ()
    shares: int = 0
    cpus: int | None = None

    @property
    def devices(self) -> int:
        """Whole accelerators named."""
        return sum(n.count for n in self.named)

    @property
    def tells_gpus(self) -> bool:
        """The number of GPUs, or of shares of them, is in there; another accelerator says nothing of GPUs."""
        return self.kind == "given" and (bool(self.shares) or any(n.gres == "gpu" for n in self.named))


def count_accelerators(
    alloc_tres: str | None, alloc_gres: str | None, nodes: int | None, inert: Collection[str]
) -> Counted:
    """Read an allocation.

    Args:
        alloc_tres: AllocTRES of the run, totals over its nodes; None if there was no such column.
        alloc_gres: AllocGRES, per node (Slurm before 21.08); used only where AllocTRES names no GPU.
        nodes: Nodes of the run, by which AllocGRES is multiplied.
        inert: Names of generic resources that compute nothing.

    Typed and untyped counts of one resource overlap (`gres/gpu=4,gres/gpu:a100=2`): the larger of the untyped count and
    the sum of the typed ones is right, what is over has no known type.
    """
    tres = parse_tres(alloc_tres or "")
    # A `+` at the end: the column was cut, and what followed is lost.
    lost = (alloc_tres or "").endswith("+") or not all(p.startswith(_OTHER) for p in tres.unreadable)
    gres = [g for g in tres.gres if g.name not in inert]
    names = {g.name for g in gres}
    if alloc_gres and "gpu" not in names:
        lost = lost or not nodes or bool(unreadable_gres(alloc_gres))
        per_node = parse_gres(alloc_gres, nodes) if nodes else ()
        gres += [g for g in per_node if g.name not in inert and g.name not in names]
    if not gres and not lost:
        # An empty AllocTRES proves nothing: a run that held something always has at least its nodes in there.
        return Counted("absent" if alloc_tres else "unknown", cpus=tres.cpus)
    named: list[Named] = []
    for name in dict.fromkeys(g.name for g in gres if g.name not in SHARES):
        typed: dict[str, int] = {}
        for g in gres:
            if g.name == name and g.type is not None:
                typed[g.type] = typed.get(g.type, 0) + g.count
        untyped = max((g.count for g in gres if g.name == name and g.type is None), default=0)
        named += [Named(name, kind, count) for kind, count in typed.items() if count]
        if (rest := untyped - sum(typed.values())) > 0:
            named.append(Named(name, None, rest))
    shares = sum(g.count for g in gres if g.name in SHARES)
    if lost:
        return Counted("unknown", tuple(named), shares, tres.cpus)
    if named or shares:
        return Counted("given", tuple(named), shares, tres.cpus)
    return Counted("zero" if any(g.name == "gpu" for g in gres) else "absent", cpus=tres.cpus)
