"""A year of accounting of an invented GPU centre: 400 users, 60 accounts, the same bytes for the same seed.

    python3 examples/generate.py --jobs 100000 --out year   # sacct.txt, events.txt and site.toml in year/
    python3 examples/generate.py --jobs 100000 --out -      # the accounting alone, on stdout

Every GPU is handed out to one job at a time, so the records never claim more than the hardware has. A few
single jobs and two chains of jobs, each of one user (`LARGE`, `CHAINS`), come near or pass 1e23 operations.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path

CLUSTER = "meridian"
USERS = 400
ACCOUNTS = 60
YEAR_START = 1_735_689_600  # 2025-01-01T00:00:00Z
YEAR_END = 1_767_225_600  # 2026-01-01T00:00:00Z, the moment of the export
EPOCH = datetime(1970, 1, 1)  # sacct prints local times without a zone; here they are UTC
DAY = 86_400

COLUMNS = (
    "JobID|JobIDRaw|Cluster|User|UID|Account|Partition|QOS|State|ExitCode|Submit|Eligible|Start|End|Elapsed|ElapsedRaw|"
    "Suspended|Timelimit|TimelimitRaw|NNodes|NCPUS|ReqTRES|AllocTRES|NodeList|Restarts|WorkDir|JobName"
)


@dataclass(frozen=True, slots=True)
class Pool:
    """A partition of equal nodes.

    Attributes:
        slots: What one node hands out: GPUs, MIG slices, or quarters of sixteen cores on a node without GPUs.
        cpus: CPUs of one slot.
        gres: Type of a slot as AllocTRES names it; "" for a node without GPUs.
        share: Part of all jobs that goes here.
        shapes: (nodes, slots a node, weight) of what people ask for.
        gpus: Cards in one node.
    """

    name: str
    prefix: str
    nodes: int
    slots: int
    cpus: int
    gres: str
    share: float
    shapes: tuple[tuple[int, int, float], ...]
    gpus: int
    sku: str
    cpu_model: str
    mig: str = ""

    @property
    def width(self) -> int:
        """Digits of a node's number."""
        return len(str(self.nodes))

    @property
    def hosts(self) -> str:
        """All nodes as a hostlist."""
        return f"{self.prefix}[{1:0{self.width}d}-{self.nodes}]"


_ONE_TO_EIGHT = ((1, 1, 50.0), (1, 2, 18.0), (1, 4, 16.0), (1, 8, 12.0), (2, 8, 3.0), (4, 8, 1.0))
POOLS = (
    Pool("h100", "hgx", 40, 8, 12, "h100", 0.14, (*_ONE_TO_EIGHT, (8, 8, 0.1)),
         gpus=8, sku="NVIDIA H100 80GB HBM3", cpu_model="Intel(R) Xeon(R) Platinum 8468"),
    Pool("a100", "dgx", 24, 8, 16, "a100", 0.22, _ONE_TO_EIGHT,
         gpus=8, sku="NVIDIA A100-SXM4-80GB", cpu_model="AMD EPYC 7742 64-Core Processor"),
    Pool("mig", "mig", 4, 56, 2, "1g.10gb", 0.12, ((1, 1, 85.0), (1, 2, 15.0)),
         gpus=8, sku="NVIDIA A100-SXM4-80GB", cpu_model="AMD EPYC 7742 64-Core Processor", mig="7x1g.10gb"),
    Pool("v100", "gpu", 36, 4, 10, "v100", 0.20, ((1, 1, 60.0), (1, 2, 20.0), (1, 4, 16.0), (2, 4, 4.0)),
         gpus=4, sku="Tesla V100-SXM2-32GB", cpu_model="Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz"),
    Pool("l40s", "viz", 16, 8, 8, "l40s", 0.12, ((1, 1, 70.0), (1, 2, 20.0), (1, 4, 8.0), (1, 8, 2.0)),
         gpus=8, sku="NVIDIA L40S", cpu_model="AMD EPYC 9334 32-Core Processor"),
    Pool("cpu", "c", 120, 32, 4, "", 0.20, ((1, 1, 50.0), (1, 8, 20.0), (1, 32, 20.0), (4, 32, 10.0)),
         gpus=0, sku="", cpu_model="AMD EPYC 7763 64-Core Processor"),
)  # fmt: skip

