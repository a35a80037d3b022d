"""What an instance of the corpus is: a small site as its records tell it, and what was really computed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.completeness import Coverage
from slurm_trace.analysis.corpus.anchors import Anchors
from slurm_trace.analysis.corpus.draw import Draw
from slurm_trace.analysis.ladder import Rung
from slurm_trace.site.profile import ClusterProfile, SiteProfile, plain_clusters

CLUSTER = "c"
"""The cluster of a site that has only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One accounting row, by the names of the store's frame, and its truth.

    Attributes:
        true_flop: Operations that the hardware really performed for it; None where the family simulates none.
    """

    job_id_raw: int
    cluster: str = CLUSTER
    submit: int | None
    start: int | None
    end: int | None
    elapsed_s: int | None
    suspended_s: int | None = 0
    limit_s: int | None = None
    step_end: int | None = None
    step_count: int | None = None
    queried_at: int | None = None
    uid: int | None = 1000
    node_count: int | None = 1
    cpu_count: int | None = None
    array_job_id: int | None = None
    het_job_id: int | None = None
    user: str | None = "ada"
    account: str | None = "lab"
    partition: str | None = "gpu"
    state: str = "COMPLETED"
    node_list: str | None = None
    source: str = "text"
    flags: str = ""
    name: str | None = "train"
    work_dir: str | None = "/home/ada/run"
    final: bool = True
    started: bool = True
    alloc_tres: str | None = None
    alloc_gres: str | None = None
    lease_end: int | None = None
    lease_gpus: int | None = None
    lease_covered_ms: int | None = None
    release_proven: bool = False
    true_flop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The question put to a site; without a margin that of the evaluator.

    Attributes:
        within_s: Of each group only the runs that touch its worst window of this length.
        base_flop: Compute of a base model that the runs went on from.
    """

    threshold: str = "eu-gpai"
    margin: Fraction | None = None
    basis: str = "max_any_op"
    trust: Rung = "allocation"
    within_s: int | None = None
    base_flop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the drivers call some GPUs, and the lowest rung that is proven for a stretch of them."""

    name: str | None
    mig_profile: str | None = None
    sm_count: int | None = None
    clock_max_mhz: int | None = None
    rung: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What counters tell of a run, over all stretches of one kind; cycles in thousands, of all GPUs together.

    Attributes:
        run: Position of the run in the site.
        seconds: GPU seconds of these stretches.
    """

    run: int
    kind: Counted
    seconds: int
    busy_ms: int = 0
    elapsed: int = 0
    active: int = 0
    tensor: int = 0
    dmma: int = 0
    vector: int = 0
    vector_fp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReads:
    """The first and the last read of a card's counters in a lease of it, by the names of the store's frame.

    Attributes:
        first_active: Cycles with a warp resident since the counter began.
        first_energy: Energy in mJ.
    """

    lease: int
    held_from_ns: int
    held_to_ns: int
    first_ns: int
    last_ns: int
    first_active: int | None
    last_active: int | None
    first_energy: int | None = None
    last_energy: int | None = None
    cluster: str = CLUSTER
    boot_id: str = "boot"
    uuid: str = "GPU-0"
    driver: str = "550"
    name: str | None = None
    mig_profile: str | None = None
    sm_count: int | None = None
    clock_max_mhz: int | None = None
    power_limit_mw: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A site and the question put to it.

    Attributes:
        varies: What sets this instance apart from the others of its family.
        reads: Counters at the ends of leases, which tell of use between them.
        unattributed_flop: Operations really performed while no run held the card.
        imports: What the imports of accounting can be held to; None: every run is known to be there.
        rejected: Rows that could not be read.
        period: Half-open time within which all of it happened; None: as long as the corpus speaks of.
        levels: Kinds of groups that are asked for.
        intended: The verdict on the whole site (with the base model, where one is added) by the family's own
            arithmetic; None where it has none.
    """

    varies: Mapping[str, str | int]
    runs: tuple[Run, ...]
    ask: Ask
    profiles: Mapping[str, ClusterProfile] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    telemetry: tuple[Measured, ...] = ()
    reads: tuple[LeaseReads, ...] = ()
    unattributed_flop: int = 0
    imports: tuple[Coverage, ...] | None = None
    rejected: int = 0
    period: tuple[int, int] | None = None
    levels: tuple[str, ...] = ("cluster",)
    intended: str | None = None

    @property
    def clusters(self) -> tuple[str, ...]:
        """Every cluster that a run or the profile names."""
        return tuple(dict.fromkeys([*(r.cluster for r in self.runs), *self.profiles]))

    def plain(self) -> dict[str, Any]:
        """The site as JSON, without what is as `Run` has it by default, or is asked of a few families alone."""
        rare = {
            "within_s": self.ask.within_s,
            "base_flop": self.ask.base_flop,
            "reads": [asdict(read) for read in self.reads],
            "unattributed_flop": self.unattributed_flop,
        }
        return {
            **{name: value for name, value in rare.items() if value},
            "varies": dict(self.varies),
            "threshold": self.ask.threshold,
            "margin": None if self.ask.margin is None else str(self.ask.margin),
            "basis": self.ask.basis,
            "runs": [_plain_run(run) for run in self.runs],
            "profile": plain_clusters(SiteProfile(self.profiles)) if self.profiles else {},
            "trust": self.ask.trust,
            "events": [asdict(event) for event in self.events],
            "telemetry": [asdict(measured) for measured in self.telemetry],
            "imports": None if self.imports is None else [asdict(entry) for entry in self.imports],
            "rejected": self.rejected,
            "period": self.period,
            "levels": self.levels,
            "intended": self.intended,
        }


@dataclass(frozen=True, slots=True)
class Family:
    """Instances that try one edge of what is decided.

    Attributes:
        make: Makes instance `number` from its random stream and the anchors.
        count: Instances of the design.
    """

    make: Callable[[Draw, int, Anchors], Site]
    count: int

    @property
    def name(self) -> str:
        """Name of the family: that of the function."""
        return self.make.__name__

    @property
    def about(self) -> str:
        """One line on what it tries."""
        return (self.make.__doc__ or "").strip().splitlines()[0]


_DEFAULTS = {f.name: f.default for f in fields(Run)}


def _plain_run(run: Run) -> dict[str, Any]:
    values = ((name, getattr(run, name)) for name in Run.__slots__)
    return {name: value for name, value in values if value != _DEFAULTS[name]}
