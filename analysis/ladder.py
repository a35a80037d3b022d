"""The rungs below `allocation`: what the counters of a run's GPUs take away from its bound, never more than is proven.

A stretch of a GPU for which a rung is proven counts with the operations of that rung in place of ceiling x time. All
figures are whole: a card's operations a thousand cycles are rounded up once, and cycles are whole thousands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.analysis.ceiling import clock_hz, overclocked
from slurm_trace.analysis.claims import Claim, Device
from slurm_trace.analysis.clocks import Clocks
from slurm_trace.analysis.exact import DIGIT_BITS, Exact
from slurm_trace.analysis.measured import Kind, Stretch
from slurm_trace.analysis.rates import DeviceRate, Rates

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Rung = Literal["allocation", "cycles_elapsed", "cycles_active", "pipe_cycles", "busy"]
RUNGS: tuple[Rung, ...] = ("allocation", "cycles_elapsed", "cycles_active", "pipe_cycles", "busy")
"""From what accounting alone gives down to what needs the most trust."""

BUSY = RUNGS.index("busy")
PIPES = ("elapsed", "active", "tensor", "dmma", "vector", "vector_fp")
"""Cycles that the telemetry tells, in columns named `..._kcycles`."""

_KILO = 1000


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What is proven of the runs.

    Attributes:
        table: One row a run and kind: run_id, kind (a code), seconds, busy_ms and thousands of cycles by pipe.
        kinds: The kinds by code.
    """

    table: pd.DataFrame
    kinds: Sequence[Kind]


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU or MIG instance by what its driver calls it.

    Attributes:
        device: Id in the registry, the largest that the name may mean.
        flop_s: Its ceiling.
        per_kcycle: Operations in a thousand cycles of all its SMs: of everything, the fastest matrix product, DMMA,
            and the vector pipes.
    """

    device: str
    flop_s: Fraction
    whole: int
    tensor: int
    dmma: int
    vector: int


@dataclass(frozen=True, slots=True)
class Price:
    """What a kind of stretch costs a run.

    Attributes:
        rung: The rung that is used.
        per: Operations for one unit of each column of the table.
    """

    rung: Rung
    per: Mapping[str, int]

    def flop(self, stretch: Stretch) -> int:
        """Operations of one stretch."""
        if self.rung == "busy":
            return self.per["busy_ms"] * stretch.busy_ms
        return sum(
            rate * int(getattr(stretch.cycles, name.removesuffix("_kcycles")))
            for name, rate in self.per.items()
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a kind of stretch lowers nothing; `larger`: the driver's card is a larger one than the record's."""

    reason: str
    larger: bool = False


