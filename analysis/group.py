"""One group of runs, and what besides the threshold decides what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_trace.analysis.lineage import PAUSE_S
from slurm_trace.analysis.memberships import By
from slurm_trace.analysis.tracking import Status


@dataclass(frozen=True, slots=True)
class Group:
    """One group of runs and what may be said of all of them together.

    Attributes:
        label: What to call it besides its key: user and job name of a lineage's or a family's first run.
        worst_window: Of the length asked for, the half-open time whose runs together come out highest; what else is
            said of the group is said of the runs that touch it. None: no length was asked for, or every run counts,
            since one has no bound or none has a time.
        jobs: Runs in it, runaways included.
        gpu_seconds: GPUs x run time in the window; the runs that lack one of the two are counted in `gpu_unknown_jobs`.
        bound_flop: The most that all members can have done; None if one of them has no bound, or one may be missing.
        unattributed_flop: Operations that counters saw while no run held the card. Part of the bound of all and of a
            cluster; of any other group they may be its own.
        capacity_flop: The most the hardware can have done in the whole period, whoever used it; None if not known.
        bound_with_base_flop: The bound and the compute of the base model that was given.
        fewest_jobs: Fewest runs whose bounds together reach T (a run without a bound counts as infinite); None if all
            together do not, or the group is ruled out.
        fewest_jobs_list: These runs, the largest first, as `explain` takes them; at most `fewest.LISTED`.
        fewest_users: The same for users.
        reasons: Why the members' sum could not be taken.
    """

    by: By
    key: str
    label: str | None
    worst_window: dict[str, int] | None
    jobs: int
    users: int
    gpu_seconds: int
    gpu_unknown_jobs: int
    bound_flop: int | None
    unattributed_flop: int
    capacity_flop: int | None
    ratio: float | None
    verdict: str
    verdict_strict: str
    bound_with_base_flop: int | None
    ratio_with_base: float | None
    verdict_with_base: str | None
    fewest_jobs: int | None
    fewest_jobs_list: tuple[str, ...]
    fewest_users: int | None
    fewest_users_list: tuple[str, ...]
    records_complete: Status
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What besides the threshold decides what is asked of groups.

    Attributes:
        pause_s: Longest pause inside a lineage.
        within_s: Length of the sliding window; None: the whole time counts.
        base_flop: Compute of a base model that the runs went on from; None: none is given.
    """

    pause_s: int = PAUSE_S
    within_s: int | None = None
    base_flop: int | None = None


NO_TERMS = Terms()
