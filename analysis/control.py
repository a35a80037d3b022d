"""Do the records hold as much as slurmdbd's own hourly sums? Less means that runs are missing from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slurm_trace.accounting.sreport import ControlTotal
from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.exact import Exact, Ints


@dataclass(frozen=True, slots=True)
class Compared:
    """A control total beside what the records hold.

    Attributes:
        total: What sreport says.
        records_s: Seconds x count of all runs in the records, clipped to the same time.
    """

    total: ControlTotal
    records_s: int

    @property
    def short_s(self) -> int:
        """What the records lack, after what rounding may have added to the total."""
        return max(0, self.total.allocated_s - self.total.rounded_s - self.records_s)

    @property
    def reason(self) -> str:
        """What a report says of a shortfall."""
        return (
            f"the records hold {self.records_s} {self.total.tres} seconds of epoch {self.total.since} to "
            f"{self.total.until}, sreport {self.total.allocated_s}: runs are missing, or a reservation was charged "
            "without a job"
        )


def compare(envelope: Envelope, totals: Iterable[ControlTotal]) -> list[Compared]:
    """Sum the records of each total's cluster and time.

    Time in suspension is in neither; of a run that was suspended, what lies in a window is taken from its start on.
    A run whose count or time is not known adds nothing: the records do not hold it.

    Args:
        envelope: All runs, whatever the question is about.
        totals: What to compare with.
    """
    runs = envelope.runs
    names = runs["cluster"].astype("category")
    known = [str(name) for name in names.cat.categories]
    cluster: Ints = names.cat.codes.to_numpy().astype(np.int64)
    cpu, kinds = np.unique(runs["cpu_count"].fillna(0).to_numpy(dtype=np.int64), return_inverse=True)
    counts: dict[str, tuple[list[int], Ints]] = {
        "cpu": (cpu.tolist(), kinds.astype(np.int64)),
        "gres/gpu": ([c.gpu_count or 0 for c in envelope.claims], envelope.code),
    }
    sums: dict[tuple[int, int, str], list[int]] = {}
    found = []
    for total in totals:
        key = (total.since, total.until, total.tres)
        if key not in sums:
            used_s = np.maximum(envelope.usage_s(total.since, total.until), 0)
            sums[key] = Exact.products(used_s, *counts[total.tres]).sums(cluster, len(known)).ints()
        held = sums[key][known.index(total.cluster)] if total.cluster in known else 0
        found.append(Compared(total, held))
    return found
