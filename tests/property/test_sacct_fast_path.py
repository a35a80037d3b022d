"""The column-wise path of the text reader reads every row exactly as the row-wise path does."""

import io
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_trace.accounting import block_parser
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunBlock
from slurm_trace.accounting.text import read_text

COLUMNS = (
    "JobID",
    "JobIDRaw",
    "Cluster",
    "JobName",
    "User",
    "UID",
    "State",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "ElapsedRaw",
    "Suspended",
    "Timelimit",
    "TimelimitRaw",
    "AllocNodes",
    "NNodes",
    "AllocCPUS",
    "NCPUS",
    "NodeList",
    "AllocTRES",
    "AllocGRES",
    "WorkDir",
)

clocks = st.builds(
    "2025-{:02}-{:02}{}{:02}:{:02}:{:02}".format,
    st.sampled_from([3, 4, 10, 7]),
    st.sampled_from([5, 26, 30, 31]),
    st.sampled_from("TTTT "),
    st.integers(0, 24),
    st.integers(0, 60),
    st.integers(0, 60),
)
times = st.one_of(
    clocks,
    st.builds("{}{}".format, clocks, st.sampled_from(["Z", "+0100", "-03:30", "+9900"])),
    st.integers(946_684_790, 1_900_000_000).map(str),
    st.sampled_from(
        ["Unknown", "None", "", "NA", "0", "1970-01-01T01:00:00", "4294967294", "soon", "2106-02-07T06:28:14"]
    ),
)
spans = st.one_of(
    st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 30), st.integers(0, 61), st.integers(0, 61)),
    st.builds("{}-{:02}:00:00".format, st.integers(0, 40), st.integers(0, 24)),
    st.integers(0, 10_000).map(str),
    st.sampled_from(["", "INVALID", "05:10", "00:01.500", "x", "UNLIMITED", "946684800"]),
)
ids = st.builds(
    "{}{}{}".format,
    st.sampled_from(["1", "30", "77", "030", "9999999999", "0", "٣", ""]),
    st.sampled_from(["", "", "", "_5", "_05", "_0", "_[1-4%2]", "+1", "+0", "_", "x"]),
    st.sampled_from(["", "", ".batch", ".0", "."]),
)
counts = st.sampled_from(["1", "2", "0", "", "1K", "x", "4294967294", "9223372036854775808"])
OTHERS = {
    "Cluster": st.sampled_from(["hpc", ""]),
    "JobName": st.sampled_from(["a", "", "ü", "\x1b[31m", "a\rb", "\0"]),
    "User": st.sampled_from(["u1", ""]),
    "State": st.sampled_from(
        ["COMPLETED", "CANCELLED by 7", "RUNNING", "PENDING", "FOO", "OUT_OF_ME+", "", "x y", "RESIZING"]
    ),
    "NodeList": st.sampled_from(
        ["n1", "n[1-2]", "n[1-2],m3", "None assigned", "", "n[2-1]", "a@b", "n1,,n2"]
    ),
    "AllocTRES": st.sampled_from(["cpu=4,gres/gpu=2,node=1", "node=2", "", "(null)", "cpu=x", "1=4,1001=2"]),
    "AllocGRES": st.sampled_from(["gpu:2", "", "N/A"]),
    "WorkDir": st.sampled_from(["/home/u", ""]),
}
CELLS = {
    **dict.fromkeys(("JobID", "JobIDRaw"), ids),
    **dict.fromkeys(("Submit", "Start", "End"), times),
    **dict.fromkeys(("Elapsed", "ElapsedRaw", "Suspended", "Timelimit", "TimelimitRaw"), spans),
    **dict.fromkeys(("UID", "AllocNodes", "NNodes", "AllocCPUS", "NCPUS"), counts),
    **OTHERS,
}
#: A row that is plain unless something is put into it.
PLAIN = {
    "JobID": "30",
    "JobIDRaw": "30",
    "Cluster": "hpc",
    "JobName": "train",
    "User": "u1",
    "UID": "7001",
    "State": "COMPLETED",
    "Submit": "2025-07-01T10:00:00",
    "Start": "2025-07-01T10:00:01",
    "End": "2025-07-01T11:00:01",
    "Elapsed": "01:00:00",
    "ElapsedRaw": "3600",
    "Suspended": "00:00:00",
    "Timelimit": "1-00:00:00",
    "TimelimitRaw": "1440",
    "AllocNodes": "1",
    "NNodes": "1",
    "AllocCPUS": "4",
    "NCPUS": "4",
    "NodeList": "n1",
    "AllocTRES": "cpu=4,gres/gpu=2,node=1",
    "AllocGRES": "",
    "WorkDir": "/home/u",
}
#: A plain row of a run that was cancelled before it began.
UNSTARTED = {
    **PLAIN,
    "State": "CANCELLED by 7001",
    "Start": "Unknown",
    "Elapsed": "00:00:00",
    "ElapsedRaw": "0",
    "AllocNodes": "0",
    "AllocCPUS": "0",
    "NodeList": "None assigned",
    "AllocTRES": "",
}