_LIMITS_MIN = (60, 240, 720, 1440, 2880, 4320)
_TASKS = ("train", "finetune", "eval", "sweep", "preproc", "infer",
          "md", "dock", "cfd", "tokenize", "ablation", "notebook")  # fmt: skip
_TOPICS = ("resnet", "bert", "llama", "unet", "gpt", "protein",
           "climate", "speech", "größe", "gnn", "diffusion", "rl")  # fmt: skip
_HOSTILE = ("<script>alert('job')</script>", '"><img src=x onerror=alert(1)>', "=HYPERLINK(0)", "a,b;c & d")
_ENDINGS = (("COMPLETED", "0:0", 0.78), ("FAILED", "1:0", 0.11), ("CANCELLED by {uid}", "0:0", 0.07),
            ("OUT_OF_MEMORY", "0:125", 0.025), ("PREEMPTED", "0:0", 0.01), ("NODE_FAIL", "1:0", 0.001),
            ("REQUEUED", "0:0", 0.004))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Campaign:
    """What one user submits again and again: the same name, folder and shape."""

    user: str
    uid: int
    account: str
    pool: int
    nodes: int
    slots: int
    limit_min: int
    median_s: float
    name: str
    work_dir: str
    requested: str
    allocated: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A submission that is placed by hand, so that the year has something to find."""

    day: float
    campaign: Campaign
    run_s: int
    ending: str = "COMPLETED"


@dataclass(frozen=True, slots=True)
class Run:
    """One row: a run of a job, or a submission that never ran."""

    campaign: Campaign
    submit: int
    shown_id: str
    raw_id: int
    state: str
    code: str = "0:0"
    start: int | None = None
    end: int | None = None
    run_s: int = 0
    hosts: str = "None assigned"
    restarts: int = 0

    def line(self) -> str:
        """The row as sacct prints it."""
        c, pool, started = self.campaign, POOLS[self.campaign.pool], self.start is not None
        submit = _stamp(self.submit)
        cpus = c.nodes * c.slots * pool.cpus if started else 0
        return (
            f"{self.shown_id}|{self.raw_id}|{CLUSTER}|{c.user}|{c.uid}|{c.account}|{pool.name}|normal|{self.state}|"
            f"{self.code}|{submit}|{submit}|{_stamp(self.start)}|{_stamp(self.end)}|{_clock(self.run_s)}|{self.run_s}|"
            f"00:00:00|{_clock(c.limit_min * 60)}|{c.limit_min}|{c.nodes}|{cpus}|{c.requested}|"
            f"{c.allocated if started else ''}|{self.hosts}|{self.restarts}|{c.work_dir}|{c.name}"
        )


# (user number, GPU pool, nodes, run time in hours, day of submission, ending, name)
LARGE = (
    (3, 0, 8, 120.0, 41.2, "COMPLETED", "pretrain-13b"),
    (3, 0, 8, 91.0, 83.6, "COMPLETED", "pretrain-13b-v2"),
    (11, 0, 16, 216.0, 201.4, "CANCELLED by {uid}", "foundation-70b"),
    (11, 0, 16, 31.0, 215.1, "NODE_FAIL", "foundation-70b-resume"),
    (27, 0, 4, 160.0, 120.9, "TIMEOUT", "vision-giant"),
    (52, 1, 8, 140.0, 300.3, "COMPLETED", "genome-lm"),
)
# (user number, GPU pool, nodes, run time in hours, links, first day, hours between, name)
CHAINS = (
    (38, 0, 8, 10.0, 12, 150.5, 13.0, "cont-pretrain"),
    (71, 1, 2, 24.0, 34, 230.2, 27.0, "slow-and-steady"),
)


def _tres(pool: Pool, nodes: int, slots: int) -> tuple[str, str]:
    """(requested, allocated) as sacct prints them: the type shows in what was allocated only."""
    cpus, total = nodes * slots * pool.cpus, nodes * slots
    tail = f"mem={cpus * 8}G,node={nodes}"
    if not pool.gres:
        return (f"billing={cpus},cpu={cpus},{tail}",) * 2
    asked = f"billing={cpus},cpu={cpus},gres/gpu={total},{tail}"
    return asked, f"billing={cpus},cpu={cpus},gres/gpu:{pool.gres}={total},gres/gpu={total},{tail}"


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, DAY)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def _stamp(epoch: int | None) -> str:
    return "Unknown" if epoch is None else (EPOCH + timedelta(seconds=epoch)).isoformat()


class Centre:
    """The centre and its year. `rows()` may be read once; `events` is complete after that."""

    def __init__(self, jobs: int, seed: int = 1) -> None:
        self.jobs = jobs
        self.events: list[tuple[int, int, str]] = []
        self._random = random.Random(seed)
        self._next_id = 1_000_000
        self._free = [[[YEAR_START] * pool.slots for _ in range(pool.nodes)] for pool in POOLS]
        self._users = self._people()
        self._campaigns = [c for user in range(USERS) for c in self._campaigns_of(user)]
        self._weights = list(accumulate(self._popularity(c) for c in self._campaigns))
        self._endings = list(accumulate(weight for _, _, weight in _ENDINGS))

    def rows(self) -> Iterator[str]:
        """The export, line by line, header first, without line ends."""
        yield COLUMNS
        plans = sorted([*self._large(), *self._chains(), *self._never_closed()], key=lambda plan: -plan.day)
        left = self.jobs
        while left > 0:
            submit = YEAR_START + int((YEAR_END - YEAR_START) * (1 - left / self.jobs))
            if plans and YEAR_START + plans[-1].day * DAY <= submit:
                runs = [self._placed(plans.pop())]
            else:
                runs = self._submission(submit + int(self._random.random() * 600))[:left]
            left -= len(runs)
            yield from (run.line() for run in runs)

    def events_text(self) -> str:
        """Node and TRES events in the form of `sacctmgr -P show event`."""
        lines = ["Cluster|NodeName|TimeStart|TimeEnd|State|TRES|User|Reason"]
        types = ",".join(f"gres/gpu:{pool.gres}={pool.nodes * pool.slots}" for pool in POOLS if pool.gres)
        gpus = sum(pool.nodes * pool.slots for pool in POOLS if pool.gres)
        cpus = sum(pool.nodes * pool.slots * pool.cpus for pool in POOLS)
        registered = f"billing={cpus},cpu={cpus},{types},gres/gpu={gpus},node={sum(p.nodes for p in POOLS)}"
        lines.append(
            f"{CLUSTER}||{_stamp(YEAR_START - 90 * DAY)}|Unknown||{registered}||Cluster Registered TRES"
        )
        lines += [
            f"{CLUSTER}|{node}|{_stamp(start)}|{_stamp(end)}|DOWN||slurm(64030)|Not responding"
            for start, end, node in sorted(self.events)
        ]
        return "\n".join(lines) + "\n"

    def _people(self) -> list[tuple[str, int, str]]:
        starts, ends = (
            ("ba", "ka", "li", "mo", "ne", "ri", "su", "ta", "vo", "ze"),
            ("d", "k", "l", "n", "r", "s", "t", "x"),
        )
        names = [a + b + c for a in starts for b in starts for c in ends]
        self._random.shuffle(names)
        return [
            (names[i], 20_000 + i, f"acc{int(ACCOUNTS * self._random.random() ** 1.6):02d}")
            for i in range(USERS)
        ]

    def _campaign(
        self, user: int, pool: int, nodes: int, slots: int, name: str, limit_min: int, median_s: float
    ) -> Campaign:
        login, uid, account = self._users[user]
        folder = (
            f"/scratch/{account}/{login}/{name.split('-')[0]}"
            if name.isprintable() and "<" not in name
            else "/"
        )
        return Campaign(
            login,
            uid,
            account,
            pool,
            nodes,
            slots,
            limit_min,
            median_s,
            name,
            folder,
            *_tres(POOLS[pool], nodes, slots),
        )

    def _campaigns_of(self, user: int) -> Iterator[Campaign]:
        rng = self._random
        for _ in range(1 + int(rng.random() * 4)):
            (pool,) = rng.choices(range(len(POOLS)), [p.share for p in POOLS])
            shapes = POOLS[pool].shapes
            ((nodes, slots, _),) = rng.choices(shapes, [weight for _, _, weight in shapes])
            name = f"{rng.choice(_TASKS)}-{rng.choice(_TOPICS)}-{rng.randrange(100):02d}"
            if rng.random() < 0.01:
                name = rng.choice(_HOSTILE)
            yield self._campaign(
                user, pool, nodes, slots, name, rng.choice(_LIMITS_MIN), 3600 * rng.lognormvariate(0, 0.7)
            )

    def _popularity(self, campaign: Campaign) -> float:
        """Few people submit most; the large shapes are submitted seldom."""
        size = campaign.nodes * campaign.slots / POOLS[campaign.pool].slots
        return float(self._random.paretovariate(1.4)) / (1 + 4 * size)

    def _large(self) -> Iterator[Planned]:
        for user, pool, nodes, hours, day, ending, name in LARGE:
            limit_min = int(hours * 60) if ending == "TIMEOUT" else 20_160
            campaign = self._campaign(user, pool, nodes, POOLS[pool].slots, name, limit_min, 0)
            yield Planned(day, campaign, int(hours * 3600), ending)

    def _chains(self) -> Iterator[Planned]:
        for user, pool, nodes, hours, links, first, step, name in CHAINS:
            campaign = self._campaign(user, pool, nodes, POOLS[pool].slots, name, int(hours * 60) + 30, 0)
            for link in range(links):
                yield Planned(first + link * step / 24, campaign, int(hours * 3600) - 97 * link)

    def _never_closed(self) -> Iterator[Planned]:
        """Runs whose end never reached the accounting database."""
        campaign = self._campaign(90, 3, 1, 4, "lost-run", 1440, 0)
        yield from (Planned(day, campaign, 2 * YEAR_END) for day in (67.0, 188.0))

    def _submission(self, submit: int) -> list[Run]:
        """One submission: a job with its requeues, or an array of tasks."""
        rng = self._random
        campaign = self._campaigns[bisect(self._weights, rng.random() * self._weights[-1])]
        number = self._take_id()
        if rng.random() < 0.012:
            # As in Slurm, a task gets a number of its own when it starts, and the last one keeps the array's.
            others = [self._take_id() for _ in range(1 + int(rng.expovariate(1 / 25)))]
            return [
                self._run(campaign, submit, f"{number}_{i}", raw) for i, raw in enumerate([*others, number])
            ]
        runs = [self._run(campaign, submit, str(number), number)]
        while runs[-1].state in ("REQUEUED", "NODE_FAIL") and runs[-1].end is not None:
            runs.append(self._run(campaign, runs[-1].end, str(number), number, restarts=len(runs)))
        return runs

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _placed(self, plan: Planned) -> Run:
        number = self._take_id()
        submit = YEAR_START + int(plan.day * DAY)
        state = plan.ending.format(uid=plan.campaign.uid)
        return self._started(plan.campaign, submit, str(number), number, plan.run_s, state, "0:0", 0)

    def _run(self, campaign: Campaign, submit: int, shown: str, raw: int, restarts: int = 0) -> Run:
        rng = self._random
        if rng.random() < 0.03:
            gone = min(submit + int(rng.expovariate(1 / 20_000)), YEAR_END - 1)
            return Run(campaign, submit, shown, raw, f"CANCELLED by {campaign.uid}", end=gone)
        run_s = int(campaign.median_s * rng.lognormvariate(0, 1.5))
        if run_s >= campaign.limit_min * 60:
            run_s, state, code = campaign.limit_min * 60 + int(rng.random() * 30), "TIMEOUT", "0:0"
        else:
            state, code, _ = _ENDINGS[bisect(self._endings, rng.random() * self._endings[-1])]
        state = state.format(uid=campaign.uid)
        return self._started(campaign, submit, shown, raw, run_s, state, code, restarts)

    def _started(
        self,
        campaign: Campaign,
        submit: int,
        shown: str,
        raw: int,
        run_s: int,
        state: str,
        code: str,
        restarts: int,
    ) -> Run:
        """Find nodes for a run and hold them; what has not ended by the end of the year is still running."""
        nodes, start = self._nodes_for(campaign, submit + 1 + int(self._random.expovariate(1 / 30)))
        if start >= YEAR_END:
            return Run(campaign, submit, shown, raw, "PENDING")
        end: int | None = start + run_s
        self._hold(campaign, nodes, start + run_s, failed=state == "NODE_FAIL")
        if start + run_s >= YEAR_END:
            end, run_s, state, code = None, YEAR_END - start, "RUNNING", "0:0"
        hosts = _hostlist(POOLS[campaign.pool], nodes)
        return Run(campaign, submit, shown, raw, state, code, start, end, run_s, hosts, restarts)

    def _nodes_for(self, campaign: Campaign, earliest: int) -> tuple[list[int], int]:
        """The best of a few random places, and when it is free."""
        free = self._free[campaign.pool]
        rng, last = self._random, campaign.slots - 1
        best: list[int] = []
        best_start = 0
        for _ in range(4):
            if campaign.nodes == 1:
                nodes = [int(rng.random() * len(free))]
                start = free[nodes[0]][last]
            else:
                skip = rng.randrange(4) == 0
                first = int(rng.random() * (len(free) - campaign.nodes + (not skip)))
                nodes = list(range(first, first + campaign.nodes))
                if skip:
                    nodes[-1] += 1
                start = max(free[n][last] for n in nodes)
            start = max(start, earliest)
            if not best or start < best_start:
                best, best_start = nodes, start
            if start == earliest:
                break
        return best, best_start

    def _hold(self, campaign: Campaign, nodes: list[int], until: int, *, failed: bool) -> None:
        pool, free = POOLS[campaign.pool], self._free[campaign.pool]
        for node in nodes:
            times = free[node]
            times[: campaign.slots] = [until + 2] * campaign.slots
            times.sort()
        if failed and until < YEAR_END:
            node = nodes[-1]
            back = until + 1800 + int(self._random.random() * DAY)
            free[node] = [max(back, time) for time in free[node]]
            self.events.append((until, min(back, YEAR_END - 1), f"{pool.prefix}{node + 1:0{pool.width}d}"))


def _hostlist(pool: Pool, nodes: list[int]) -> str:
    width = pool.width
    if len(nodes) == 1:
        return f"{pool.prefix}{nodes[0] + 1:0{width}d}"
    first, last = nodes[0] + 1, nodes[-1] + 1
    if last - first + 1 == len(nodes):
        return f"{pool.prefix}[{first:0{width}d}-{last:0{width}d}]"
    before = nodes[-2] + 1
    head = f"{first:0{width}d}-{before:0{width}d}" if before > first else f"{first:0{width}d}"
    return f"{pool.prefix}[{head},{last:0{width}d}]"


def site_profile_text() -> str:
    """The site profile (TOML) that belongs to the centre."""
    names = [f'"gres/gpu:{pool.gres}"' for pool in POOLS if pool.gres]
    head = (
        f"[clusters.{CLUSTER}]\n"
        'zone = "UTC"\nkill_wait_s = 30\nunkillable_step_timeout_s = 60\ngres_types = ["gpu"]\n\n'
        f"[[clusters.{CLUSTER}.registered_tres]]\n"
        f'names = ["cpu", "mem", "node", "billing", "gres/gpu", {", ".join(names)}]\n'
    )
    return head + "".join(_node_group(pool) for pool in POOLS)


def _node_group(pool: Pool) -> str:
    facts: dict[str, str | int | bool] = {
        "hosts": pool.hosts,
        "gpus": pool.gpus,
        "sku": pool.sku,
        "mig": pool.mig,
    }
    # A MIG node hands out the CPUs of 56 slices; what is left over is the operating system's.
    facts |= {
        "cpu_model": pool.cpu_model,
        "cores": 128 if pool.mig else pool.slots * pool.cpus,
        "threads_per_core": 1,
    }
    facts |= {"devices_confined": True, "cores_confined": True}
    # Strings, integers and booleans look the same in JSON and in TOML.
    lines = [f"{key} = {json.dumps(value)}" for key, value in facts.items() if value != ""]
    return f"\n[[clusters.{CLUSTER}.nodes]]\n" + "\n".join(lines) + "\n"


def write(folder: Path, jobs: int, seed: int) -> None:
    """Write sacct.txt, events.txt and site.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    centre = Centre(jobs, seed)
    with (folder / "sacct.txt").open("w", encoding="utf-8", newline="\n", buffering=1 << 20) as file:
        file.writelines(f"{line}\n" for line in centre.rows())
    (folder / "events.txt").write_text(centre.events_text(), encoding="utf-8")
    (folder / "site.toml").write_text(site_profile_text(), encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000, help="rows to write (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", default="-", help="folder for the three files, or - for the accounting on stdout"
    )
    options = parser.parse_args()
    if options.out != "-":
        write(Path(options.out), options.jobs, options.seed)
        return
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    sys.stdout.writelines(f"{line}\n" for line in Centre(options.jobs, options.seed).rows())


if __name__ == "__main__":
    main()
