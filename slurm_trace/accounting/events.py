"""Node and cluster events: when a node was down, and which TRES the cluster registered when.

Read from `sacctmgr show event`, live or from a file. sacctmgr has no delimiter but `|` and does not escape it; only
the column Reason is free text, so that whatever a line has too much belongs there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from typing import BinaryIO

from slurm_trace.accounting.records import RejectedRow
from slurm_trace.accounting.times import TimeReader
from slurm_trace.errors import InputProblem

COLUMNS = ("Cluster", "NodeName", "TimeStart", "TimeEnd", "State", "TRES", "User", "Reason")
REGISTERED = "cluster registered tres"
_SPACE = re.compile(r"\s")
_REMEDY = f"write it with `sacctmgr -P show event all_time format={','.join(COLUMNS)}`"


@dataclass(frozen=True, slots=True)
class Event:
    """One row of `sacctmgr show event`.

    Attributes:
        node: Name of the node; "" for an event of the whole cluster.
        start: UTC epoch seconds.
        end: None while it lasts.
        tres: TRES of the node, or those the cluster registered; None if the source has no such column.
    """

    cluster: str
    node: str
    start: int
    end: int | None
    state: str
    reason: str
    tres: str | None
    user: str


@dataclass(slots=True)
class Events:
    """What an event source held: read = events + rejected."""

    events: list[Event] = field(default_factory=list)
    rejected: list[RejectedRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def first_seen(self) -> int | None:
        """When the cluster first registered; None if no such event is kept."""
        return min((e.start for e in self.events if e.reason.lower() == REGISTERED), default=None)


def read_events(stream: BinaryIO, cluster: str | None, zone: tzinfo | None, name: str = "input") -> Events:
    """Events from a file written by `sacctmgr -P show event` (or -p), its columns in any order.

    Args:
        stream: The file.
        cluster: Cluster of rows that name none.
        zone: Zone of its times; None reads them as UTC and warns.
        name: Name of the file in messages.

    Raises:
        InputProblem: It is no such file.
    """
    found = read_event_lines(stream, cluster, zone or UTC, name)
    if zone is None and found.events:
        found.warnings.append(f"{name}: event times read as UTC; give the zone with --tz if they are local")
    return found


def event_call(cluster: str) -> list[str]:
    """The command that prints all events of a cluster."""
    return [
        "sacctmgr",
        "--readonly",
        "--parsable2",
        "show",
        "event",
        "all_time",
        f"clusters={cluster}",
        f"format={','.join(COLUMNS)}",
    ]


def _layout(header: bytes, name: str) -> list[str]:
    columns = [
        _SPACE.sub("", column).lower()
        for column in header.decode("utf-8", "replace").rstrip("\r\n").split("|")
    ]
    if not {"nodename", "timestart", "timeend"} <= set(columns):
        raise InputProblem(f"{name}: line 1: no output of `sacctmgr show event`; {_REMEDY}")
    return columns


def read_event_lines(lines: Iterable[bytes], cluster: str | None, zone: tzinfo, name: str) -> Events:
    """Events from lines, see read_events."""
    numbered = enumerate(lines, start=1)
    columns = _layout(next(numbered, (1, b""))[1], name)
    reader = TimeReader(zone)
    found = Events()
    for number, raw in numbered:
        line = raw.rstrip(b"\r\n")
        if not line.strip():
            continue
        if b"|" not in line and found.events and columns[-1] == "reason":
            found.events[-1] = _continued(found.events[-1], line)
            continue
        try:
            found.events.append(_event(_cells(line.decode("utf-8", "replace"), columns), cluster, reader))
        except ValueError as error:
            found.rejected.append(RejectedRow(number, f"{error}; {_REMEDY}", line))
    return found


def _continued(event: Event, line: bytes) -> Event:
    """The event whose reason held a newline, the rest of it added."""
    return replace(event, reason=f"{event.reason} {line.decode('utf-8', 'replace').strip()}")


def _cells(line: str, columns: list[str]) -> dict[str, str]:
    """Cells by column; what there is too much belongs to the one column of free text."""
    cells = line.split("|")
    extra = len(cells) - len(columns)
    if extra < 0:
        raise ValueError(f"{len(cells)} columns in place of {len(columns)}")
    if extra and "reason" in columns:
        at = columns.index("reason")
        cells[at : at + extra + 1] = ["|".join(cells[at : at + extra + 1])]
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} columns in place of {len(columns)}")
    return dict(zip(columns, cells, strict=True))


def _event(cells: dict[str, str], cluster: str | None, reader: TimeReader) -> Event:
    start, end = reader.read(cells["timestart"]), reader.read(cells["timeend"])
    where = cells.get("cluster") or cluster
    if start.earliest is None:
        raise ValueError("no TimeStart")
    if where is None:
        raise ValueError("no cluster in the row, name it with --cluster")
    # A clock was set back in between: when it ended is not known.
    backwards = end.latest is not None and end.latest < start.earliest
    return Event(
        cluster=where,
        node=cells["nodename"].strip(),
        start=start.earliest,
        end=None if backwards else end.latest,
        state=cells.get("state", "").strip(),
        reason=cells.get("reason", "").strip(),
        tres=cells["tres"].strip() if "tres" in cells else None,
        user=cells.get("user", "").strip(),
    )
