"""The bound of a cloud account by its billing feed: charged hours x the most an instance of the SKU can do.

Hours are rounded up to whole ones for each charge. Where they are not known, or not positive, the whole charge period
counts, for every instance; a credit takes nothing away. A feed is what the provider says: nothing in it is proven, so
that the strict verdict never clears an account.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.provider_skus import Instance, Meaning, ProviderSkus
from slurm_trace.analysis.tracking import Status
from slurm_trace.analysis.verdicts import VERDICTS, Question, group_verdict

_LOW_BITS = 20
_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Bound:
    """What some charges together can have been, and what may be said of it.

    Attributes:
        charges: Rows of the feed.
        hours: Instance hours that count.
        bound_flop: The most operations; None if some charge has no bound, or one may be missing.
        ratio: bound / T without the margin, rounded up.
        reasons: Why there is no bound.
    """

    charges: int
    hours: int
    bound_gpu_flop: int | None
    bound_cpu_flop: int | None
    bound_flop: int | None
    ratio: float | None
    verdict: str
    verdict_strict: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SkuLine:
    """The charges of one account for one SKU; `taken_as` None: nothing bounds it."""

    sku: str
    how: str
    taken_as: Instance | None
    bound: Bound


@dataclass(frozen=True, slots=True)
class Peculiar:
    """Charges of which more is counted than the feed says.

    Attributes:
        unlisted: Of SKUs that the registry does not list.
        unmetered: Without hours above 0; the whole charge period counts.
        beyond_period: Of more hours than their charge period has.
        credits: Of a negative amount; they take nothing away.
    """

    unlisted: int
    unmetered: int
    beyond_period: int
    credits: int


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One account; both names None: all of them together.

    Attributes:
        peculiar: How many of its charges count for more than the feed says.
        assumptions: What the verdict rests on, with what stands behind it.
        notes: Where more was counted than the feed says, and why.
        skus: Its SKUs, the largest bound first.
    """

    provider: str | None
    account: str | None
    bound: Bound
    peculiar: Peculiar
    assumptions: Mapping[str, Status]
    notes: tuple[str, ...]
    skus: tuple[SkuLine, ...]


@dataclass(frozen=True, slots=True)
class FeedRecords:
    """What is known of the feeds as a whole.

    Attributes:
        complete: Whether they hold every charge.
        rejected: Rows that could not be read, by account; key None: whose they are is not known.
    """

    complete: Completeness
    rejected: Mapping[str | None, int]

    def blockers(self, account: str | None) -> list[str]:
        """Why a charge of an account (None: of any) may be missing."""
        if account is None:
            rejected = sum(self.rejected.values())
        else:
            rejected = self.rejected.get(account, 0) + self.rejected.get(None, 0)
        return [*self.complete.gaps, *([f"{rejected} rows could not be read"] if rejected else [])]


@dataclass(frozen=True, slots=True)
class _Part:
    """Charges of one account, SKU and meaning: how many, their hours, and how many of them are peculiar."""

    provider: str
    account: str
    sku: str
    meaning: Meaning
    charges: int
    hours: int
    unmetered: int
    single: int
    open: int
    beyond: int
    credit: int

    @property
    def computes(self) -> bool:
        """Whether computing may stand behind them."""
        return self.meaning.how != "no_compute"


def bound_accounts(
    charges: pd.DataFrame, skus: ProviderSkus, question: Question, records: FeedRecords
) -> tuple[AccountLine, list[AccountLine]]:
    """Bound every account.

    Args:
        charges: One row a charge (see the store's `load_charges`).
        skus: The registry of SKUs, under the basis of the question.
        question: The threshold, the basis and the margin.
        records: What is known of the feeds as a whole.

    Returns:
        All accounts together, and each of them, the ones that can't be ruled out first.
    """
    parts = list(_parts(charges, skus))
    by_account = _grouped(((part.provider, part.account), part) for part in parts)
    # An account of which nothing could be read has charges all the same.
    seen = {account for _, account in by_account}
    by_account |= {("", a): [] for a in sorted(filter(None, records.rejected)) if a not in seen}
    judge = _Judge(question, records)
    lines = [judge.account(*names, mine) for names, mine in by_account.items()]
    order = {verdict: n for n, verdict in enumerate(VERDICTS)}
    lines.sort(
        key=lambda a: (order[a.bound.verdict], -(a.bound.bound_flop or 0), a.provider or "", a.account or "")
    )
    return judge.account(None, None, parts), lines


