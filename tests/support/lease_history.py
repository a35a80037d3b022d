"""Leases on nodes whose work is known, and what goes wrong meanwhile: played by the real sampler over the fake driver.

A history says what the cards did, which runs held them, what Slurm says of these runs, and which faults there are.
`play` lets time pass; hooks, kills and clock steps fall due in the middle of a call as well as between calls. All
evidence is the sampler's own. Times are true seconds; the controller's clock is right, that of a node may not be.
"""

from __future__ import annotations

import bisect
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pynvml
from fake_nvml.harness import EPOCH, FakeNvml
from fake_nvml.truth import operations

from slurm_trace.node.devices.base import CounterRead
from slurm_trace.node.devices.nvml import NvmlSource
from slurm_trace.node.devices.scenario import load
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.node.spool_writer import SpoolFailed, SpoolWriter
from slurm_trace.node.watchdog import Call, Direct, GivenUp, Hung
from support.sampling import FakeClock, Node, S
from support.world import Job, sacct_text

HANG_S = 5.0
UP_S = 1000.0
"""The node's uptime at second 0."""
MIG = "H100-MIG"
"""A kind of cards: parts of one H100, in the place of whole ones."""
FAST = "H100-FAST"
"""A kind of cards: H100 whose driver allows more than their datasheet has."""
LABELS = {MIG: "h100_1g.10gb", FAST: "h100"}
"""What Slurm calls a kind, where that is not its name in small letters."""
_CALL_S = 0.0005
_STANDING = {"counters_stand": range(248, 261), "work_counters_stand": range(249, 261)}
_BUSY_SPOOL = "the disk is full"


@dataclass(frozen=True)
class Work:
    """What one card did from `start` to `end`; `doing` in the words of a scenario."""

    card: int
    start: float
    end: float
    doing: str


@dataclass(frozen=True)
class Part:
    """A run on one node.

    Attributes:
        cards: Cards that it was given, by the driver's index.
        prolog: When its lease began.
        release: When its last process let go.
        epilog: When its lease was closed; None: the epilog was lost.
    """

    node: int
    cards: tuple[int, ...]
    prolog: float
    release: float
    epilog: float | None


@dataclass(frozen=True)
class Run:
    """A run, as Slurm has it and as it was.

    Attributes:
        end: What Slurm says; None while it runs.
        names_cards: The hooks' environment has UUIDs; else Slurm's indices only.
        has_start: The hooks' environment has the time of the start.
    """

    number: int
    submit: int
    start: int
    end: int | None
    state: str
    parts: tuple[Part, ...]
    names_cards: bool = True
    has_start: bool = False


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong on a node at `at`; what `amount` means depends on the kind.

    `kill`, `stop`: the sampler is gone for `for_s`. `hang`: the first call of card `amount` (None: the driver as a
    whole) hangs for `for_s`. `lost`: card `amount` is, for `for_s`. `driver_gone`: for `for_s`. `wall_step`: by
    `amount` seconds. `reboot`: takes `for_s`; with `amount` the lease directory outlives it. `disk_full`: for
    `for_s`. `lease_file_lost`: somebody empties the lease directory. `ring_hole`: of card `amount`, for `for_s`.
    `counter_reset`: of card `amount`. `counters_stand`: those of card `amount`, for `for_s`; `work_counters_stand`:
    all but elapsed cycles. `unit_slip`: from then on cycle counters are `amount` times what they were. `spool_lost`:
    the `amount`-th delivered file. `open_lost`: somebody empties the directory of open spool files. `open_damaged`:
    their first bytes, and all of a share of `amount` parts in ten, are overwritten.
    """

    kind: str
    at: float
    node: int = 0
    for_s: float = 0.0
    amount: Any = None


@dataclass(frozen=True)
class History:
    """All that happened.

    Attributes:
        cards: Per node the kind of its cards, and how many.
        work: Per node what they did.
        until: When the records are taken; runs without an end go on.
        header: More lines of the scenario (`cycles sum`, `boot -5`).
        skew_s: Per node, by how much its clock is ahead.
        stops: The samplers are stopped at the end, and leave what is open as parts.
    """

    cards: tuple[tuple[str, int], ...]
    work: tuple[tuple[Work, ...], ...]
    runs: tuple[Run, ...]
    faults: tuple[Fault, ...] = ()
    until: int = 300
    header: tuple[str, ...] = ()
    skew_s: tuple[float, ...] = (0.0, 0.0)
    counters_s: float = 20.0
    part_s: float = 86_400.0
    stops: bool = True


@dataclass(frozen=True)
class Played:
    """What is left of a history: delivered spool files, accounting, and per run the operations that it did.

    Attributes:
        truth: (number, submit) → a function of the last second that counts.
    """

    spools: Path
    sacct: bytes
    truth: Mapping[tuple[int, int], Callable[[float], Fraction]] = field(default_factory=dict)


class Killed(BaseException):
    """The sampler's process is gone, wherever it was."""


