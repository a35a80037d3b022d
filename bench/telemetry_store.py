"""Leases and counters for a store that holds a generated year (`examples/generate.py`), a million runs in a minute.

    python bench/telemetry_store.py store.db             # fills the tables as the import of spool files would
    python bench/telemetry_store.py store.db spools/     # writes the spool files themselves, for a small store

Every run on GPUs that ended has a lease on each of its nodes, with the cards that were free then. The first files of
each partition are really written and imported; the rows of all others are theirs with other numbers. A test holds both
ways together. Raw samples and what is worked out of them by the hour are left out, as if they had been pruned.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, Table, select

from slurm_trace.accounting.nodes import expand
from slurm_trace.accounting.tres import parse_tres
from slurm_trace.child import without_cycles
from slurm_trace.examples.generate import CLUSTER
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.fields import COUNTER_NAMES, SAMPLE_NAMES
from slurm_trace.node.spool import MS, SAMPLE, CounterMoment
from slurm_trace.node.spool_writer import Batch, ChunkRows, SpoolWriter
from slurm_trace.store import models
from slurm_trace.store.bulk import insert_columns
from slurm_trace.store.catalog import Ids
from slurm_trace.store.engine import Store, open_store
from slurm_trace.store.interned import intern
from slurm_trace.store.spool_ingest import import_spools
from slurm_trace.store.stretches import Kind, Read, Trail, Witness, stretches
from slurm_trace.store.telemetry import SUMS

S = 10**9
HALF = S // 2
UP_SINCE = 1_735_600_000
"""When the nodes' uptime began: before the year does."""
MONTH_S = 30 * 86_400
"""As long a boot lasts."""

OPENS, FIRST_READ = 1, 3
LAST_READ, CLOSES = 3, 4
"""Half seconds from a run's start to the prolog and the first read, from its end to the last read and the epilog."""
TOOK_NS = MS
STEP_S = 600
DRIVER = "570.124.06"
SHORTEST_S = 60
OUTSIDE = 97
"""Of so many times that a card was handed out, once it had worked for a minute before that, outside Slurm."""
AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Model:
    """Cards of one partition, and what they do while a run holds them."""

    name: str
    on_node: int
    clock_max_mhz: int
    power_limit_mw: int
    mig_profile: str | None = None
    sm_count: int | None = None
    counts_cycles: bool = False

    @property
    def clock_mhz(self) -> int:
        """All the time."""
        return self.clock_max_mhz - 100

    @property
    def power_mw(self) -> int | None:
        """While at work; of a MIG instance nobody knows."""
        return None if self.mig_profile else self.power_limit_mw * 3 // 4

    @property
    def utilization_pct(self) -> int | None:
        """While at work."""
        return None if self.mig_profile else 80

    def counters(self, up: int, worked: int) -> dict[str, int | None]:
        """What they show after so many half seconds since boot, and of work."""
        told: dict[str, int | None] = {"sm_clock_max_mhz": self.clock_max_mhz}
        if self.power_mw is not None:
            told["energy_mj"] = worked * (self.power_mw + 10_000) // 2
        if self.counts_cycles:
            cycles = self.clock_mhz * 10**6 // 20
            told |= dict.fromkeys((n for n in COUNTER_NAMES if n.endswith("cycles_active")), 0)
            told |= {
                "gpm_sm_cycles_elapsed": 10 * cycles * up,
                "gpm_sm_cycles_active": 8 * cycles * worked,
                "gpm_mma_cycles_active": 4 * cycles * worked,
                "gpm_hmma_cycles_active": 4 * cycles * worked,
                "gpm_fp32_cycles_active": 2 * cycles * worked,
                "gpm_integer_cycles_active": cycles * worked,
            }
        return told

    def device(self, uuid: str, place: int) -> DeviceInfo:
        """As the driver lists it."""
        return DeviceInfo(
            uuid, self.name, place, place, f"00000000:{place + 1:02x}:00.0", mig_profile=self.mig_profile,
            sm_count=self.sm_count, memory_total_bytes=80 << 30, max_sm_mhz=self.clock_max_mhz,
            power_limit_mw=self.power_limit_mw, capability={"energy_mj": "ok"},
        )  # fmt: skip


