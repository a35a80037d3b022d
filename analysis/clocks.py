"""Clocks that samplers read of cards, and what a ceiling comes to at them.

The highest clock read on a run's own GPUs counts for whatever its record names, and the highest clock read of a model
counts for every card of that model in its cluster, at any time and whether it was sampled or not: what one card of a
site was set to, another may have been. A model that the registry does not know may be any card of the cluster.
A clock only ever raises a ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from slurm_trace.analysis.rates import Rates, Resolution

RAISED, DOUBTFUL, UNRATED = "clock_raised", "clock_doubtful", "clock_unrated"
"""Flags: a ceiling counts at a clock above the registry's; a clock that no GPU runs at; no clock to hold it against."""


@dataclass(frozen=True, slots=True)
class ClockRead:
    """The highest clock that was read of a model of card in a cluster: allowed by its driver, or seen.

    Attributes:
        card: What its driver calls it; None: it gave no name.
        node: Where it was read.
        uuid: Of which GPU or MIG instance.
    """

    cluster: str
    card: str | None
    clock_mhz: int
    node: str
    uuid: str

    @property
    def text(self) -> str:
        """What was read, and of what."""
        card = "a card without a name" if self.card is None else repr(self.card)
        return f"{self.clock_mhz} MHz was read of {card} ({self.uuid} on {self.node})"


@dataclass(frozen=True, slots=True)
class Note:
    """What is to be said of a clock: one of the flags, and the figures."""

    flag: str
    text: str


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that one card can do.

    Attributes:
        device: The device of the registry with the largest ceiling.
        flop_s: Its operations a second.
        clock_mhz: The clock that it counts at, where that is above the registry's.
        beyond_model: That clock was read of no card of its model: the cards are others than they are taken for.
        notes: What is to be said of the clocks that were read.
    """

    device: str
    flop_s: int
    clock_mhz: int | None = None
    beyond_model: bool = False
    notes: tuple[Note, ...] = ()


class Clocks:
    """Works out ceilings at the clocks that were read. Answers are cached.

    Args:
        rates: The registry of device rates.
        basis: What counts as an operation.
        reads: The highest clock of each model and cluster.
    """

    def __init__(self, rates: Rates, basis: str, reads: Iterable[ClockRead] = ()) -> None:
        self._rates, self._basis = rates, basis
        self._reads: dict[str, list[ClockRead]] = {}
        for read in reads:
            self._reads.setdefault(read.cluster, []).append(read)
        self._found: dict[tuple[tuple[str, ...], str | None, str, int], Ceiling] = {}

    def ceiling(self, fit: Resolution, cluster: str, own_mhz: int = 0) -> Ceiling:
        """The ceiling of what a label may stand for.

        Args:
            fit: What it may stand for.
            cluster: Where.
            own_mhz: The highest clock read on the GPUs in question themselves; 0 where there is none.
        """
        key = (fit.device_ids, fit.mig_profile, cluster, own_mhz)
        if key not in self._found:
            self._found[key] = self._ceiling(fit, self._reads.get(cluster, ()), own_mhz)
        return self._found[key]

    def lowest_mhz(self) -> int:
        """A clock up to which no ceiling is ever raised."""
        rated = (self._rates.rated_clock_mhz(device_id) for device_id in self._rates.devices)
        return math.floor(min((mhz for mhz in rated if mhz is not None), default=Fraction(0)))

    def highest_mhz(self, card: str | None, cluster: str | None = None) -> int:
        """The highest clock read of a model (in a cluster; None: in any), as it counts; 0 where none was."""
        found = (
            self.counted_mhz(read.clock_mhz)
            for name, reads in self._reads.items()
            if cluster is None or name == cluster
            for read in reads
            if read.card == card
        )
        return max(found, default=0)

    def counted_mhz(self, clock_mhz: int) -> int:
        """A clock as it counts: no more than any GPU can run at."""
        limit = self._rates.highest_clock_mhz
        return clock_mhz if limit is None else min(clock_mhz, limit)

    def _ceiling(self, fit: Resolution, reads: Sequence[ClockRead], own_mhz: int) -> Ceiling:
        told = list(self._concerning(fit, reads))
        if own_mhz:
            told.append((own_mhz, f"{own_mhz} MHz was read of its own GPUs", fit.device_ids))
        stock = Ceiling(fit.ceiling_id, fit.ceiling_flop_s(self._basis))
        found, why, notes = stock, "", list[Note]()
        for place, (clock_mhz, text, devices) in enumerate(told):
            counted = self.counted_mhz(clock_mhz)
            flop_s, device = max(
                (self._rates.slice_ops_s(i, fit.mig_profile, self._basis, counted), i) for i in devices
            )
            if flop_s > found.flop_s:
                is_own = bool(own_mhz) and place == len(told) - 1
                found, why = Ceiling(device, flop_s, counted, beyond_model=is_own), text
            if counted < clock_mhz:
                notes.append(Note(DOUBTFUL, f"{text}: no GPU runs so fast, and it counts as {counted} MHz"))
        if found is not stock:
            rated = float(self._rates.rated_clock_mhz(found.device) or 0)
            text = f"{why}: its GPUs count at {found.clock_mhz} MHz, the rate registry has {rated:g} MHz"
            notes.insert(0, Note(RAISED, text))
        notes += self._unrated(fit, reads)
        return replace(found, notes=tuple(dict.fromkeys(notes)))

    def _concerning(
        self, fit: Resolution, reads: Sequence[ClockRead]
    ) -> Iterator[tuple[int, str, Sequence[str]]]:
        """Clocks that speak of what a label may stand for, what was read, and of which devices."""
        for read in reads:
            known = self._rates.cards_called(read.card or "")
            devices = tuple(i for i in fit.device_ids if i in known) if known else fit.device_ids
            if devices:
                text = read.text if known else f"{read.text}, which the rate registry does not know"
                yield read.clock_mhz, text, devices

    def _unrated(self, fit: Resolution, reads: Sequence[ClockRead]) -> Iterator[Note]:
        for _, told, devices in self._concerning(fit, reads):
            open_ids = [i for i in devices if self._rates.rated_clock_mhz(i) is None]
            if open_ids:
                device = max(open_ids, key=lambda i: self._rates.ceiling(i, self._basis))
                yield Note(
                    UNRATED,
                    f"{told}: the rate registry has no clock of {device} to hold it against; add max_clock_mhz in a "
                    "rates overlay",
                )