@st.composite
def exports(draw: st.DrawFn) -> bytes:
    """An export of rows most of which differ from a plain one in a few cells."""
    order = draw(st.permutations(COLUMNS))
    columns = ["State", *[name for name in order[: draw(st.integers(5, len(order)))] if name != "State"]]
    if not {"JobID", "JobIDRaw"} & set(columns):
        columns.append("JobID")
    delimiter = draw(st.sampled_from(["|", "\x1f", "^|^", ";;"]))
    end = draw(st.sampled_from(["", delimiter]))
    lines = [delimiter.join(columns) + end]
    for number in range(draw(st.integers(0, 8))):
        plain = draw(st.sampled_from([PLAIN, PLAIN, UNSTARTED]))
        row = dict(plain, JobID=str(30 + number), JobIDRaw=str(30 + number))
        if draw(st.booleans()):
            row["JobID"] = row["JobIDRaw"] = f"{30 + number // 2}.{number}"
        for name in draw(st.lists(st.sampled_from(COLUMNS), max_size=3)):
            row[name] = draw(CELLS[name])
        lines.append(delimiter.join(row[name] for name in columns) + end)
        if draw(st.integers(0, 9)) == 0:
            lines.append(
                draw(st.sampled_from(["", "rest of a name", delimiter * 3, lines[0], "sacct: error: gone"]))
            )
    return "\n".join(lines).encode() + draw(st.sampled_from([b"\n", b""]))


def read_both(export: bytes, options: ReadOptions) -> tuple[list[RunBlock], list[RunBlock]]:
    """The blocks of an export, by columns where that goes, and row by row."""
    fast = list(read_text(io.BytesIO(export), options))
    needs, block_parser.PLAIN_NEEDS = block_parser.PLAIN_NEEDS, ("no such column",)
    try:
        return fast, list(read_text(io.BytesIO(export), options))
    finally:
        block_parser.PLAIN_NEEDS = needs


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    exports(),
    st.sampled_from([None, *map(ZoneInfo, ("Europe/Berlin", "Pacific/Chatham", "Australia/Lord_Howe"))]),
    st.sampled_from([None, 1_751_360_405]),
)
def test_fast_and_slow_path_agree(export: bytes, zone: ZoneInfo | None, queried_at: int | None) -> None:
    options = ReadOptions(zone=zone, queried_at=queried_at, cluster="named", source_name="export")
    fast, slow = read_both(export, options)
    for one, other in zip(fast, slow, strict=True):
        assert list(one.records()) == list(other.records())
        assert (one.steps, one.steps_skipped, one.rejected) == (
            other.steps,
            other.steps_skipped,
            other.rejected,
        )
        assert one.warnings == other.warnings
        for record in one.records():
            assert all(
                type(value) in (int, str, bool, bytes, type(None))
                for value in map(record.__getattribute__, record.__slots__)
            )


def test_plain_rows_are_not_read_one_by_one(monkeypatch):
    read = []
    monkeypatch.setattr(block_parser.RowReader, "read", lambda reader, row, *rest: read.append(row))
    rows = [PLAIN, UNSTARTED] * 3
    lines = ["|".join(COLUMNS), *("|".join(row[name] for name in COLUMNS) for row in rows)]
    options = ReadOptions(zone=ZoneInfo("UTC"), source_name="export")
    blocks = list(read_text(io.BytesIO("\n".join(lines).encode()), options))
    assert (sum(map(len, blocks)), read) == (6, [])


ODD_CELLS = (
    "",
    "0",
    "1",
    "2",
    "00:00:01",
    "05:10",
    "UNLIMITED",
    "Unknown",
    "2025-07-01T10:30:00",
    "n2",
    "x",
    "cpu=1,node=1",
)


def test_one_odd_cell_reads_the_same_on_both_paths():
    """Every column of either kind of plain row, with every odd text in turn."""
    rows = [
        dict(plain, JobID=str(100 + n), JobIDRaw=str(100 + n)) | {name: text}
        for plain in (PLAIN, UNSTARTED)
        for n, (name, text) in enumerate((name, text) for name in COLUMNS for text in ODD_CELLS)
    ]
    lines = ["|".join(COLUMNS), *("|".join(row[name] for name in COLUMNS) for row in rows)]
    export = "\n".join(lines).encode()
    fast, slow = read_both(export, ReadOptions(zone=ZoneInfo("UTC"), source_name="export"))
    assert [r for block in fast for r in block.records()] == [r for block in slow for r in block.records()]
    assert [r for block in fast for r in block.rejected] == [r for block in slow for r in block.rejected]
