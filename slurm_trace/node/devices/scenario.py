"""A scenario: what some GPUs did, and what of it a driver would have shown. For tests, demonstrations and replay.

The *work* is the truth; every reading follows from it, except where the scenario overrides or breaks it. One
directive a line, `#` begins a comment, times are seconds of the scenario (`start` and `end` for no limit), intervals
are half-open.

    driver 550.54.15                 version of the driver
    cuda 12.4                        version of CUDA
    epoch 1700000000                 Unix time of second 0; without it, the modification time of the file
    boot -3600                       when counters began
    cycles mean                      GPM cycle counters: `mean` of the SMs, or their `sum`
    gpu PROFILE UUID [minor=N] [pci=BUSID] [name=TEXT_WITH_UNDERSCORES]        the next GPU, in the driver's order
    mig GPU UUID PROFILE gi=N ci=N sms=N memory=BYTES                          an instance; puts the card into MIG mode
    work UNIT FROM TO [clock=MHZ] [busy=X] [active=X] [hmma=X] [imma=X] [dmma=X] [dfma=X] [fp64=X] [fp32=X] [fp16=X]
                      [int=X] [precision=P] [sparse=1] [memory=BYTES] [membusy=X] [power=W] [tx=KB_S] [rx=KB_S]
    process UNIT FROM TO PID MEMORY  a compute process
    set GPU READING FROM TO VALUE    what the driver shows instead (names: `READINGS`, and gpm:N)
    fault GPU FUNCTION FROM TO HOW   FUNCTION without `nvml`, or `*`, field:N, gpm:N, samples:N;
                                     HOW: a word of `FAULTS`, a number of nvml.h, or hang:SECONDS
    init FROM TO HOW                 nvmlInit fails
    gone GPU FROM TO                 an init in that time does not find the card, and later indices move up
    reset GPU TIME                   counters begin again
    hole GPU FROM TO                 the ring buffers lost these entries
    xid GPU TIME CODE [gi=N] [ci=N]  an error event

UNIT is `0` (a card) or `0.1` (the second instance of card 0); GPU may be `*` in set, fault, gone, reset and hole.
Fractions X are of all SM cycles, 0 to 1; tensor pipes add up to at most 1, vector pipes too, and neither passes
`active`, nor that `busy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm_trace.errors import InputProblem
from slurm_trace.node.devices.profiles import PROFILES, Profile

TENSOR_PIPES = ("hmma", "imma", "dmma", "dfma")
VECTOR_PIPES = ("fp64", "fp32", "fp16", "int")
FRACTIONS = ("busy", "active", *TENSOR_PIPES, *VECTOR_PIPES, "membusy")
WORK_KEYS = (*FRACTIONS, "clock", "memory", "power", "tx", "rx")
PRECISIONS = ("bf16", "fp16", "tf32", "fp8", "fp4", "int8", "int4", "fp64")
READINGS = (
    "utilization", "memory_utilization", "memory_used", "power", "power_average", "power_instant", "module_power",
    "energy", "sm_clock", "memory_clock", "sm_clock_max", "memory_clock_max", "temperature", "pcie_tx", "pcie_rx",
    "pcie_tx_bytes", "pcie_rx_bytes", "throttle", "power_limit", "persistence",
)  # fmt: skip
FAULTS = {
    "uninitialized": 1, "invalid_argument": 2, "not_supported": 3, "no_permission": 4, "not_found": 6,
    "driver_not_loaded": 9, "timeout": 10, "library_missing": 12, "missing_symbol": 13, "lost": 15,
    "reset_required": 16, "driver_mismatch": 18, "no_data": 21, "unknown_error": 999,
}  # fmt: skip
# A card that is lost stays lost until the library is initialised again.
LOST = FAULTS["lost"]
IDLE_MEMORY_BYTES = 560_000_000
INSTANCE_IDLE_MEMORY_BYTES = 30_000_000
# nvmlSamplingType → (reading, period in s, entries kept).
RINGS = {
    0: ("power_instant", 0.1, 120),
    1: ("utilization", None, 100),
    2: ("memory_utilization", None, 100),
    5: ("sm_clock", 0.1, 100),
    6: ("memory_clock", 0.1, 100),
    7: ("module_power", 0.1, 120),
}


@dataclass(frozen=True)
class Work:
    """What a unit did from `start` to `end`; numbers as the file writes them are kept in `text` for exact sums."""

    start: float
    end: float
    values: dict[str, float]
    text: dict[str, str]


@dataclass
class Unit:
    """A card outside MIG mode, or one MIG instance: where work happens."""

    sms: int
    memory_bytes: int
    uuid: str
    profile_name: str = ""
    gpu_instance: int = 0
    compute_instance: int = 0
    work: list[Work] = field(default_factory=list)
    processes: list[tuple[float, float, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """From `start` to `end` a call answers with `code`, after `hang_s`."""

    function: str
    start: float
    end: float
    code: int
    hang_s: float = 0.0


@dataclass
class Gpu:
    """One card."""

    uuid: str
    profile: Profile
    name: str
    minor: int
    pci: str
    whole: Unit
    instances: list[Unit] = field(default_factory=list)
    overrides: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    gone: list[tuple[float, float]] = field(default_factory=list)
    resets: list[float] = field(default_factory=list)
    holes: list[tuple[float, float]] = field(default_factory=list)
    xids: list[tuple[float, int, int | None, int | None]] = field(default_factory=list)

    @property
    def units(self) -> list[Unit]:
        """Where work of this card happens."""
        return self.instances or [self.whole]


@dataclass
class Scenario:
    """All of a file."""

    epoch: float
    driver: str = "550.54.15"
    cuda: str = "12.4"
    boot: float = -3600.0
    cycles: str = "mean"
    gpus: list[Gpu] = field(default_factory=list)
    init_faults: list[Fault] = field(default_factory=list)


def load(path: Path) -> Scenario:
    """Read a scenario file; InputProblem names the line that is wrong."""
    scenario = Scenario(epoch=path.stat().st_mtime)
    for number, raw in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        words = raw.split("#", 1)[0].split()
        if not words:
            continue
        try:
            _directive(scenario, words)
        except (ValueError, IndexError, KeyError) as problem:
            raise InputProblem(
                f"{path}, line {number}: {problem}; see slurm_trace.node.devices.scenario"
            ) from None
    for gpu in scenario.gpus:
        for unit in gpu.units:
            unit.work.sort(key=lambda work: work.start)
            if any(a.end > b.start for a, b in zip(unit.work, unit.work[1:])):
                raise InputProblem(f"{path}: work of {unit.uuid} overlaps itself; make the intervals meet")
    return scenario


def _directive(scenario: Scenario, words: list[str]) -> None:
    head, rest = words[0], words[1:]
    if head in ("driver", "cuda"):
        setattr(scenario, head, rest[0])
    elif head in ("epoch", "boot"):
        setattr(scenario, head, float(rest[0]))
    elif head == "cycles":
        if rest[0] not in ("mean", "sum"):
            raise ValueError("cycles is mean or sum")
        scenario.cycles = rest[0]
    elif head == "init":
        scenario.init_faults.append(_fault(["init", *rest]))
    elif head in _OF_A_GPU:
        _OF_A_GPU[head](scenario, rest)
    else:
        raise ValueError(f"no such directive: {head}")


def _pairs(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def _time(word: str) -> float:
    return {"start": -math.inf, "end": math.inf}.get(word) or float(word)


def _chosen(scenario: Scenario, word: str) -> Iterator[Gpu]:
    yield from scenario.gpus if word == "*" else [scenario.gpus[int(word)]]


def _unit(scenario: Scenario, word: str) -> Unit:
    card, _, place = word.partition(".")
    gpu = scenario.gpus[int(card)]
    if bool(place) != bool(gpu.instances):
        raise ValueError(f"{word}: work is of the instances of a card in MIG mode, else of the card")
    return gpu.instances[int(place)] if place else gpu.whole


def _fault(words: list[str]) -> Fault:
    function, start, end, how = words
    if how.startswith("hang:"):
        return Fault(function, _time(start), _time(end), 0, float(how[5:]))
    return Fault(function, _time(start), _time(end), FAULTS[how] if how in FAULTS else int(how))


def _add_gpu(scenario: Scenario, words: list[str]) -> None:
    profile, uuid, place = PROFILES[words[0]], words[1], len(scenario.gpus)
    options = _pairs(words[2:])
    name = options.get("name", profile.name.replace(" ", "_")).replace("_", " ")
    whole = Unit(profile.sms, profile.memory_bytes, uuid)
    pci = options.get("pci", f"0000:{0x10 + place:02x}:00.0")
    scenario.gpus.append(Gpu(uuid, profile, name, int(options.get("minor", place)), pci, whole))


def _add_mig(scenario: Scenario, words: list[str]) -> None:
    options = _pairs(words[3:])
    unit = Unit(
        int(options["sms"]),
        int(options["memory"]),
        words[1],
        words[2],
        int(options["gi"]),
        int(options["ci"]),
    )
    scenario.gpus[int(words[0])].instances.append(unit)


def _add_work(scenario: Scenario, words: list[str]) -> None:
    text = _pairs(words[3:])
    gpu = scenario.gpus[int(words[0].split(".")[0])]
    unit = _unit(scenario, words[0])
    if text.get("precision", "bf16") not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}")
    values = dict.fromkeys(WORK_KEYS, 0.0)
    for key, word in text.items():
        if key not in ("precision", "sparse"):
            if key not in values:
                raise ValueError(f"no such key: {key}")
            values[key] = float(word)
    tensor, vector = (sum(values[pipe] for pipe in pipes) for pipes in (TENSOR_PIPES, VECTOR_PIPES))
    values["busy"] = values["busy"] if "busy" in text else 1.0
    values["active"] = values["active"] if "active" in text else values["busy"]
    values["membusy"] = values["membusy"] if "membusy" in text else values["busy"] * 0.4
    if not max(tensor, vector) <= values["active"] + 1e-9 <= values["busy"] + 2e-9 <= 1 + 3e-9:
        raise ValueError("pipes may not pass active, active not busy, busy not 1")
    if gpu.instances and "clock" in text:
        raise ValueError("a card in MIG mode keeps its maximum clock: leave clock out")
    values["clock"] = values["clock"] if "clock" in text else float(gpu.profile.sm_max_mhz)
    if values["clock"] > gpu.profile.sm_max_mhz:
        raise ValueError(f"clock passes the maximum of {gpu.profile.sm_max_mhz} MHz")
    if "power" not in text:
        share = unit.sms / gpu.profile.sms
        idle = 0.0 if gpu.instances else float(gpu.profile.idle_w)
        extra = (gpu.profile.tdp_w - gpu.profile.idle_w) * share
        values["power"] = idle + extra * (0.3 * values["busy"] + 0.7 * tensor)
    unit.work.append(Work(float(words[1]), float(words[2]), values, text))


def _add_process(scenario: Scenario, words: list[str]) -> None:
    start, end, pid, memory = words[1:]
    _unit(scenario, words[0]).processes.append((_time(start), _time(end), int(pid), int(memory)))


def _add_override(scenario: Scenario, words: list[str]) -> None:
    reading, start, end, value = words[1:]
    if reading not in READINGS and not reading.startswith("gpm:"):
        raise ValueError(f"no such reading: {reading}")
    for gpu in _chosen(scenario, words[0]):
        gpu.overrides.setdefault(reading, []).append((_time(start), _time(end), float(value)))


def _add_fault(scenario: Scenario, words: list[str]) -> None:
    for gpu in _chosen(scenario, words[0]):
        gpu.faults.append(_fault(words[1:]))


def _add_gone(scenario: Scenario, words: list[str]) -> None:
    for gpu in _chosen(scenario, words[0]):
        gpu.gone.append((_time(words[1]), _time(words[2])))


def _add_reset(scenario: Scenario, words: list[str]) -> None:
    for gpu in _chosen(scenario, words[0]):
        gpu.resets.append(float(words[1]))


def _add_hole(scenario: Scenario, words: list[str]) -> None:
    for gpu in _chosen(scenario, words[0]):
        gpu.holes.append((_time(words[1]), _time(words[2])))


def _add_xid(scenario: Scenario, words: list[str]) -> None:
    options = _pairs(words[3:])
    gi, ci = (int(options[key]) if key in options else None for key in ("gi", "ci"))
    scenario.gpus[int(words[0])].xids.append((float(words[1]), int(words[2]), gi, ci))


_OF_A_GPU = {
    "gpu": _add_gpu, "mig": _add_mig, "work": _add_work, "process": _add_process, "set": _add_override,
    "fault": _add_fault, "gone": _add_gone, "reset": _add_reset, "hole": _add_hole, "xid": _add_xid,
}  # fmt: skip
