"""Energy of a run's GPUs: evidence beside the bound, and an alarm where it is more than the allocation explains.

Never a bound: the power sensors of A100 and H100 see a quarter of the time, and what an operation costs depends on what
is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from slurm_trace.analysis.claims import Claim
from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.rates import Rates

ERROR_PCT = 5
"""How far power sensors are off at most (arxiv.org/abs/2312.02741: NVIDIA states 5 %); the alarm leaves that much."""

SHARED = "gpu_shared"
"""Flag of a run of which a GPU was another run's at the same time."""


@dataclass(frozen=True, slots=True)
class Energy:
    """What the leases of a run say of its energy.

    Attributes:
        energy_mj: Of all its GPUs together, from the first reading of a lease to its last.
        source: `counter` (the driver's), `samples` (of that counter) or `power` (integral); the weakest of its GPUs.
            Of counter and integral the larger counts.
        scope: What it speaks of: `gpu`, its own ones, or `shared_gpu`, where other runs held one of them at the same
            time, so that theirs is in it.
        joule_per_flop: By operation of the bound: at least so much if the bound is not reached.
        most_mj: What its allocation explains: GPUs x held time x the largest board power of the card, with the
            error of the sensors. None: not known of the card, or of how many there were.
    """

    energy_mj: int
    source: str
    scope: str
    joule_per_flop: float | None
    most_mj: int | None

    @property
    def unexplained(self) -> bool:
        """More than its allocation explains: use outside it, or more devices than it was given."""
        return self.most_mj is not None and self.energy_mj > self.most_mj


def energy(envelope: Envelope, i: int, rates: Rates) -> Energy | None:
    """Energy of run i; None where it is not known of each of its GPUs."""
    drawn: Any = envelope.runs["lease_energy_mj"].iat[i]
    if pd.isna(drawn):
        return None
    gpu_flop = envelope.bound_flop(i, "gpu")
    return Energy(
        energy_mj=int(drawn),
        source=str(envelope.runs["lease_energy_from"].iat[i]),
        scope="shared_gpu" if SHARED in str(envelope.runs["flags"].iat[i]).split() else "gpu",
        joule_per_flop=int(drawn) / 1000 / gpu_flop if gpu_flop else None,
        most_mj=_most_mj(envelope, i, rates),
    )


def board_watts(claim: Claim, rates: Rates) -> int | None:
    """Largest board power of all cards of a claim together; None where it is not known of one, or there is none."""
    watts = 0
    for named in claim.gpus:
        fits = {named.sku} if named.type is None else {named.sku, *rates.resolve(named.type).device_ids}
        entries = (rates.device(one).entry for one in sorted(fits) if one in rates.devices)
        known = [int(entry["tdp_w"]) for entry in entries if entry.get("tdp_w") is not None]
        if not known:
            return None
        watts += named.count * max(known)
    return watts or None


def _most_mj(envelope: Envelope, i: int, rates: Rates) -> int | None:
    held_s = int(envelope.release.held_s[i])
    watts = board_watts(envelope.claim(i), rates)
    return None if held_s < 0 or watts is None else watts * 1000 * held_s * (100 + ERROR_PCT) // 100