def _parts(charges: pd.DataFrame, skus: ProviderSkus) -> Iterator[_Part]:
    period_h = -(-(charges["end"] - charges["start"]).to_numpy(dtype=np.int64) // 3600)
    used_s = charges["used_s"].fillna(0).to_numpy(dtype=np.int64)
    quantity = charges["quantity"].fillna(0).to_numpy(dtype=np.int64)
    flags = charges["flags"].astype(str)
    untold = (quantity == 0) & (charges["resource"] == "").to_numpy(dtype=bool)
    untold |= flags.str.contains("quantity_unreadable", regex=False).to_numpy(dtype=bool)
    # A number of something else than hours may tell of many instances.
    unread = flags.str.contains("unit_unknown|hours_unreadable").to_numpy(dtype=bool)
    untold |= unread & (quantity == 0)
    untold |= flags.str.contains("quantity_disputed", regex=False).to_numpy(dtype=bool)
    # Hours beside such a flag come from another import; what it says alone counts if it is more.
    metered = (used_s > 0) & ~flags.str.contains("unit_unknown|hours_").to_numpy(dtype=bool)
    used_h, whole_h = -(-used_s // 3600), period_h * np.maximum(quantity, 1)
    hours = np.where(metered, used_h, np.maximum(used_h, whole_h))
    labels = ["provider", "account", "sku", "meter", "service_category", "charge_category"]
    frame = charges[labels].fillna("")
    frame["late"] = (charges["end"] > skus.complete_through).to_numpy(dtype=bool)
    frame["disputed"] = flags.str.contains("meter_disputed", regex=False).to_numpy(dtype=bool)
    sums: dict[str, Any] = {
        "charges": 1,
        "high": hours >> _LOW_BITS,
        "low": hours & ((1 << _LOW_BITS) - 1),
        "unmetered": ~metered,
        "single": ~metered & (quantity == 0) & ~untold,
        "open": ~metered & untold,
        "beyond": metered & ~untold & (used_h > whole_h),
        "credit": flags.str.contains("credit", regex=False).to_numpy(dtype=bool),
    }
    frame = frame.assign(**sums).astype(dict.fromkeys(sums, np.int64))
    by = [*labels, "late", "disputed"]
    table = frame.groupby(by, sort=False)[list(sums)].sum().reset_index()
    for key, counts in zip(
        table[by].to_numpy(dtype=object).tolist(),
        table[list(sums)].to_numpy().tolist(),
        strict=True,
    ):
        provider, account, sku, *told, late, disputed = key
        count, high, low, *peculiar = counts
        named = dict(zip(labels[3:], told, strict=True))
        # Two imports that call one charge by different names leave open which machine it was.
        known_as = "" if disputed else sku
        meaning = skus.meaning(provider, known_as, {n: v for n, v in named.items() if v}, late=late)
        part = _Part(provider, account, sku, meaning, count, (high << _LOW_BITS) + low, *peculiar)
        # Of accelerators that are charged apart from their machine one resource may have many.
        apart = meaning.instance is not None and meaning.instance.count and not meaning.instance.vcpus
        yield replace(part, open=part.open + part.single, single=0) if apart else part


def _grouped(pairs: Iterable[tuple[_K, _Part]]) -> dict[_K, list[_Part]]:
    found: dict[_K, list[_Part]] = defaultdict(list)
    for key, part in pairs:
        found[key].append(part)
    return dict(found)


class _Judge:
    """Turns sums into verdicts."""

    def __init__(self, question: Question, records: FeedRecords) -> None:
        self._question, self._records = question, records

    def account(self, provider: str | None, account: str | None, parts: Sequence[_Part]) -> AccountLine:
        blockers = self._records.blockers(account)
        by_sku = _grouped(((part.sku, part.meaning), part) for part in parts)
        lines = [
            SkuLine(sku, meaning.how, meaning.instance, self._bound(mine, (), blockers))
            for (sku, meaning), mine in by_sku.items()
        ]
        lines.sort(key=lambda line: (-(line.bound.bound_flop or 0), line.sku))
        return AccountLine(
            provider=provider,
            account=account,
            bound=self._bound(parts, blockers, ()),
            peculiar=(peculiar := _peculiar(parts)),
            assumptions=_assumptions(parts, self._records.complete.status),
            notes=tuple(_notes(parts, peculiar)),
            skus=tuple(lines),
        )

    def _bound(self, parts: Sequence[_Part], missing: Sequence[str], beside: Sequence[str]) -> Bound:
        """Of an account, that may have charges that are missing; of a SKU, to which these may belong or not."""
        open_ = [*missing, *_open(parts)]
        reasons = [*beside, *open_]
        seconds = [(part.hours * 3600, part.meaning.instance) for part in parts]
        gpu = sum(s * one.gpu_flop_s for s, one in seconds if one is not None)
        cpu = sum(s * one.cpu_flop_s for s, one in seconds if one is not None)
        total = None if open_ else gpu + cpu
        complete = self._records.complete.status
        verdict, strict = (
            group_verdict(
                None if reasons or is_strict else total,
                self._question,
                open_reasons=len(reasons),
                complete=complete,
                strict=is_strict,
            )
            for is_strict in (False, True)
        )
        return Bound(
            charges=sum(part.charges for part in parts),
            hours=sum(part.hours for part in parts if part.computes),
            bound_gpu_flop=None if open_ else gpu,
            bound_cpu_flop=None if open_ else cpu,
            bound_flop=total,
            ratio=self._question.ratio(total),
            verdict=verdict,
            verdict_strict=strict,
            reasons=tuple(reasons),
        )


def _open(parts: Sequence[_Part]) -> Iterator[str]:
    """Why some charges have no bound."""
    unknown = [part for part in parts if part.meaning.instance is None]
    if unknown:
        yield (
            f"charges of SKUs that the registry does not list: {_named(unknown)}, from after the date up to which the "
            "rate registry is complete; list them in a rates overlay"
        )
    open_ = sum(part.open for part in parts if part.computes)
    if open_:
        yield (
            f"charges that tell neither their hours nor how many instances there were: {open_}; export the feed with "
            "hours, or with resource or quantity"
        )


def _peculiar(parts: Sequence[_Part]) -> Peculiar:
    counted = [part for part in parts if part.computes]
    return Peculiar(
        unlisted=sum(p.charges for p in parts if p.meaning.instance is None or p.meaning.how == "unknown"),
        unmetered=sum(p.unmetered for p in counted),
        beyond_period=sum(p.beyond for p in counted),
        credits=sum(p.credit for p in counted),
    )


def _notes(parts: Sequence[_Part], peculiar: Peculiar) -> Iterator[str]:
    """Where more was counted than the feed says."""
    unknown = [part for part in parts if part.meaning.how == "unknown"]
    if unknown:
        yield (
            f"charges of SKUs that the registry does not list: {_named(unknown)}; the most that a node can hold "
            "counts, list them in a rates overlay"
        )
    for n, what in (
        (peculiar.unmetered, "charges without hours above 0: {}; the whole charge period counts"),
        (peculiar.beyond_period, "charges of more hours than their charge period has: {}; the hours count"),
        (peculiar.credits, "credits: {}; they take nothing away"),
    ):
        if n:
            yield what.format(n)


def _assumptions(parts: Sequence[_Part], complete: Status) -> dict[str, Status]:
    listed = [p.meaning.instance for p in parts if p.meaning.how in ("listed", "family")]
    found: dict[str, Status] = {
        "records_complete": complete,
        "records_unaltered": "assumed",
        "labels_true": "declared" if all(one is not None and one.verified for one in listed) else "assumed",
        "hours_charged": "assumed",
        "same_key_same_charge": "assumed",
        "confined": "assumed",
        "units_left_out": "assumed",
    }
    if any(part.single for part in parts):
        found["one_instance_a_resource"] = "assumed"
    if not all(part.computes for part in parts):
        found["categories_true"] = "assumed"
    return found


def _named(parts: Sequence[_Part]) -> str:
    """How many charges, and the SKUs with most of them."""
    count: Counter[str] = Counter()
    for part in parts:
        count[part.sku] += part.charges
    first = ", ".join(name[:40] for name, _ in count.most_common(3))
    return f"{count.total()} ({first}" + (f" and {len(count) - 3} more)" if len(count) > 3 else ")")
