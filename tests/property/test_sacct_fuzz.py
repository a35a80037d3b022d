"""No bytes make a reader fail otherwise than with a problem of one line, and no row goes uncounted."""

import io
import json
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.accounting.json_reader import read_json
from slurm_trace.accounting.open_source import read_any
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RunBlock
from slurm_trace.accounting.text import read_text
from slurm_trace.errors import TraceError
from support.sacct import drain

Reader = Callable[[IO[bytes], ReadOptions], Iterator[RunBlock]]

HEADER = b"JobID|JobIDRaw|State|Submit|Start|End|Elapsed|NodeList|AllocTRES|JobName"
ROW = (
    b"30|30|COMPLETED|2025-07-01T10:00:00|2025-07-01T10:00:01|2025-07-01T11:00:01|01:00:00|n1|cpu=1,node=1|a"
)
STEP = b"30.0|30.0|COMPLETED|2025-07-01T10:00:00|2025-07-01T10:00:01|2025-07-01T11:00:01|01:00:00|n1|cpu=1,node=1|a"
LARGEST = 2**63 - 1


def read(reader: Reader, data: bytes, **options: Any) -> tuple[list[RunBlock], TraceError | None]:
    """All blocks, and the problem at the end."""
    blocks, problem = drain(reader(io.BytesIO(data), ReadOptions(source_name="fuzz", **options)))
    if problem is not None:
        assert str(problem).startswith("fuzz")
        assert "\n" not in str(problem)
    return blocks, problem


def check_storable(blocks: list[RunBlock]) -> None:
    """Nothing that a database would refuse."""
    for block in blocks:
        for run in block.records():
            for value in (getattr(run, name) for name in run.__slots__ if name != "raw"):
                if isinstance(value, str):
                    assert "\0" not in value
                    value.encode()
                elif isinstance(value, int):
                    assert -LARGEST <= value <= LARGEST
        for reason in [row.reason for row in block.rejected] + block.warnings:
            assert "\n" not in reason
            assert "\0" not in reason
            reason.encode()


lines = st.lists(
    st.one_of(
        st.sampled_from([ROW, STEP, HEADER, b"", b"more of a name", b"|", b"|||", b"sacct: error: gone"]),
        st.binary(max_size=40),
        st.tuples(st.sampled_from([ROW, STEP]), st.integers(0, 110), st.binary(max_size=6)).map(
            lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
        ),
        st.tuples(st.sampled_from([ROW, STEP]), st.integers(0, 110)).map(lambda t: t[0][: t[1]]),
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(lines, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_text_counts_every_row(body: list[bytes], newline: bytes, ends: bool) -> None:
    data = newline.join([HEADER, *body]) + newline * ends
    blocks, problem = read(read_text, data)
    check_storable(blocks)
    rejected = [row for block in blocks for row in block.rejected]
    runs = [run for block in blocks for run in block.records()]
    steps = sum(block.steps_skipped for block in blocks)
    if problem is None:
        kept = b"".join(run.raw for run in runs) + b"".join(row.raw for row in rejected)
        for line in data.splitlines()[1:] if b"\r" not in data and b"\x0b" not in data else []:
            known = line.strip() in (b"", HEADER) or line in kept
            assert known or steps, line
    starts = [run.line for run in runs] + [row.line for row in rejected]
    assert len(starts) == len(set(starts))
    whole = sum(line == ROW for line in body)
    assert len(runs) >= (whole if problem is None and not any(b"JobID" in line for line in body) else 0)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for reader in (read_any, read_text, read_json):
        blocks, _ = read(reader, data)
        check_storable(blocks)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["30", "COMPLETED", "", "x", "2025-07-01T10:00:00", "a|b", "é", "7"]), max_size=12
    )
)
def test_any_fields(fields: list[str]) -> None:
    names = ("JobID", "State", "Start", *fields)
    check_storable(read(read_text, "|".join(fields).encode(), fields=names)[0])


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["Infinity", "COMPLETED", "RUNNING", "n[1-2]", "\ud800", "\0"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["set", "infinite", "number", "current", "count", "type", "id"]), inner
        ),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def job() -> dict[str, object]:
    return {
        "job_id": 7,
        "account": "a",
        "cluster": "c",
        "nodes": "n1",
        "name": "x",
        "time": {
            "submission": 1_700_000_000,
            "start": 1_700_000_010,
            "end": 1_700_000_020,
            "elapsed": 10,
            "limit": 5,
        },
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "array": {"job_id": 0, "task_id": None, "task": None},
        "het": {"job_id": 0, "job_offset": None},
        "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 4}]},
        "steps": [
            {
                "time": {"start": 1_700_000_010, "end": 1_700_000_020},
                "state": "COMPLETED",
                "step": {"id": "7.0"},
            }
        ],
        "allocation_nodes": 1,
        "user": "u",
        "working_directory": "/",
    }


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_json_job(job: dict[str, object], data: st.DataObject) -> None:
    damaged = json.loads(json.dumps(job))
    for _ in range(data.draw(st.integers(0, 3))):
        at = damaged
        key = data.draw(st.sampled_from(sorted(at)))
        while isinstance(at[key], dict) and at[key] and data.draw(st.booleans()):
            at, key = at[key], data.draw(st.sampled_from(sorted(at[key])))
        at[key] = data.draw(values)
    text = json.dumps(
        {"jobs": [damaged, job], "errors": [], "meta": {"plugin": {"type": "openapi/dbv0.0.38"}}}
    )
    blocks, problem = read(read_json, text.encode())
    check_storable(blocks)
    counted = sum(len(block) + len(block.rejected) for block in blocks)
    assert problem is not None or counted >= 2


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_cut_json_keeps_what_is_whole(job: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(
        {"meta": {"plugin": {"type": "openapi/dbv0.0.38"}}, "errors": [], "jobs": [job] * 3}
    ).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    blocks, problem = read(read_json, text[:cut])
    assert problem is not None
    assert sum(len(block) for block in blocks) == sum(
        cut >= text.index(b'"jobs"') + 9 + (i + 1) * len(json.dumps(job)) + 2 * i for i in range(3)
    )