MODELS = {
    "h100": Model("NVIDIA H100 80GB HBM3", 8, 1980, 700_000, counts_cycles=True),
    "a100": Model("NVIDIA A100-SXM4-80GB", 8, 1410, 400_000),
    "mig": Model("NVIDIA A100-SXM4-80GB", 56, 1410, 400_000, mig_profile="1g.10gb", sm_count=14),
    "v100": Model("Tesla V100-SXM2-32GB", 4, 1530, 300_000),
    "l40s": Model("NVIDIA L40S", 8, 2520, 350_000),
}
"""By partition of the generated year."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease: cards of one node by place, and for how many half seconds each had worked before under this boot."""

    run: Any
    model: Model
    node: str
    cards: tuple[tuple[int, int], ...]

    @property
    def boot(self) -> int:
        """Number of the boot."""
        return int(self.run.start - UP_SINCE) // MONTH_S

    @property
    def boot_id(self) -> str:
        """As the kernel tells it."""
        return f"{self.boot:08x}-0000-0000-0000-{_hex(self.node, 12)}"

    def up(self, epoch: int, halves: int) -> int:
        """Half seconds since UP_SINCE at a moment."""
        return 2 * (epoch - UP_SINCE) + halves

    @property
    def opened(self) -> int:
        """When the prolog ran, as all that follows in half seconds."""
        return self.up(self.run.start, OPENS)

    @property
    def closed(self) -> int:
        """When the epilog ran."""
        return self.up(self.run.end, CLOSES)

    @property
    def reads(self) -> tuple[int, int]:
        """When the counters were read."""
        return self.up(self.run.start, FIRST_READ), self.up(self.run.end, LAST_READ)

    def uuid(self, place: int) -> str:
        """Of a card of the node."""
        return (
            f"{'MIG' if self.model.mig_profile else 'GPU'}-{_hex(self.node, 8)}-0000-0000-0000-{place:012x}"
        )

    def counters(self, side: int) -> Iterator[tuple[int, int, dict[str, int | None]]]:
        """Of each card at the first (0) or the last (1) read: its place, the moment, and what was read."""
        at = self.reads[side]
        for place, worked in self.cards:
            yield place, at, self.model.counters(at, worked + side * (self.reads[1] - self.reads[0]))


