"""What one GPU did, second by second, and what its driver and a sampler would have told of it. Whole numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.stretches import S

SMS = 132
CLOCK_MAX_MHZ = 1980
TENSOR_OPS, DMMA_OPS, VECTOR_OPS = 16_384, 256, 1_024
"""The most a cycle of one SM of a Hopper card can do in each pipe (registry: nvidia-9.0)."""

LIMIT_W, IDLE_W = 700, 70
SAMPLE_S = 10

CYCLES = {
    "gpm_sm_cycles_elapsed": lambda part: 100,
    "gpm_sm_cycles_active": lambda part: part.active,
    "gpm_mma_cycles_active": lambda part: part.tensor,
    "gpm_dmma_cycles_active": lambda part: part.tensor if part.double else 0,
    "gpm_hmma_cycles_active": lambda part: 0 if part.double else part.tensor,
    "gpm_imma_cycles_active": lambda part: 0,
    "gpm_dfma_cycles_active": lambda part: 0,
    "gpm_integer_cycles_active": lambda part: part.vector - part.vector // 2,
    "gpm_fp64_cycles_active": lambda part: 0,
    "gpm_fp32_cycles_active": lambda part: part.vector // 2,
    "gpm_fp16_cycles_active": lambda part: 0,
}


@dataclass(frozen=True)
class Part:
    """`seconds` at one clock; shares of SM cycles in percent, each pipe's at most `active`."""

    seconds: int
    clock_mhz: int = CLOCK_MAX_MHZ
    active: int = 0
    tensor: int = 0
    vector: int = 0
    double: bool = False

    @property
    def power_w(self) -> int:
        """Roughly what the card draws."""
        return IDLE_W + (LIMIT_W - IDLE_W) * (3 * self.active + 7 * self.tensor) // 1000

    @property
    def flop_s(self) -> int:
        """Operations a second of the whole card."""
        tensor = DMMA_OPS if self.double else TENSOR_OPS
        return self.clock_mhz * 10**4 * SMS * (self.tensor * tensor + self.vector * VECTOR_OPS)


@dataclass(frozen=True)
class Faults:
    """What goes wrong between the card and the reader.

    Attributes:
        frozen: Times in which no cycle counter moves.
        reset: Moments at which they begin anew.
        stuck: Counters that never move.
        missing: Counters that are not read.
        factor: What every cycle counter is multiplied with: numerator and denominator.
        summed: Cycle counters are sums over the SMs.
        dead: Times without samples and reads.
        driver: Moment from which another driver is loaded.
    """

    frozen: tuple[tuple[int, int], ...] = ()
    reset: tuple[int, ...] = ()
    stuck: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    factor: tuple[int, int] = (1, 1)
    summed: bool = False
    dead: tuple[tuple[int, int], ...] = ()
    driver: int | None = None

    def asleep(self, at: int) -> bool:
        """Nobody samples at this moment."""
        return any(first <= at < last for first, last in self.dead)


@dataclass(frozen=True)
class History:
    """A card from second 0 on."""

    parts: tuple[Part, ...]
    faults: Faults = field(default_factory=Faults)

    @property
    def seconds(self) -> int:
        """Its length."""
        return sum(part.seconds for part in self.parts)

    def at(self, second: int) -> Part:
        """What it does in the second that begins here."""
        end = 0
        for part in self.parts:
            end += part.seconds
            if second < end:
                return part
        return self.parts[-1]

    def flop(self) -> int:
        """All operations."""
        return sum(part.flop_s * part.seconds for part in self.parts)

    def counters(self, at: int) -> dict[str, int | None]:
        """A read of the counters."""
        begin = max((moment for moment in self.faults.reset if moment <= at), default=0)
        found: dict[str, int | None] = dict.fromkeys(COUNTER_NAMES)
        for name, share in CYCLES.items():
            cycles = sum(
                part.clock_mhz * 10**4 * share(part) * awake for part, awake in self._awake(begin, at)
            )
            cycles *= SMS if self.faults.summed else 1
            found[name] = (
                0 if name in self.faults.stuck else cycles * self.faults.factor[0] // self.faults.factor[1]
            )
        found["energy_mj"] = sum(part.power_w * 1000 * s for part, s in self._seconds(0, at))
        found["sm_clock_max_mhz"] = CLOCK_MAX_MHZ
        return found | dict.fromkeys(self.faults.missing)

    def _seconds(self, begin: int, end: int) -> list[tuple[Part, int]]:
        found, reached = [], 0
        for part in self.parts:
            found.append((part, max(0, min(end, reached + part.seconds) - max(begin, reached))))
            reached += part.seconds
        return found

    def _awake(self, begin: int, end: int) -> list[tuple[Part, int]]:
        """Seconds of each part in which the counters moved."""
        found, reached = [], 0
        for part in self.parts:
            first, last = max(begin, reached), min(end, reached + part.seconds)
            asleep = sum(
                max(0, min(last, until) - max(first, since)) for since, until in _union(self.faults.frozen)
            )
            found.append((part, max(0, last - first - asleep)))
            reached += part.seconds
        return found

    def samples(self) -> list[tuple[int, Part]]:
        """Moments that were sampled, and what was seen."""
        moments = range(1, self.seconds, SAMPLE_S)
        return [(at, self.at(at)) for at in moments if not self.faults.asleep(at)]

    def gaps(self) -> list[tuple[int, int]]:
        """From the last sample before a dead time to the first after it."""
        return [(max(0, first - SAMPLE_S), last + SAMPLE_S) for first, last in self.faults.dead]

    def driver(self, at: int) -> str:
        """Version of the driver."""
        return "560" if self.faults.driver is not None and at >= self.faults.driver else "550"


def _union(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


__all__ = ["CLOCK_MAX_MHZ", "CYCLES", "LIMIT_W", "SAMPLE_S", "SMS", "Faults", "History", "Part", "S"]
