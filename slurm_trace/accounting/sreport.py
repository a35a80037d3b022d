"""What `sreport cluster AccountUtilizationByUser` and `sreport cluster Utilization` print, as control totals.

slurmdbd sums up every hour what was allocated, apart from the job records and for much longer than these are kept. A
purged or hidden job is missing from `sacct` and still in these sums.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from slurm_trace.accounting.times import parse_moment
from slurm_trace.errors import InputProblem, UsageProblem

WANTED = ("cpu", "gres/gpu")
"""TRES that are compared."""

MOST_DIGITS = 30
"""Of an amount; what any cluster can use has fewer."""

_TITLE = re.compile(r"\S+ Utilization (?P<since>\S+) - (?P<until>\S+)(?: \((?P<secs>[0-9]{1,12}) secs\))?")
_UNIT = re.compile(r"Usage reported in (?P<tres>\S+) (?P<unit>\S.*)")
_UNIT_S = {"Seconds": 1, "Minutes": 60, "Hours": 3600}
_REMEDY = (
    "give what `sreport -P -t seconds -T cpu,gres/gpu cluster AccountUtilizationByUser Start=... End=...` prints, "
    "title lines and all"
)


@dataclass(frozen=True, slots=True)
class ControlTotal:
    """What one cluster allocated of one TRES in a time, according to sreport.

    Attributes:
        since: Begin of the time (epoch).
        until: Its end, exclusive.
        allocated_s: Seconds x count.
        rounded_s: By how much rounding may have raised it; 0 where sreport was asked for seconds.
    """

    cluster: str
    tres: str
    since: int
    until: int
    allocated_s: int
    rounded_s: int


def read_sreport(lines: Iterable[str], zone: tzinfo = UTC, name: str = "sreport") -> list[ControlTotal]:
    """Sum the rows of one or more reports, by report, cluster and TRES.

    Rows of an account hold those of its users and of the accounts below it, so rows of users alone are summed. Trailing
    separators (`-p`) and reports without a TRES column (CPUs only) are read too.

    Args:
        lines: The text.
        zone: Where sreport ran; it prints local times.
        name: For messages.

    Raises:
        InputProblem: The text is no such report, has no use in it, or is not in seconds, minutes or hours.
    """
    totals: dict[tuple[int, str, str], ControlTotal] = {}
    span: tuple[int, int] | None = None
    unit: tuple[str, int] | None = None
    columns: dict[str, int] | None = None
    reports = 0
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text.strip("-"):
            continue
        where = f"{name}:{number}"
        if title := _TITLE.fullmatch(text):
            span, unit, columns, reports = _span(title, zone, where), None, None, reports + 1
        elif found := _UNIT.fullmatch(text):
            unit = (found["tres"], _unit_s(found["unit"], where))
        elif span is None or unit is None:
            raise InputProblem(f"{where}: no title says what time this is; {_REMEDY}")
        elif columns is None:
            columns = {column: n for n, column in enumerate(text.split("|"))}
            if not {"Cluster", "Allocated"} <= set(columns) and not {"Cluster", "Login", "Used"} <= set(
                columns
            ):
                raise InputProblem(f"{where}: neither Used by Login nor Allocated by Cluster; {_REMEDY}")
        else:
            one = _row(text.split("|"), columns, span, unit, where)
            if one is not None:
                key = (reports, one.cluster, one.tres)
                before = totals.get(key, replace(one, allocated_s=0, rounded_s=0))
                totals[key] = replace(
                    one,
                    allocated_s=before.allocated_s + one.allocated_s,
                    rounded_s=before.rounded_s + one.rounded_s,
                )
    if not totals:
        raise InputProblem(f"{name}: no report of {' or '.join(WANTED)} with any use in it; {_REMEDY}")
    return list(totals.values())


def _span(title: re.Match[str], zone: tzinfo, where: str) -> tuple[int, int]:
    try:
        # The end is printed as the last second of the time.
        since, until = parse_moment(title["since"], zone), parse_moment(title["until"], zone) + 1
    except UsageProblem as problem:
        raise InputProblem(f"{where}: {problem}") from None
    if title["secs"] is not None and int(title["secs"]) != until - since:
        raise InputProblem(
            f"{where}: {until - since} s in this zone, {title['secs']} s in sreport's; name its zone with --tz"
        )
    return since, until


def _unit_s(text: str, where: str) -> int:
    if text not in _UNIT_S:
        raise InputProblem(f"{where}: usage in {text[:40]!r}; {_REMEDY}")
    return _UNIT_S[text]


def _row(
    cells: list[str], columns: dict[str, int], span: tuple[int, int], unit: tuple[str, int], where: str
) -> ControlTotal | None:
    if len(cells) <= max(columns.values()):
        raise InputProblem(f"{where}: {len(cells)} columns; {_REMEDY}")
    by_user = "Login" in columns
    tres = (cells[columns["TRES Name"]] if "TRES Name" in columns else unit[0]).strip().lower()
    if tres not in WANTED or (by_user and not cells[columns["Login"]].strip()):
        return None
    amount = cells[columns["Used" if by_user else "Allocated"]].strip()
    if not amount.isdecimal() or not amount.isascii() or len(amount) > MOST_DIGITS:
        raise InputProblem(f"{where}: {amount[:40]!r} is no number of {tres} seconds; {_REMEDY}")
    return ControlTotal(
        cluster=cells[columns["Cluster"]].strip(),
        tres=tres,
        since=span[0],
        until=span[1],
        allocated_s=int(amount) * unit[1],
        rounded_s=unit[1] if unit[1] > 1 else 0,
    )