class NodeClock(FakeClock):
    """True time, the node's two clocks, and what falls due while they pass."""

    def __init__(self, nvml: FakeNvml, skew_s: float) -> None:
        super().__init__(UP_S)
        self.true = 0
        self.wall = round((EPOCH + skew_s) * S)
        self._offsets = [(-(1 << 60), self.wall)]
        self._nvml = nvml
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def true_s(self) -> float:
        """Seconds of the scenario."""
        return self.true / S

    def at(self, true_s: float, action: Callable[[], None]) -> None:
        """Do something when it is time, in the middle of whatever."""
        bisect.insort(self._agenda, (round(true_s * S), next(self._order), action))

    def pass_s(self, seconds: float) -> None:
        until = self.true + round(seconds * S)
        while self._agenda and self._agenda[0][0] <= until:
            at, _, action = self._agenda.pop(0)
            self._pass_ns(max(0, at - self.true))
            action()
        self._pass_ns(max(0, until - self.true))

    def step(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall += round(seconds * S)
        self._offsets.append((self.true, self.wall - self.true))

    def shown_us(self, stamp_us: int) -> int:
        """What the node's clock showed when it was `stamp_us` by the scenario's."""
        true = stamp_us * 1000 - EPOCH * S
        place = bisect.bisect_right(self._offsets, true, key=lambda one: one[0]) - 1
        return (true + self._offsets[place][1]) // 1000

    def _pass_ns(self, ns: int) -> None:
        self.true += ns
        self.mono += ns
        self.wall += ns
        self._nvml.set(self.true / S)


class Source(NvmlSource):
    """The driver as it is, with calls that take time, stamps of the node's own clock, and counters that may slip."""

    def __init__(self, clock: NodeClock) -> None:
        super().__init__(clock=lambda: clock.true_s, pause=clock.pass_s)
        self.clock = clock
        self.slips: list[tuple[float, float]] = []

    def counters(self, uuid: str) -> CounterRead:
        self.clock.pass_s(_CALL_S)
        read = super().counters(uuid)
        by = math.prod(factor for at, factor in self.slips if at <= self.clock.true_s)
        self.clock.pass_s(_CALL_S)
        if by == 1:
            return read
        values = [
            math.floor(value * by) if value is not None and name.startswith("gpm_") else value
            for name, value in zip(COUNTER_NAMES, read.values, strict=True)
        ]
        return CounterRead(uuid, tuple(values), read.reasons)

    def ring(self, uuid: str, kind: str, since_us: int) -> list[tuple[int, int | None]]:
        kept = [(self.clock.shown_us(us), value) for us, value in super().ring(uuid, kind, 0)]
        return sorted(dict(entry for entry in kept if entry[0] > since_us).items())


class Hangs:
    """Makes calls that take time, and gives up those that the history lets hang."""

    def __init__(self, clock: NodeClock) -> None:
        self.due: list[tuple[float, str, float]] = []
        self._clock = clock
        self._back: dict[str, float] = {}

    @property
    def stuck(self) -> tuple[str, ...]:
        return tuple(name for name, at in self._back.items() if self._clock.true_s < at)

    def run(self, calls: Sequence[tuple[str, Call]], limit_s: float) -> list[Any]:
        results: list[Any] = []
        for name, call in calls:
            if name in self.stuck:
                results.append(Hung(name))
                continue
            for one in self.due:
                at, whose, for_s = one
                if at <= self._clock.true_s and whose == name:
                    self.due.remove(one)
                    self._hang(name, for_s, limit_s)
                    break
            self._clock.pass_s(_CALL_S)
            results += Direct().run([(name, call)], limit_s)
        return results

    def _hang(self, name: str, for_s: float, limit_s: float) -> None:
        until = self._clock.true_s + for_s
        if for_s > limit_s:
            self._back[name] = until
            self._clock.pass_s(limit_s)
            raise GivenUp(name)
        self._clock.pass_s(for_s)


class HistoryNode(Node):
    """A node that lives through its part of a history."""

    def __init__(self, folder: Path, number: int, history: History, nvml: FakeNvml) -> None:
        self._nvml = nvml
        self._history = history
        self._number = number
        self._stems: dict[tuple[int, int], str] = {}
        self._slips: list[tuple[float, float]] = []
        self._full = False
        self._alive = True
        self._down_s = 0.0
        self._stop = False
        self._boots = 0
        clock = NodeClock(nvml, history.skew_s[number])
        super().__init__(
            folder,
            source=Source(clock),  # type: ignore[arg-type]
            caller=Hangs(clock),
            counters_s=history.counters_s,
            part_s=history.part_s,
            ring_s=4.0,
            chunk_s=15.0,
            hang_s=HANG_S,
            open_s=HANG_S,
        )

    def plan(self) -> None:
        """Put all hooks and faults on the agenda."""
        for run in self._history.runs:
            for part in run.parts:
                if part.node == self._number:
                    self._at(part.prolog, self._prolog, run, part)
                    if part.epilog is not None:
                        self._at(part.epilog, self._epilog, run)
        for fault in self._history.faults:
            action = getattr(self, f"on_{fault.kind}", None)
            if fault.node == self._number and action is not None:
                self._at(fault.at, action, fault)

    def live(self) -> None:
        """From the begin to the end of the history."""
        with self._disk():
            while self.clock.true_s < self._history.until:
                try:
                    self._step()
                except Killed:
                    self._die()
            if self._history.stops and self._alive:
                self._shut()

    def _step(self) -> None:
        if not self._alive:
            self.clock.pass_s(self._down_s)
            self._begin()
        elif self._stop:
            self._shut()
        else:
            self._turn()

    def _turn(self) -> None:
        try:
            self.sampler.turn()
            left_s = self._history.until - self.clock.true_s
            self.clock.sleep(min(self.sampler.pause_s(), max(left_s, 0)))
        except GivenUp:
            return

    def _shut(self) -> None:
        while self._alive:
            try:
                self.sampler.shut()
            except GivenUp:
                continue
            break
        self._die()

    def _die(self) -> None:
        """Nothing of the process is left, nor what it had not written."""
        waiting = [closing.log for closing in self.sampler._keeper._waiting]
        for log in [*(served.log for served in self.sampler._leases.values()), *waiting]:
            log.suspend()
        for log in (served.log for served in self.sampler._begun):
            log.suspend()
        self.source.close()
        self._nvml.end()
        self._alive = self._stop = False

    def _begin(self) -> None:
        self.source = Source(self.clock)  # type: ignore[assignment,arg-type]
        self.source.slips = self._slips  # type: ignore[attr-defined]
        self.caller = Hangs(self.clock)  # type: ignore[arg-type]
        self.new_sampler()
        self._alive = True
        self.sampler.resume()

    # Hooks

    def _prolog(self, run: Run, part: Part) -> None:
        cuda = ",".join(uuid_of(self._number, card) for card in part.cards) if run.names_cards else None
        more = {"start_time": str(EPOCH + run.start)} if run.has_start else {}
        gpus = ",".join(map(str, part.cards))
        self._stems[run.number, run.submit] = self.lease(
            run.number, gpus, cuda, cluster="c", node=f"n{self._number + 1}", **more
        )

    def _epilog(self, run: Run) -> None:
        stem = self._stems.get((run.number, run.submit))
        if stem is None:
            return  # The node has started anew since: Slurm runs no epilog.
        node = f"n{self._number + 1}"
        if (self.config.leases_folder / f"{stem}.lease").exists():
            self.end(stem, node=node)
        else:
            self.end(f"{run.number}.{self.clock.mono // 10_000_000}", orphan="1", node=node)

    def _publish(self, name: str, lines: Mapping[str, str]) -> None:
        super()._publish(name, lines)
        os.utime(self.config.leases_folder / name, ns=(self.clock.wall, self.clock.wall))

    # Faults

    def _at(self, at: float, action: Callable[..., None], *arguments: Any) -> None:
        self.clock.at(at, lambda: action(*arguments))  # type: ignore[attr-defined]

    def on_kill(self, fault: Fault) -> None:
        if self._alive:
            self._down_s = fault.for_s
            raise Killed

    def on_stop(self, fault: Fault) -> None:
        self._down_s, self._stop = fault.for_s, True

    def on_hang(self, fault: Fault) -> None:
        name = "driver" if fault.amount is None else uuid_of(self._number, fault.amount)
        self.caller.due.append((fault.at, name, fault.for_s))  # type: ignore[attr-defined]

    def on_wall_step(self, fault: Fault) -> None:
        self.clock.step(fault.amount)  # type: ignore[attr-defined]

    def on_unit_slip(self, fault: Fault) -> None:
        self._slips.append((fault.at, fault.amount))
        self.source.slips = self._slips  # type: ignore[attr-defined]

    def on_reboot(self, fault: Fault) -> None:
        self._boots += 1
        self.boot_id = f"{self._boots:08d}-2222-3333-4444-555555555555"
        self.clock.mono = 10 * S
        self._stems.clear()
        if not fault.amount:
            self._empty()
        self._down_s = fault.for_s
        if self._alive:
            raise Killed

    def on_lease_file_lost(self, _: Fault) -> None:
        self._empty()

    def on_open_lost(self, _: Fault) -> None:
        for path in self.config.spool_folder.glob("*.open*"):
            path.unlink()

    def on_open_damaged(self, fault: Fault) -> None:
        for path in self.config.spool_folder.glob("*.open*"):
            with path.open("r+b") as file:
                size = path.stat().st_size
                file.write(b"\xa5" * 40)
                file.seek(size * fault.amount // 10)
                file.write(b"\xa5" * (size // 10))

    def _empty(self) -> None:
        for path in self.config.leases_folder.iterdir():
            path.unlink()

    def on_disk_full(self, fault: Fault) -> None:
        self._full = True
        self._at(fault.at + fault.for_s, lambda: setattr(self, "_full", False))

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """The spool's disk, which may be full."""
        write, create = SpoolWriter.write, SpoolWriter.create

        def checked(method: Callable[..., Any]) -> Callable[..., Any]:
            def instead(*arguments: Any) -> Any:
                if self._full:
                    raise SpoolFailed(_BUSY_SPOOL)
                return method(*arguments)

            return instead

        SpoolWriter.write = checked(write)  # type: ignore[method-assign]
        SpoolWriter.create = checked(create)  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            SpoolWriter.write, SpoolWriter.create = write, create  # type: ignore[method-assign]


def uuid_of(node: int, card: int) -> str:
    """The UUID of a card, or of a part of one."""
    return f"GPU-{node}{card}"


def _devices(kind: str, node: int, count: int) -> Iterator[str]:
    if kind != MIG:
        yield from (f"gpu {kind} {uuid_of(node, card)}" for card in range(count))
        return
    yield f"gpu H100 GPU-{node}-whole"
    for part in range(count):
        # The driver's name of the profile, and the SMs that such a part of this card has.
        yield f"mig 0 {uuid_of(node, part)} 1g.10gb gi={7 + part} ci=0 sms=16 memory=10737418240"


def scenario(history: History, node: int) -> str:
    """The scenario file of a node: its cards, what they did, and the faults that a driver shows."""
    kind, count = history.cards[node]
    lines = [*history.header, *_devices(kind, node, count)]
    unit = "0.{}" if kind == MIG else "{}"
    lines += [f"work {unit.format(w.card)} {w.start} {w.end} {w.doing}" for w in history.work[node]]
    for fault in history.faults:
        if fault.node != node:
            continue
        span = f"{fault.at} {fault.at + fault.for_s}"
        card = 0 if kind == MIG else fault.amount
        if fault.kind == "lost":
            lines.append(f"fault {card} * {span} lost")
        elif fault.kind == "driver_gone":
            lines += [f"init {span} driver_not_loaded", f"fault * * {span} uninitialized"]
        elif fault.kind == "ring_hole":
            lines.append(f"hole {card} {span}")
        elif fault.kind == "counter_reset":
            lines.append(f"reset {card} {fault.at}")
        elif fault.kind in _STANDING:
            lines += [f"set {card} gpm:{number} {span} 1000000" for number in _STANDING[fault.kind]]
        elif fault.kind == "reboot":
            lines.append(f"reset * {fault.at}")
    return "\n".join(lines) + "\n"


def play(history: History, folder: Path) -> Played:
    """Let a history happen, node after node, and take down what is left of it."""
    spools = folder / "spools"
    spools.mkdir(parents=True)
    did: dict[tuple[int, int], list[Callable[[float], Fraction]]] = {}
    for number in range(len(history.cards)):
        nvml = FakeNvml(folder)
        try:
            path = nvml.load(scenario(history, number), at=-1)
            pynvml.nvmlInit()  # Or else the library could not read the file.
            nvml.end()
            node = HistoryNode(folder / f"node-{number}", number, history, nvml)
            node.plan()
            node.live()
            node.courier.deliver_all()
        finally:
            nvml.end()
        _deliver(node.config.outbox_folder, spools, [f for f in history.faults if f.node == number])
        for run in history.runs:
            did.setdefault((run.number, run.submit), []).extend(_truth(path, run, number))
    rows = [_row(run, history) for run in history.runs]
    truth = {key: _sum(parts) for key, parts in did.items()}
    return Played(spools, sacct_text(rows), truth)


def _deliver(outbox: Path, spools: Path, faults: Iterable[Fault]) -> None:
    lost = {fault.amount for fault in faults if fault.kind == "spool_lost"}
    for place, path in enumerate(sorted(outbox.glob("*.spool"))):
        if place not in lost:
            shutil.copy(path, spools / path.name)


def _truth(path: Path, run: Run, node: int) -> Iterator[Callable[[float], Fraction]]:
    happened = load(path)
    for part in run.parts:
        if part.node == node:

            def until(limit: float, part: Part = part) -> Fraction:
                found = operations(happened, run.start, min(part.release, limit))
                return sum((found[uuid_of(node, card)] for card in part.cards), Fraction(0))

            yield until


def _sum(parts: Sequence[Callable[[float], Fraction]]) -> Callable[[float], Fraction]:
    return lambda limit: sum((part(limit) for part in parts), Fraction(0))


def _row(run: Run, history: History) -> dict[str, str]:
    end = history.until if run.end is None else run.end
    kind = history.cards[run.parts[0].node][0]
    job = Job(
        number=run.number,
        submit=EPOCH + run.submit,
        start=EPOCH + run.start,
        end=EPOCH + end,
        stopped_s=0,
        suspended_s=0,
        state=run.state,
        nodes=len(run.parts),
        gpus=sum(len(part.cards) for part in run.parts),
        gpu_type=LABELS.get(kind, kind.lower()),
        cpus=1,
        flop=0,
    )
    names = ",".join(f"n{part.node + 1}" for part in run.parts)
    return job.row(NodeList=names, **({} if run.end is not None else {"End": "Unknown"}))