class Cards:
    """Turns kinds of stretches into operations.

    Args:
        rates: The registry of device rates.
        basis: What counts as an operation.
        trust: The lowest rung to go down to.
        clocks: The clocks that were read of cards; None: no more than the registry has.
    """

    def __init__(self, rates: Rates, basis: str, trust: Rung, clocks: Clocks | None = None) -> None:
        self._rates, self._basis, self._trust = rates, basis, RUNGS.index(trust)
        self.clocks = Clocks(rates, basis) if clocks is None else clocks
        self.card = cache(self._card)

    def price(self, kind: Kind, flop_s: int) -> Price | Refused:
        """How a kind of stretch is counted where the record claims cards of `flop_s` each."""
        if kind.rung is None:
            return Refused(kind.reason or "not proven")
        card = self.card(kind.name, kind.mig_profile, kind.sm_count)
        if card is None:
            return Refused(f"the rate registry has no SMs and clock of what its driver calls {kind.name!r}")
        seen = math.ceil(card.flop_s * self._overclocked(card, kind.clock_max_mhz or 0))
        if seen > flop_s:
            return Refused(
                f"its driver calls it {kind.name!r} of at most {kind.clock_max_mhz} MHz, {seen} op/s; "
                f"its record stands for {flop_s} op/s",
                larger=True,
            )
        proven = next(i for i, rung in enumerate(RUNGS) if rung == kind.rung)
        if proven == BUSY:
            if self._trust < BUSY:
                return Refused("the trust does not go down to busy, and no cycles were counted")
            # The clock of the stretch itself was read now and then only.
            highest = max(kind.clock_max_mhz or 0, self.clocks.highest_mhz(kind.name))
            busy = math.ceil(card.flop_s * self._overclocked(card, highest))
            return Price("busy", {"busy_ms": -(-busy // _KILO)})
        rung = RUNGS[min(proven, self._trust, BUSY - 1)]
        return Price(rung, {f"{pipe}_kcycles": rate for pipe, rate in self._per(rung, card).items()})

    def whole_per_kcycle(self, name: str | None, profile: str | None, sm_count: int | None) -> int:
        """Operations in a thousand cycles of a card; of one that the registry does not know, those of the largest."""
        card = self.card(name, profile, sm_count)
        if card is not None:
            return card.whole
        every = (self._of(device, None, None) for device in self._rates.devices.values())
        return max(one.whole for one in every if one is not None)

    def _per(self, rung: Rung, card: Card) -> dict[str, int]:
        if rung == "cycles_elapsed":
            return {"elapsed": card.whole}
        if rung == "cycles_active":
            return {"active": card.whole}
        vector = "vector" if self._basis == "max_any_op" else "vector_fp"
        return {"tensor": card.tensor, "dmma": card.dmma, vector: card.vector}

    def _overclocked(self, card: Card, clock_mhz: int) -> Fraction:
        """By how much a clock passes the registry's."""
        device = self._rates.device(card.device)
        return overclocked(device, self._rates.clock_allowance, self.clocks.counted_mhz(clock_mhz))

    def _card(self, name: str | None, profile: str | None, sm_count: int | None) -> Card | None:
        if name is None or not self._rates.knows_card(name):
            return None
        fit = self._rates.resolve(profile, sku=name)
        found = [self._of(self._rates.device(i), profile, sm_count) for i in fit.device_ids]
        cards = [card for card in found if card is not None]
        if len(cards) < len(found):
            return None
        top = max(cards, key=lambda card: card.flop_s)
        # A name that several cards have stands for the most of each.
        most = (max(getattr(card, what) for card in cards) for what in ("whole", "tensor", "dmma", "vector"))
        return Card(top.device, top.flop_s, *most)

    def _of(self, device: DeviceRate, profile: str | None, sm_count: int | None) -> Card | None:
        hz = clock_hz(device, self._rates.clock_allowance)
        if device.architecture is None or device.units is None or hz is None:
            return None
        units = device.units
        if profile is not None:
            listed = self._rates.mig_sms(device.id, profile)
            units = min(units, max(sm_count or 0, units if listed is None else listed))
        pipes = device.architecture
        flop_s = self._rates.ceiling(device.id, self._basis) * Fraction(units, device.units)
        if self._basis == "bf16_dense":
            # An estimate: half precision of the matrix pipe, and nothing beside it.
            whole, vector = pipes.matrix.half() * units, Fraction(0)
        else:
            vector = Fraction(pipes.vector(self._basis) * units)
            whole = max(flop_s / hz, pipes.matrix.largest(self._basis) * units + vector)
        tensor = whole - vector
        double = Fraction(pipes.matrix.dense.get("fp64", 0)) * units
        dmma = min(double, tensor) if double else tensor
        return Card(device.id, flop_s, *(math.ceil(_KILO * ops) for ops in (whole, tensor, dmma, vector)))


def measurable(claim: Claim, *, strict: bool = False) -> Device | None:
    """The GPUs of a claim of which leases can speak: all alike, its own, and it is held to them; else None."""
    if strict and claim.statuses.get("confined") != "proven":
        return None
    own = [device for device in (claim.strict if strict else claim.devices) or () if device.own]
    return own[0] if len(own) == 1 else None


@dataclass(frozen=True, slots=True)
class Ladder:
    """What telemetry takes away from the bounds of a table of runs.

    Attributes:
        cards: Turns stretches into operations.
        kinds: Kinds of stretches by code.
        run: Position of the run of each row of the telemetry, in ascending order.
        kind: Its kind.
        seconds: Its GPU seconds.
        rung: Index into RUNGS of the rung that it lowers the bound by; 0: it does not.
        rung_strict: The same for the bound when nothing is granted that is not proven.
        saved: Operations to take away from the bound of each run.
        saved_strict: The same from the bound when nothing is granted that is not proven.
        fits: Runs whose leases are of the very GPUs that their record claims, and contradict nothing.
    """

    cards: Cards
    kinds: Sequence[Kind]
    run: Ints
    kind: Ints
    seconds: Ints
    rung: npt.NDArray[np.int8]
    rung_strict: npt.NDArray[np.int8]
    saved: Exact
    saved_strict: Exact
    fits: Bools

    def lowered(self, *, strict: bool = False) -> Bools:
        """Runs whose bound is lower than at the rung `allocation`."""
        saved = self.saved_strict if strict else self.saved
        found: Bools = np.any(saved.digits != 0, axis=0)
        return found

    def rows(self, i: int) -> range:
        """Rows of the telemetry of run i."""
        first, last = np.searchsorted(self.run, [i, i + 1])
        return range(int(first), int(last))

    def lowest(self, i: int) -> Rung:
        """The lowest rung that the bound of run i makes use of."""
        return RUNGS[max((int(self.rung[row]) for row in self.rows(i)), default=0)]

    def used(self, i: int, *, strict: bool = False) -> set[Kind]:
        """Kinds of its stretches that lower its bound."""
        rung = self.rung_strict if strict else self.rung
        return {self.kinds[int(self.kind[row])] for row in self.rows(i) if rung[row]}

    def refused(self, i: int, flop_s: int | None) -> Iterator[tuple[int, Refused]]:
        """GPU seconds of its stretches that lower nothing, and why."""
        for row in self.rows(i):
            if self.rung[row]:
                continue
            seconds = int(self.seconds[row])
            if flop_s is None or not self.fits[i]:
                yield seconds, Refused(NOT_ITS_OWN)
                continue
            kind = self.kinds[int(self.kind[row])]
            price = self.cards.price(kind, flop_s)
            yield seconds, price if isinstance(price, Refused) else Refused(not_lower(kind))


def not_lower(kind: Kind) -> str:
    """Why a stretch that proves something lowers nothing: it would not, for no lower rung is proven of it."""
    told = None if kind.rung == "busy" else kind.reason
    return NOT_LOWER if told is None else f"{NOT_LOWER}: {told}"


NOT_LOWER = "it would not be lower"
NOT_ITS_OWN = "its leases and its record do not name the same GPUs, or contradict each other"


def ladder(
    telemetry: Telemetry,
    runs: pd.DataFrame,
    held_s: Ints,
    claims: Sequence[Claim],
    code: Ints,
    known: Bools,
    cards: Cards,
) -> Ladder:
    """Work out what may be taken away from each bound.

    Args:
        telemetry: What is proven.
        runs: Columns run_id (ascending), lease_gpus, flags and start.
        held_s: Seconds from start to release.
        claims: The distinct claims.
        code: Claim of each run.
        known: Runs whose release is known.
        cards: Turns stretches into operations.
    """
    ids, table = runs["run_id"].to_numpy(dtype=np.int64), telemetry.table
    of_row = table["run_id"].to_numpy(dtype=np.int64)
    place = np.searchsorted(ids, of_row)
    here = (
        (place < len(ids)) & (ids[np.minimum(place, max(len(ids) - 1, 0))] == of_row)
        if len(ids)
        else of_row < 0
    )
    table = table[here].reset_index(drop=True)
    run, kind = place[here].astype(np.int64), table["kind"].to_numpy(dtype=np.int64)
    seconds = table["seconds"].to_numpy(dtype=np.int64)
    measured_s = np.bincount(run, weights=seconds, minlength=len(runs)).astype(np.int64)
    fits = _fitting(runs, held_s, claims, code, known, measured_s)
    found = [
        _saved(telemetry.kinds, table, kind, [measurable(c, strict=strict) for c in claims], code[run], cards)
        for strict in (False, True)
    ]
    rungs = []
    saved = []
    for amount, rung in found:
        lower = (rung > 0) & fits[run]
        rungs.append(np.where(lower, rung, 0).astype(np.int8))
        saved.append(amount.take(lower).sums(run[lower], len(runs)))
    return Ladder(cards, telemetry.kinds, run, kind, seconds, rungs[0], rungs[1], saved[0], saved[1], fits)


def _fitting(
    runs: pd.DataFrame,
    held_s: Ints,
    claims: Sequence[Claim],
    code: Ints,
    known: Bools,
    measured_s: Ints,
) -> Bools:
    """The leases have as many GPUs as the claim, nothing disagrees, and no GPU was held longer than the run."""
    own = [measurable(claim) for claim in claims]
    count = np.array([device.count if device else -1 for device in own] or [-1], dtype=np.int64)[code]
    flags = runs["flags"].astype("category")
    doubtful = np.array(
        [any(f.startswith("lease_") for f in str(text).split()) for text in flags.cat.categories] or [False]
    )
    seen = runs["lease_gpus"].fillna(0).to_numpy(dtype=np.int64)
    found: Bools = (
        known
        & runs["start"].notna().to_numpy(dtype=bool)
        & ~(doubtful[flags.cat.codes.to_numpy()] & (flags.cat.codes.to_numpy() >= 0))
        & (count == seen)
        & (measured_s <= np.maximum(held_s, 0) * count)
    )
    return found


def _saved(
    kinds: Sequence[Kind],
    table: pd.DataFrame,
    kind: Ints,
    own: Sequence[Device | None],
    code: Ints,
    cards: Cards,
) -> tuple[Exact, npt.NDArray[np.int8]]:
    """Per row of the telemetry the operations that it saves, and its rung; 0 where it saves none."""
    flop_s = [device.ceiling_flop_s if device else 0 for device in own] or [0]
    distinct, claimed = np.unique(
        np.array([flop_s.index(f) for f in flop_s], dtype=np.int64)[code], return_inverse=True
    )
    pairs, pair = np.unique(claimed.reshape(-1) * max(len(kinds), 1) + kind, return_inverse=True)
    pair = pair.reshape(-1).astype(np.int64)
    prices = []
    rates = []
    for number in pairs.tolist():
        of_claim, of_kind = divmod(number, max(len(kinds), 1))
        rates.append(flop_s[int(distinct[of_claim])])
        prices.append(cards.price(kinds[of_kind], rates[-1]))
    held = Exact.products(table["seconds"].to_numpy(dtype=np.int64), rates, pair)
    spent = Exact.of([0] * len(table))
    for column in ("busy_ms", *(f"{pipe}_kcycles" for pipe in PIPES)):
        per = [price.per.get(column, 0) if isinstance(price, Price) else 0 for price in prices]
        if any(per):
            spent = spent + _products(table[column].to_numpy(dtype=np.int64), per, pair)
    rung = np.array(
        [RUNGS.index(p.rung) if isinstance(p, Price) else 0 for p in prices] or [0], dtype=np.int8
    )[pair]
    rung[~spent.below(held)] = 0
    return held + spent.negated(), rung


def _products(amounts: Ints, rates: Sequence[int], code: Ints) -> Exact:
    """Like `Exact.products`, for amounts of up to twice as many bits."""
    low = Exact.products(amounts & ((1 << DIGIT_BITS) - 1), rates, code)
    return low + Exact.products(amounts >> DIGIT_BITS, [rate << DIGIT_BITS for rate in rates], code)
