"""Operations that no run accounts for: what a card's counters moved between the leases that held it.

Counters go on while nobody looks, so the last read of one lease and the first of the next tell what lay between. This
is evidence of use outside Slurm, and it is only ever added to the bounds of groups. Most cards are idle then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from slurm_trace.analysis.clocks import Clocks
from slurm_trace.analysis.ladder import Cards

LOADED = 3
"""Without cycle counters a card counts as used where it drew more than a third of its power limit on average."""

NEAR_NS = 60 * 10**9
"""A lease whose first or last read is further from its begin or end than this may itself have moved the counters."""

_CARD = ["cluster", "boot_id", "uuid"]
_NS_PER_MS = 10**6
_AT_ONCE = 200_000
"""Rows that are looked at together: each is copied a few times."""


def moved_between(ends: pd.DataFrame) -> pd.DataFrame:
    """The gaps between leases in which a counter moved: few of many.

    Args:
        ends: One row a lease file and device: cluster, boot_id, uuid, lease, driver, name, mig_profile, sm_count,
            clock_max_mhz, power_limit_mw, held_from_ns and held_to_ns (of the file), and first_ and last_ of ns,
            active (cycles) and energy (mJ).

    Returns:
        One row a gap: what is told of the card, length_ms, cycles and energy_mj by which its counters moved (-1: not
        read at both ends), and highest_mhz, the highest clock of all cards.
    """
    if ends.empty:
        return ends
    card = ends.groupby(_CARD, observed=True, sort=False).ngroup().to_numpy()
    parts = 1 + len(ends) // _AT_ONCE
    found = pd.concat([_moved_gaps(ends[card % parts == part]) for part in range(parts)], ignore_index=True)
    return found.assign(highest_mhz=_highest(ends))


def _moved_gaps(ends: pd.DataFrame) -> pd.DataFrame:
    """Of some cards."""
    gaps = _gaps(ends)
    cycles, energy_mj = _moved(gaps, "active"), _moved(gaps, "energy")
    gaps = gaps.assign(length_ms=-(-gaps["gap_ns"] // _NS_PER_MS), cycles=cycles, energy_mj=energy_mj)
    return gaps[(cycles > 0) | ((cycles < 0) & (energy_mj > 0))]


def unattributed(gaps: pd.DataFrame, cards: Cards) -> dict[str, int]:
    """Operations by cluster.

    Cycles with a warp resident count as those of one SM, however the driver counts them, so that none is missed; a
    stretch counts at most as if the card had run at the highest clock that was read of its model. A counter that began
    anew between two leases shows what it has counted since.

    Args:
        gaps: See `moved_between`.
        cards: Turns cycles into operations.
    """
    if gaps.empty:
        return {}
    length_ms = gaps["length_ms"]
    most = length_ms * _clocks(gaps, cards.clocks).fillna(gaps["highest_mhz"]).astype(np.int64)
    moved, energy = (gaps[name].to_numpy(dtype=np.int64) for name in ("cycles", "energy_mj"))
    used = (moved < 0) & (energy * 1000 * LOADED > gaps["power_limit_mw"].fillna(0).to_numpy() * length_ms)
    kcycles = np.where(moved >= 0, np.minimum(-(-moved // 1000), most), np.where(used, most, 0))
    found: dict[str, int] = {}
    table = gaps.assign(kcycles=kcycles)[kcycles > 0]
    by = ["cluster", "name", "mig_profile", "sm_count"]
    sums = table.groupby(by, dropna=False, observed=True)[["kcycles"]].sum().reset_index()
    for one in sums.to_dict("records"):
        sms = None if pd.isna(one["sm_count"]) else int(one["sm_count"])
        rate = cards.whole_per_kcycle(_given(one["name"]), _given(one["mig_profile"]), sms)
        cluster = str(one["cluster"])
        found[cluster] = found.get(cluster, 0) + int(one["kcycles"]) * rate
    return found


def _gaps(ends: pd.DataFrame) -> pd.DataFrame:
    """Stretches of a card between two leases, with no other lease in between and under one driver.

    What a lease's own run may have done before its first read or after its last is left out: it has a bound already.
    """
    one = [*_CARD, "lease"]
    files = ends.sort_values([*one, "first_ns"], kind="stable")
    rows = files[~files.duplicated(one)].reset_index(drop=True)
    # Of a lease of several files the begin of its first and the end of its last.
    until = files[~files.duplicated(one, keep="last")].reset_index(drop=True)
    ending = ["last_ns", "last_active", "last_energy", "held_to_ns"]
    rows[ending] = until[ending]
    rows = rows.sort_values([*_CARD, "first_ns"], kind="stable").reset_index(drop=True)
    card = rows.groupby(_CARD, observed=True, sort=False).ngroup()
    # The lease that was read last before each one: leases may share a card.
    reached = rows["last_ns"].groupby(card).cummax()
    latest = pd.Series(np.where(rows["last_ns"] == reached, np.arange(len(rows)), np.nan))
    latest = latest.groupby(card).ffill().groupby(card).shift()
    gaps = rows[latest.notna()]
    before = rows.loc[latest.dropna().astype(np.int64)].set_axis(gaps.index)
    gaps = gaps.assign(
        gap_ns=gaps["first_ns"] - before["last_ns"],
        low_active=before["last_active"],
        low_energy=before["last_energy"],
    )
    clear = (gaps["driver"] == before["driver"]) & (gaps["gap_ns"] > 0)
    clear &= (gaps["first_ns"] - gaps["held_from_ns"] <= NEAR_NS) & (
        before["held_to_ns"] - before["last_ns"] <= NEAR_NS
    )
    return gaps[clear.fillna(False).to_numpy(dtype=bool)]


def _moved(gaps: pd.DataFrame, what: str) -> npt.NDArray[np.int64]:
    """By how much a counter moved; -1 where it was not read at both ends."""
    low, high = gaps[f"low_{what}"], gaps[f"first_{what}"]
    step = (high - low).where(high >= low, high)
    found: npt.NDArray[np.int64] = step.fillna(-1).to_numpy(dtype=np.int64)
    return found


def _clocks(gaps: pd.DataFrame, clocks: Clocks) -> pd.Series[Any]:
    """The highest clock of each card, where one was read of it or of its model."""
    model = gaps.groupby(["cluster", "name"], dropna=False, observed=True, sort=False).ngroup()
    firsts = gaps.loc[~model.duplicated(), ["cluster", "name"]].assign(model=model)
    highest = {
        one.model: clocks.highest_mhz(_given(one.name), str(one.cluster))
        for one in firsts.itertuples(index=False)
    }
    of_model = model.map(highest).astype("Int64")
    own = gaps["clock_max_mhz"].astype("Int64")
    return own.where(own.notna() & (own >= of_model), of_model.where(of_model > 0))


def _highest(ends: pd.DataFrame) -> int:
    top: Any = ends["clock_max_mhz"].max()
    return 10_000 if pd.isna(top) else int(top)


def _given(value: Any) -> str | None:
    return value if isinstance(value, str) else None