def _hex(text: str, digits: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=digits // 2).hexdigest()


def wall_ns(halves: int) -> int:
    """The node's clock."""
    return UP_SINCE * S + halves * HALF


def leases(connection: Connection, partition: str) -> Iterator[Held]:
    """What the runs of a partition held, in the order of their starts."""
    model, run = MODELS[partition], models.job_run.c
    tres = models.allocation.c.alloc_tres
    query = (
        select(run.id, run.job_id_raw, run.start, run.end, run.uid, run.user, run.account, run.partition,
               run.node_list, tres)
        .join_from(models.job_run, models.allocation)
        .where(run.partition == partition, run.end - run.start >= SHORTEST_S)
        .order_by(run.start, run.id)
    )  # fmt: skip
    nodes = _Cached(expand)
    gpus = _Cached(lambda text: next(g.count for g in parse_tres(text).gres if g.type is None))
    free: dict[str, list[int]] = {}
    worked: dict[tuple[str, int], tuple[int, int]] = {}
    handed = 0
    for one in connection.execute(query).all():
        names = nodes[one.node_list]
        for node in names:
            until = free.setdefault(node, [0] * model.on_node)
            places = sorted(range(model.on_node), key=until.__getitem__)[: gpus[one.alloc_tres] // len(names)]
            held = Held(one, model, node, ())
            first, last = held.reads
            cards = []
            for place in sorted(places):
                handed += 1
                if until[place] > one.start:
                    raise SystemExit(f"{node} has no card left for job {one.job_id_raw}")
                boot, before = worked.get((node, place), (-1, 0))
                if boot != held.boot:
                    before = 0
                elif handed % OUTSIDE == 0 and one.start - until[place] > SHORTEST_S:
                    before += 2 * SHORTEST_S
                worked[node, place] = (held.boot, before + last - first)
                until[place] = one.end
                cards.append((place, before))
            yield replace(held, cards=tuple(cards))


class _Cached(dict[str, Any]):
    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, text: str) -> Any:
        found = self[text] = self._work(text)
        return found


# The spool file itself


def write_spool(folder: Path, held: Held) -> None:
    """Write and seal the file of a lease."""
    run, begin, end = held.run, held.opened, held.closed
    path = folder / "open"
    said = {
        "job_id": str(run.job_id_raw), "moment": str(begin * 50), "boot_id": held.boot_id, "cluster": CLUSTER,
        "opened_at": repr(wall_ns(begin) / S), "node": held.node, "uid": str(run.uid), "user": run.user,
        "account": run.account, "partition": run.partition, "start_time": str(run.start),
    }  # fmt: skip
    meta = {
        "part": 0, "from_ns": begin * HALF, "from_wall_ns": wall_ns(begin), "interval_ms": STEP_S * 1000,
        "version": "0.1.0", "attribution": "uuid", "driver_version": DRIVER,
    }  # fmt: skip
    devices = [held.model.device(held.uuid(place), place) for place, _ in held.cards]
    writer = SpoolWriter.create(path, meta | {f"lease.{k}": v for k, v in said.items()}, devices)
    columns = dict.fromkeys((device.uuid for device in devices), _samples(held))
    sides = zip((0, 1), ("start", "end"), strict=True)
    counters = [
        CounterMoment(moment, at * HALF, TOOK_NS, wall_ns(at), held.uuid(place), _all(values))
        for side, moment in sides
        for place, at, values in held.counters(side)
    ]
    ended = {"to_ns": end * HALF, "to_wall_ns": wall_ns(end), "closed": "end"}
    chunk = ChunkRows(SAMPLE, begin * HALF, end * HALF, columns)
    clock = [(begin * HALF, wall_ns(begin))]
    writer.write(Batch(chunks=[chunk], counters=counters, clock=clock, meta=ended))
    writer.finish()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(folder / f"{_stem(held)}.{digest}.spool")


def _stem(held: Held) -> str:
    return f"{CLUSTER}_{held.node}_{held.run.job_id_raw}_{held.opened * 50}"


_NOT_READ: dict[str, int | None] = dict.fromkeys(COUNTER_NAMES)


def _all(values: Mapping[str, int | None]) -> dict[str, int | None]:
    return {**_NOT_READ, **values}


def _sample_times_ms(held: Held) -> range:
    """A moment after the begin, and then every step until after the end."""
    first = held.opened * 500 + 100
    return range(first, held.closed * 500 + STEP_S * 1000, STEP_S * 1000)


def _samples(held: Held) -> list[list[int | None]]:
    times = _sample_times_ms(held)
    told = {
        "utilization_pct": held.model.utilization_pct,
        "power_mw": held.model.power_mw,
        "sm_clock_mhz": held.model.clock_mhz,
        "memory_used_bytes": 8 << 30,
        "process_count": 1,
    }
    columns: list[list[int | None]] = [list(times), [UP_SINCE * 1000] * len(times)]
    return [*columns, *([told.get(name)] * len(times) for name in SAMPLE_NAMES)]


# The rows that its import leaves


class Filler:
    """Rows of one partition, made from those that the import of its first lease left."""

    def __init__(self, connection: Connection, ids: Ids, pattern: Held) -> None:
        self._connection, self._ids, self._pattern = connection, ids, pattern
        self._of = {"lease": self._row(models.lease, job_id_raw=pattern.run.job_id_raw, node=pattern.node)}
        lease_id = self._of["lease"]["id"]
        self._of["spool_file"] = self._row(models.spool_file, lease_id=lease_id)
        for table in (models.lease_device, models.counter_read, models.device_ends):
            self._of[table.name] = self._row(table, spool_id=self._of["spool_file"]["id"])
        for table in (models.run_cycles, models.job_summary):
            self._of[table.name] = self._row(table, run_id=pattern.run.id)
        self._card = json.loads(self._text(self._of["device_ends"]["card_id"]))
        self._cards: dict[tuple[str, str], int] = {}
        self._cycles: dict[int, dict[int, list[int]]] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self._of}
        self._kinds: dict[Kind, int] = {}
        self._run: list[Held] = []
        self._count = 0

    def _row(self, table: Table, **where: Any) -> dict[str, Any]:
        query = select(table).where(*(table.c[name] == value for name, value in where.items()))
        row = self._connection.execute(query).mappings().first()
        if row is None:
            raise SystemExit(f"the import left no row in {table.name}")
        return dict(row)

    def _text(self, number: int) -> str:
        query = select(models.interned.c.text).where(models.interned.c.id == number)
        return str(self._connection.execute(query).scalar_one())

    def add(self, held: Held) -> None:
        """Take up a lease; those of a run come one after the other."""
        if self._run and self._run[0].run.id != held.run.id:
            self._end_run()
        self._run.append(held)
        (lease_id,) = self._ids.take(self._connection, models.lease)
        (spool_id,) = self._ids.take(self._connection, models.spool_file)
        self._lease(held, lease_id, spool_id)
        self._devices(held, lease_id, spool_id)
        self._count += 1

    def _put(self, name: str, /, **values: Any) -> None:
        self._rows[name].append(values)

    def _lease(self, held: Held, lease_id: int, spool_id: int) -> None:
        run, stem = held.run, _stem(held)
        digest = hashlib.sha256(stem.encode())
        closed_at = -(-wall_ns(held.closed) // S)
        span_ms = (held.closed - held.opened) * 500 * len(held.cards)
        self._put(
            "lease", id=lease_id, digest=digest.digest()[:16], node=held.node, job_id_raw=run.job_id_raw,
            boot_id=held.boot_id, moment=held.opened * 50, start_time=run.start, uid=run.uid, user=run.user,
            account=run.account, opened_at=run.start, seen_until=closed_at, closed_at=closed_at,
            device_count=len(held.cards), covered_ms=span_ms, run_id=run.id,
        )  # fmt: skip
        self._put(
            "spool_file", id=spool_id, lease_id=lease_id, digest=digest.hexdigest(),
            name=f"{stem}.{digest.hexdigest()}.spool", from_ns=held.opened * HALF, to_ns=held.closed * HALF,
            from_at=run.start, to_at=closed_at,
        )  # fmt: skip

    def _devices(self, held: Held, lease_id: int, spool_id: int) -> None:
        span_ms = (held.closed - held.opened) * 500
        samples = len(_sample_times_ms(held))
        model = held.model
        both = zip(held.counters(0), held.counters(1), strict=True)
        for number, ((place, first, began), (_, last, ended)) in enumerate(both, 1):
            uuid = held.uuid(place)
            low, high = began.get("energy_mj"), ended.get("energy_mj")
            known = low is not None and high is not None
            device = model.device(uuid, place)
            self._put(
                "lease_device", spool_id=spool_id, number=number, uuid=uuid, index=place, minor=place,
                pci=device.pci, covered_ms=span_ms, samples=samples,
                utilization_ms=span_ms if known else 0,
                utilization_pct_ms=span_ms * (model.utilization_pct or 0),
                energy_mj=high - low if known else None, energy_first_mj=low, energy_last_mj=high,
                power_mj=None if model.power_mw is None else model.power_mw * span_ms // 1000,
            )  # fmt: skip
            for at, values, moment, place_in_file in (
                (first, began, "start", number - 1),
                (last, ended, "end", number - 1 + len(held.cards)),
            ):
                self._put(
                    "counter_read", spool_id=spool_id, position=place_in_file, number=number, moment=moment,
                    mono_ns=at * HALF, wall_ns=wall_ns(at), **_all(values),
                )  # fmt: skip
            self._put(
                "device_ends", spool_id=spool_id, number=number, lease_id=lease_id,
                card_id=self._card_id(held.boot_id, uuid), held_from_ns=held.opened * HALF,
                held_to_ns=held.closed * HALF, first_ns=first * HALF, last_ns=last * HALF,
                first_active=began.get("gpm_sm_cycles_active"), last_active=ended.get("gpm_sm_cycles_active"),
                first_energy=low, last_energy=high,
            )  # fmt: skip

    def _card_id(self, boot_id: str, uuid: str) -> int:
        key = boot_id, uuid
        if key not in self._cards:
            text = json.dumps({**self._card, "boot_id": boot_id, "uuid": uuid}, sort_keys=True)
            self._cards[key] = intern(self._connection, self._ids, text)
        return self._cards[key]

    def _end_run(self) -> None:
        """What is worked out of all leases of a run."""
        run, devices = self._run[0].run, sum(len(held.cards) for held in self._run)
        sums: dict[int, list[int]] = {}
        for held in self._run:
            for kind_id, each in self._proven(held).items():
                total = sums.setdefault(kind_id, [0] * len(SUMS))
                sums[kind_id] = [a + b * len(held.cards) for a, b in zip(total, each, strict=True)]
        for kind_id, total in sums.items():
            self._put("run_cycles", run_id=run.id, kind_id=kind_id, **dict(zip(SUMS, total, strict=True)))
        model, closed_at = self._run[0].model, -(-wall_ns(self._run[0].closed) // S)
        each_ms = (self._run[0].closed - self._run[0].opened) * 500
        first, last = self._run[0].reads
        power = model.power_mw
        self._put(
            "job_summary", run_id=run.id, leases=len(self._run), nodes=len(self._run), gpus=devices,
            lease_end=closed_at + 2, covered_ms=each_ms * devices,
            utilization_ms=0 if power is None else each_ms * devices,
            utilization_pct_ms=each_ms * devices * (model.utilization_pct or 0),
            energy_mj=None if power is None else (last - first) * (power + 10_000) // 2 * devices,
        )  # fmt: skip
        self._run.clear()

    def _proven(self, held: Held) -> dict[int, list[int]]:
        """Sums of one of its cards by kind: the same for all runs of one length."""
        length = held.run.end - held.run.start
        if length not in self._cycles:
            found = self._cycles[length] = {}
            for one in stretches(_trail(held), held.run.start, -(-wall_ns(held.closed) // S) - 2):
                total = found.setdefault(self._kind_id(one.kind), [0] * len(SUMS))
                c = one.cycles
                amounts = (
                    one.seconds,
                    c.elapsed,
                    c.active,
                    c.tensor,
                    c.dmma,
                    c.vector,
                    c.vector_fp,
                    one.busy_ms,
                )
                total[:] = [a + b for a, b in zip(total, amounts, strict=True)]
        return self._cycles[length]

    def _kind_id(self, kind: Kind) -> int:
        if kind not in self._kinds:
            text = json.dumps(asdict(kind), sort_keys=True)
            self._kinds[kind] = intern(self._connection, self._ids, text)
        return self._kinds[kind]

    @property
    def waiting(self) -> int:
        """Leases whose rows have not been inserted."""
        return self._count

    def flush(self) -> None:
        """Insert what has come together."""
        if self._run:
            self._end_run()
        for name, rows in self._rows.items():
            if rows:
                same = {column: [value] * len(rows) for column, value in self._of[name].items()}
                changed = {column: [row[column] for row in rows] for column in rows[0]}
                insert_columns(self._connection, models.metadata.tables[name], same | changed)
            rows.clear()
        self._count = 0


def _trail(held: Held) -> Trail:
    model, (place, _) = held.model, held.cards[0]
    edges = [held.opened * HALF, *(at * HALF for at in held.reads), held.closed * HALF]
    sampled_from_ms = _sample_times_ms(held)[0]
    witnesses = []
    for first, last in ((edges[0], edges[1] + TOOK_NS), (edges[1], edges[2] + TOOK_NS), (edges[2], edges[3])):
        sampled_ms = last // MS - max(sampled_from_ms, first // MS)
        clock = sampled_ms * model.clock_mhz
        told = (model.utilization_pct, model.power_mw, 1)
        witnesses.append(Witness(first, last, sampled_ms, clock, *told))
    reads = tuple(
        Read(at * HALF, TOOK_NS, DRIVER, tuple(values.get(name) for name in COUNTER_NAMES))
        for side in (0, 1)
        for _, at, values in list(held.counters(side))[:1]
    )
    return Trail(
        held.node, held.uuid(place), model.name, model.mig_profile, model.sm_count, model.clock_max_mhz,
        model.power_limit_mw, UP_SINCE * S, reads, tuple(witnesses), (),
    )  # fmt: skip


def fill(store: Store) -> int:
    """Put leases and counters into a store of a generated year; how many leases."""
    count = 0
    for partition in MODELS:
        with store.reading() as connection:
            of_runs = groupby(leases(connection, partition), lambda held: held.run.id)
            pattern = list(next(of_runs, (None, ()))[1])
        if not pattern:
            continue
        with TemporaryDirectory() as outbox:
            for held in pattern:
                write_spool(Path(outbox), held)
            import_spools(store, Path(outbox))
        with store.writing() as connection:
            filler = Filler(connection, Ids(), pattern[0])
            for held in leases(connection, partition):
                count += 1
                if held.run.id == pattern[0].run.id:
                    continue
                if filler.waiting >= AT_ONCE and held.node == expand(held.run.node_list)[0]:
                    filler.flush()
                filler.add(held)
            filler.flush()
    return count


def write_all(store: Store, folder: Path) -> int:
    """Write the spool file of each lease; how many."""
    count = 0
    with store.reading() as connection:
        for partition in MODELS:
            for held in leases(connection, partition):
                write_spool(folder, held)
                count += 1
    return count


def main() -> None:
    """Fill, or write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", help="holds the accounting of a generated year")
    parser.add_argument("spools", nargs="?", type=Path, help="an empty folder to write spool files into")
    given = parser.parse_args()
    store = open_store(given.store)
    with without_cycles():
        count = fill(store) if given.spools is None else write_all(store, given.spools)
    store.close()
    print(f"{count:,} leases")


if __name__ == "__main__":
    main()
