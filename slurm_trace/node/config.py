"""Settings of the sampler: defaults, then a file of `key=value` lines, then the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from slurm_trace.errors import UsageProblem
from slurm_trace.node.fields import RINGS

DEFAULT_FILE = Path("/etc/slurm-trace/node.conf")
FLOOR_S = 0.2
SOURCES = ("nvml", "replay", "amdsmi")


@dataclass(frozen=True)
class NodeConfig:
    """What the sampler goes by; the names are the keys of the file, and the options with `-` for `_`.

    Attributes:
        directory: The hooks' directory: `leases/` in it is read, `sampler/` written.
        spool: Node-local directory of open spool files.
        outbox: Where sealed ones go; may be a shared directory. Empty: `outbox` beside the spool directory.
        interval_s: From one reading of a device to the next, at least 0.2.
        chunk_s: A killed sampler loses at most this much. 0: 60 s, or 30 intervals where that is longer.
        counters_s: From one read of the cumulative counters to the next, besides those at begin and end.
        rings: Ring buffers of the driver to read.
        ring_s: From one look at the ring buffers to the next; shortened where entries were lost in between.
        hang_s: A call into the driver that takes longer is given up.
        open_s: The same for opening the driver: without persistence mode that takes long.
        part_s: An open spool file that is older is sealed and goes on in another.
        lost_s: A lease without an end that is older is closed as lost.
        idle_s: With `until_idle`: how long there has to be no lease.
        gres_conf: gres.conf, to know which card Slurm's list of GPUs means.
        source: Where readings come from.
        gpm: `yes` or `no`: whether the counters of GPM are read, without which no `--trust` lowers a bound by cycles.
        replay: The scenario file for the source `replay`.
    """

    directory: str = "/run/slurm-trace"
    spool: str = "/var/spool/slurm-trace/open"
    outbox: str = ""
    interval_s: float = 1.0
    chunk_s: float = 0.0
    counters_s: float = 600.0
    rings: str = "utilization_pct"
    ring_s: float = 8.0
    hang_s: float = 5.0
    open_s: float = 60.0
    part_s: float = 86_400.0
    lost_s: float = 60 * 86_400.0
    idle_s: float = 60.0
    gres_conf: str = "/etc/slurm/gres.conf"
    source: str = "nvml"
    gpm: str = "yes"
    replay: str = ""

    def __post_init__(self) -> None:
        if not self.interval_s >= FLOOR_S:
            raise UsageProblem(f"interval_s={self.interval_s:g}: the shortest interval is {FLOOR_S} s")
        for name in ("counters_s", "ring_s", "hang_s", "open_s", "part_s", "lost_s", "idle_s"):
            if not getattr(self, name) > 0:
                raise UsageProblem(f"{name}={getattr(self, name):g}: give a number of seconds above 0")
        if self.source not in SOURCES:
            raise UsageProblem(f"source={self.source}: choose one of {', '.join(SOURCES)}")
        if self.gpm not in ("yes", "no"):
            raise UsageProblem(f"gpm={self.gpm}: say yes or no")
        for name in self.ring_names:
            if name not in RINGS:
                raise UsageProblem(f"rings={self.rings}: {name} is none; choose from {', '.join(RINGS)}")

    @property
    def leases_folder(self) -> Path:
        """Where the hooks write."""
        return Path(self.directory, "leases")

    @property
    def sampler_folder(self) -> Path:
        """Where the sampler says what it has done."""
        return Path(self.directory, "sampler")

    @property
    def spool_folder(self) -> Path:
        """Where open spool files lie."""
        return Path(self.spool)

    @property
    def outbox_folder(self) -> Path:
        """Where sealed spool files go."""
        return Path(self.outbox) if self.outbox else Path(self.spool).with_name("outbox")

    @property
    def chunk_length_s(self) -> float:
        """How much a flush writes."""
        return self.chunk_s or max(60.0, 30 * self.interval_s)

    @property
    def ring_names(self) -> tuple[str, ...]:
        """Names of ring buffers."""
        return tuple(name for name in self.rings.replace(" ", "").split(",") if name)

    @property
    def late_s(self) -> float:
        """A longer way between two readings is a gap: three intervals, and one call that hung."""
        return 3 * self.interval_s + self.hang_s


def configure(file: Path | None, given: Mapping[str, str | float | None]) -> NodeConfig:
    """Defaults, then `file` (None: the usual one, where there is one), then what was given.

    Raises:
        UsageProblem: A key or value that cannot be.
    """
    config = NodeConfig()
    if file is not None or DEFAULT_FILE.exists():
        config = _with(config, _read(file or DEFAULT_FILE))
    return _with(config, {key: value for key, value in given.items() if value is not None})


def _with(config: NodeConfig, values: Mapping[str, str | float]) -> NodeConfig:
    types: dict[str, type[str | float]] = {f.name: type(getattr(config, f.name)) for f in fields(config)}
    changed: dict[str, str | float] = {}
    for key, value in values.items():
        if key not in types:
            raise UsageProblem(f"{key}: no such setting; there are {', '.join(types)}")
        try:
            changed[key] = types[key](value)
        except ValueError:
            raise UsageProblem(f"{key}={value}: give a number") from None
    return replace(config, **changed)  # type: ignore[arg-type]


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read ({error.strerror}); name another with --config") from None
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            key, equals, value = text.partition("=")
            if not equals:
                raise UsageProblem(f"{path}, line {number}: write key=value")
            found[key.strip()] = value.strip()
    return found
