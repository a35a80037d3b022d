"""Columns of sacct: their names over the releases, what they may hold, and the layout of one input."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Lower-case column names of sacct and the field of ours each one fills. A later name replaced an earlier one
#: (`AllocNodes` and `NNodes` both count the nodes; the first is of the allocation alone).
MODELLED: dict[str, str] = {
    "jobid": "job_id",
    "jobidraw": "job_id_raw",
    "sluid": "sluid",
    "dbindex": "db_index",
    "cluster": "cluster",
    "clustername": "cluster",
    "jobname": "name",
    "name": "name",
    "user": "user",
    "username": "user",
    "uid": "uid",
    "account": "account",
    "partition": "partition",
    "partitionname": "partition",
    "state": "state",
    "jobstate": "state",
    "submit": "submit",
    "submittime": "submit",
    "start": "start",
    "starttime": "start",
    "end": "end",
    "endtime": "end",
    "elapsed": "elapsed",
    "elapsedraw": "elapsed_raw",
    "suspended": "suspended",
    "timelimit": "limit",
    "timelimitraw": "limit_raw",
    "allocnodes": "alloc_nodes",
    "nnodes": "node_count",
    "alloccpus": "cpu_count",
    "ncpus": "ncpus",
    "nodelist": "node_list",
    "alloctres": "alloc_tres",
    "allocgres": "alloc_gres",
    "workdir": "work_dir",
}

#: Columns whose text users write: the only ones in which a delimiter or a newline can stand.
FREE_TEXT: frozenset[str] = frozenset(
    {
        "admincomment",
        "comment",
        "constraints",
        "container",
        "extra",
        "jobname",
        "licenses",
        "name",
        "reservation",
        "stderr",
        "stdin",
        "stdout",
        "submitline",
        "systemcomment",
        "wckey",
        "workdir",
    }
)

_WORD = r"[^\s|]*"
_TIME = r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?|\d{9,10}|0|[A-Za-z/()]*)"
_SPAN = r"(?:(?:\d+-)?(?:\d+:)?\d+:\d+(?:\.\d+)?|\d+|INVALID|UNLIMITED|Partition_Limit|)"
_COUNT = r"(?:\d+(?:\.\d+)?[KMGTP]?|)"
_TRES = r"(?:[^,=\s]+=[^,=]*(?:,[^,=\s]+=[^,=]*)*|\(null\)|)"
_JOB = r"\d+(?:_(?:\d+|\[[^\]]*\]?))?(?:\+\d+)?(?:\.\S+)?"

#: What a cell of a column looks like (of free text: how it begins); used to find the columns again in a line that has
#: too many delimiters.
SHAPES: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.ASCII)
    for names, pattern in (
        ("jobid jobidraw", _JOB),
        ("state", r"[A-Z][A-Z_]+\+?(?: by \d+)?"),
        ("submit start end eligible", _TIME),
        (
            "elapsed elapsedraw suspended timelimit timelimitraw cputime cputimeraw totalcpu usercpu systemcpu",
            _SPAN,
        ),
        ("planned reserved plannedcpu plannedcpuraw resvcpu resvcpuraw mincpu avecpu", _SPAN),
        ("nnodes allocnodes alloccpus ncpus reqcpus reqnodes ntasks uid gid associd", _COUNT),
        ("workdir", r"(?:/|$)"),
        ("layout", r"(?:[A-Z][A-Za-z]*(?:,[A-Z][A-Za-z]*)*|)"),
        ("dbindex qosraw priority restarts reservationid wckeyid", r"\d*"),
        ("consumedenergy consumedenergyraw", r"(?:\d+(?:\.\d+)?[KMGTP]?|)"),
        ("exitcode derivedexitcode", r"(?:\d+:\d+|)"),
        ("alloctres reqtres", _TRES),
        (
            "tresusageinave tresusageinmax tresusageintot tresusageinmin tresusageoutave tresusageoutmax",
            _TRES,
        ),
        ("tresusageoutmin tresusageouttot", _TRES),
        ("sluid", r"(?:s[0-9A-Z]{13}|)"),
        ("cluster user account group partition qos mcslabel", _WORD),
        ("reqmem", r"(?:\d+(?:\.\d+)?[KMGTP]?[nc]?|)"),
        ("nodelist", r"(?:[A-Za-z0-9_.\-,\[\]]*|None assigned)"),
    )
    for name in names.split()
}

#: Further columns of sacct 17.11 to 26.05, known so that a header can be told from other text.
_OTHER = frozenset(
    """allocgres associd avecpufreq avediskread avediskwrite avepages averss avevmsize blockid exclusive failednode
    flags gid group maxdiskread maxdiskreadnode maxdiskreadtask maxdiskwrite maxdiskwritenode maxdiskwritetask maxpages
    maxpagesnode maxpagestask maxrss maxrssnode maxrsstask maxvmsize maxvmsizenode maxvmsizetask mincpunode mincputask
    originalsluid oversubscribe qosreq reason reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin reqgres
    reqreservation segmentsize tresusageinmaxnode tresusageinmaxtask tresusageinminnode tresusageinmintask
    tresusageoutmaxnode tresusageoutmaxtask tresusageoutminnode tresusageoutmintask""".split()  # noqa: SIM905
)

KNOWN_COLUMNS: frozenset[str] = frozenset(MODELLED) | FREE_TEXT | frozenset(SHAPES) | _OTHER


@dataclass(frozen=True, slots=True)
class Layout:
    """How the lines of one input are cut into columns.

    Attributes:
        names: Column names as given, in lower case.
        delimiter: What stands between two columns.
        trailing: A delimiter also ends each line (`sacct -p`).
        crlf: Lines end with carriage return and newline.
        columns: Position of each field of ours that the input has.
    """

    names: tuple[str, ...]
    delimiter: str
    trailing: bool = False
    crlf: bool = False
    columns: dict[str, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Pieces that a whole line falls into."""
        return len(self.names) + self.trailing

    @property
    def runs_over(self) -> bool:
        """The last column is free text and nothing marks its end: a newline in it leaves a whole line behind."""
        return not self.trailing and self.names[-1] in FREE_TEXT

    def row(self, pieces: list[str]) -> dict[str, str]:
        """The cells of one line by the names of our fields."""
        return {name: pieces[position] for name, position in self.columns.items()}


def make_layout(names: list[str], delimiter: str, *, trailing: bool, crlf: bool = False) -> Layout:
    """A layout from column names; of two columns for one field the first counts."""
    lowered = tuple(name.strip().lower() for name in names)
    columns: dict[str, int] = {}
    for position, name in enumerate(lowered):
        if name in MODELLED:
            columns.setdefault(MODELLED[name], position)
    return Layout(lowered, delimiter, trailing, crlf, columns)
