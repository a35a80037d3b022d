"""A small world in which the truth is known: jobs on real hardware, and what accounting wrote down about them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.text import read_text
from slurm_trace.assess import Assessment, Request, assess
from slurm_trace.store.engine import open_store
from slurm_trace.store.ingest import ImportInfo, ImportSummary, begin_import

T0 = 1_700_000_000
COLUMNS = (
    "JobID", "JobIDRaw", "Cluster", "Submit", "Start", "End", "Elapsed", "Suspended", "Timelimit", "State",
    "NNodes", "AllocCPUS", "NodeList", "AllocTRES", "User", "Account", "JobName",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What really happened. `stopped_s` is when the last of its processes let go, counted from the start."""

    number: int
    submit: int
    start: int
    end: int
    stopped_s: int
    suspended_s: int
    state: str
    nodes: int
    gpus: int
    gpu_type: str | None
    cpus: int
    flop: int
    user: str = "u1"
    account: str = "a1"
    name: str = "train"

    def row(self, **changes: str) -> dict[str, str]:
        """The row that Slurm would have, with what a fault did to it."""
        elapsed = max(0, self.end - self.start - self.suspended_s)
        gres = ""
        if self.gpus:
            typed = f"gres/gpu:{self.gpu_type}={self.gpus}," if self.gpu_type else ""
            gres = f"{typed}gres/gpu={self.gpus},"
        nodes = f"n[1-{self.nodes}]" if self.nodes > 1 else "n1"
        return {
            "JobID": str(self.number),
            "JobIDRaw": str(self.number),
            "Cluster": "c",
            "Submit": stamp(self.submit),
            "Start": stamp(self.start),
            "End": stamp(self.end),
            "Elapsed": clock(elapsed),
            "Suspended": clock(self.suspended_s),
            "Timelimit": "7-00:00:00",
            "State": self.state,
            "NNodes": str(self.nodes),
            "AllocCPUS": str(self.cpus),
            "NodeList": nodes,
            "AllocTRES": f"billing=1,cpu={self.cpus},{gres}mem=1G,node={self.nodes}",
            "User": self.user,
            "Account": self.account,
            "JobName": self.name,
        } | changes


def stamp(epoch: int) -> str:
    """A time as sacct prints it."""
    return datetime.fromtimestamp(epoch, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def clock(seconds: int) -> str:
    """A duration as sacct prints it."""
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def sacct_text(rows: list[dict[str, str]], without: frozenset[str] = frozenset()) -> bytes:
    """`sacct -P` text; columns that an admin did not ask for are left out."""
    names = [n for n in COLUMNS if n not in without]
    lines = ["|".join(names), *("|".join(row[n] for n in names) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def judge(
    folder: Path, text: bytes, threshold: str = "eu-gpai", **options: object
) -> tuple[ImportSummary, Assessment]:
    """Import text into a new store and put the question."""
    zone = options.pop("zone", UTC)
    profile = options.pop("profile", None)
    store = open_store(str(folder / "store.db"), create=True)
    try:
        with begin_import(store, ImportInfo("file", "world", cluster="c")) as run:
            for block in read_text(
                io.BytesIO(text), ReadOptions(cluster="c", zone=zone, source_name="world")
            ):  # type: ignore[arg-type]
                run.add(block)
            summary = run.finish()
        request = Request(threshold, None, Fraction(5, 100), profile=profile, **options)  # type: ignore[arg-type]
        return summary, assess(store, request)
    finally:
        store.close()
