"""Whatever users write into names, a row is read as it was, or something is counted as rejected."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunRecord
from slurm_trace.accounting.text import read_text

COLUMNS = (
    "Comment",
    "JobID",
    "JobIDRaw",
    "JobName",
    "State",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "AllocTRES",
    "NodeList",
)
LAST = ("SubmitLine", "WorkDir")
TRUTH = {
    "State": "COMPLETED",
    "Submit": "1751364000",
    "Start": "1751364010",
    "End": "1751367610",
    "Elapsed": "01:00:00",
    "AllocTRES": "cpu=4,gres/gpu=2,node=1",
    "NodeList": "n1",
}
VALUES = ("COMPLETED", 1751364000, 1751364010, 1751367610, 3600, TRUTH["AllocTRES"], "n1")
#: Pieces that look like something else, put together with delimiters and newlines.
pieces = st.sampled_from(
    ["", "a", "7", "COMPLETED", "1751364000", "01:00:00", "cpu=1,node=1", "n2", "FAILED", "9.0", " "]
)
names = st.lists(st.tuples(pieces, st.sampled_from(["|", "|", "\n", " "])), max_size=4).map(
    lambda parts: "".join(map("".join, parts))
)


def known(run: RunRecord) -> tuple[object, ...]:
    return (
        run.job_id,
        run.state,
        run.submit,
        run.start,
        run.end,
        run.elapsed_s,
        run.alloc_tres,
        run.node_list,
    )


one_line = names.map(lambda name: name.replace("\n", "|"))


def free(text: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, str]]]:
    """What users wrote into the rows of an export."""
    return st.lists(
        st.fixed_dictionaries(dict.fromkeys(("Comment", "JobName", "SubmitLine"), text)),
        min_size=1,
        max_size=4,
    )


def read(
    rows: list[dict[str, str]], order: list[str], last: str, end: str
) -> tuple[dict[str, RunRecord], bytes]:
    """The runs by their id, and the bytes of all that was rejected."""
    columns = [*order, *(name for name in LAST if name != last), last]
    lines = ["|".join(columns) + end]
    for number, row in enumerate(rows, start=101):
        cells = TRUTH | row | {"JobID": str(number), "JobIDRaw": str(number), "WorkDir": f"/w{number}"}
        lines.append("|".join(cells[name] for name in columns) + end)
    blocks = list(read_text(io.BytesIO(("\n".join(lines) + "\n").encode()), ReadOptions()))
    runs = {run.job_id: run for block in blocks for run in block.records()}
    return runs, b"\n".join(row.raw for block in blocks for row in block.rejected)


@settings(max_examples=400, deadline=None)
@given(free(names), st.permutations(COLUMNS), st.sampled_from(LAST), st.sampled_from(["", "|"]))
def test_newlines_and_delimiters(rows: list[dict[str, str]], order: list[str], last: str, end: str) -> None:
    runs, rejected = read(rows, order, last, end)
    for number in map(str, range(101, 101 + len(rows))):
        if number not in runs:
            assert number.encode() in rejected
        else:
            # Where a newline left two pieces that both pass for a row, the other piece is rejected and counted.
            assert known(runs[number]) == (number, *VALUES) or rejected


@settings(max_examples=400, deadline=None)
@given(free(one_line), st.permutations(COLUMNS), st.sampled_from(LAST), st.sampled_from(["", "|"]))
def test_delimiters_alone(rows: list[dict[str, str]], order: list[str], last: str, end: str) -> None:
    runs, rejected = read(rows, order, last, end)
    for number in map(str, range(101, 101 + len(rows))):
        if number not in runs:
            assert number.encode() in rejected
        else:
            assert known(runs[number]) == (number, *VALUES)
            assert runs[number].work_dir in (f"/w{number}", None)
