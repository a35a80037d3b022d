"""What may leave the house of a feed's bounds: coarse figures, no names of accounts, nothing of small cells.

* Every figure is told as the smallest power of ten above it.
* Accounts are A1, A2, ... by their bounds; a SKU goes by the name that the public registry has for it.
* A cell of fewer than K charges, or of a SKU of fewer than K accounts, is left out.
* So that it is not what is missing to a total, the next larger cell is left out with it, and so on until at least two
  cells of together at least K charges (and accounts) are; and a total is told only where the cells that are told give
  the same power of ten (and the same verdict) by themselves, so that it reads as if the others were empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_trace.analysis.feed import AccountLine
from slurm_trace.analysis.question import Question
from slurm_trace.analysis.verdicts import VERDICTS, group_verdict

By = Literal["account", "sku"]

UNLISTED = "(not in the registry)"
"""Every SKU whose name is the provider's or the customer's own."""

DEFAULT_MIN_CELL = 5


@dataclass(frozen=True, slots=True)
class Disclosed:
    """One cell or the total, as powers of ten; None: there is no bound, or (in the total) it is not told.

    Attributes:
        key: Label of the account, or name of the SKU.
        accounts_below: More than the accounts in it; None for a cell that is one account.
    """

    key: str
    accounts_below: int | None
    charges_below: int | None
    hours_below: int | None
    bound_flop_below: int | None
    verdict: str | None


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Cells that may be told, the total as far as it may be, and whether any cell was left out."""

    total: Disclosed
    cells: tuple[Disclosed, ...]
    suppressed: bool


@dataclass(frozen=True, slots=True)
class _Cell:
    key: str
    accounts: frozenset[tuple[str, str]]
    charges: int
    hours: int
    flop: int | None

    def size(self, by: By) -> int:
        return min(self.charges, len(self.accounts)) if by == "sku" else self.charges


def disclose(accounts: Sequence[AccountLine], question: Question, by: By, min_cell: int) -> Disclosure:
    """Coarsen the bounds of accounts.

    Args:
        accounts: Their exact bounds.
        question: What was asked.
        by: One cell an account, or one a SKU over all accounts.
        min_cell: K, at least 2.
    """
    cells = _by_account(accounts) if by == "account" else _by_sku(accounts)
    told, kept_back = _suppress(cells, by, min_cell)
    told.sort(key=lambda c: (VERDICTS.index(_verdict(c.flop, question)), -(c.flop or 0), -c.charges, c.key))
    labels = [f"A{n}" for n in range(1, len(told) + 1)] if by == "account" else [c.key for c in told]
    total = Disclosed("all", None, None, None, None, None)
    if told:
        total = _common(_coarse("all", cells, question), _coarse("all", told, question))
    return Disclosure(
        total=total,
        cells=tuple(
            _coarse(label, [c], question, lone=by == "account") for label, c in zip(labels, told, strict=True)
        ),
        suppressed=bool(kept_back),
    )


def _by_account(accounts: Sequence[AccountLine]) -> list[_Cell]:
    return [
        _Cell(
            key=f"{a.provider}\0{a.account}",
            accounts=frozenset({(a.provider or "", a.account or "")}),
            charges=a.bound.charges,
            hours=a.bound.hours,
            flop=a.bound.bound_flop,
        )
        for a in accounts
    ]


def _by_sku(accounts: Sequence[AccountLine]) -> list[_Cell]:
    found: dict[str, list[tuple[AccountLine, int, int, int | None]]] = defaultdict(list)
    for a in accounts:
        for line in a.skus:
            public = line.taken_as is not None and line.how in ("listed", "family", "no_compute")
            name = line.taken_as.sku if public and line.taken_as is not None else UNLISTED
            found[name].append((a, line.bound.charges, line.bound.hours, line.bound.bound_flop))
    return [
        _Cell(
            key=name,
            accounts=frozenset((a.provider or "", a.account or "") for a, *_ in parts),
            charges=sum(charges for _, charges, _, _ in parts),
            hours=sum(hours for _, _, hours, _ in parts),
            flop=_sum([flop for *_, flop in parts]),
        )
        for name, parts in found.items()
    ]


def _suppress(cells: Sequence[_Cell], by: By, min_cell: int) -> tuple[list[_Cell], list[_Cell]]:
    """The cells that are told, and those that are not."""
    waiting = sorted(cells, key=lambda c: (c.size(by), c.charges, c.key))
    back: list[_Cell] = []
    while waiting and (waiting[0].size(by) < min_cell or (back and not _hidden(back, by, min_cell))):
        back.append(waiting.pop(0))
    return waiting, back


def _hidden(back: Sequence[_Cell], by: By, min_cell: int) -> bool:
    """Whether cells that are left out hide each other."""
    charges = sum(c.charges for c in back)
    people = len(frozenset().union(*(c.accounts for c in back)))
    # Each of them is smaller than K, or the last of several: together at least K they are at least two.
    return charges >= min_cell and (by == "account" or people >= min_cell)


def _coarse(key: str, cells: Sequence[_Cell], question: Question, *, lone: bool = False) -> Disclosed:
    flop = _sum([c.flop for c in cells])
    people = len(frozenset().union(*(c.accounts for c in cells)))
    return Disclosed(
        key=key,
        accounts_below=None if lone else power_above(people),
        charges_below=power_above(sum(c.charges for c in cells)),
        hours_below=power_above(sum(c.hours for c in cells)),
        bound_flop_below=None if flop is None else power_above(flop),
        verdict=_verdict(flop, question),
    )


def _common(one: Disclosed, other: Disclosed) -> Disclosed:
    """What both say."""
    names = ("accounts_below", "charges_below", "hours_below", "bound_flop_below", "verdict")
    same = {n: getattr(one, n) if getattr(one, n) == getattr(other, n) else None for n in names}
    return Disclosed(one.key, **same)


def _verdict(flop: int | None, question: Question) -> str:
    return group_verdict(flop, question, open_reasons=int(flop is None))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None


def power_above(value: int) -> int:
    """The smallest power of ten that is larger."""
    return int(10 ** len(str(value))) if value else 1
