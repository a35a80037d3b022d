"""The JSON of sacct, of every data_parser."""

import io
import json
import tracemalloc
from typing import Any

import pytest

from slurm_trace.accounting import json_reader
from slurm_trace.accounting.json_reader import read_json
from slurm_trace.accounting.json_record import number
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.errors import EnvironmentProblem, InputProblem
from support.sacct import Reading, read_bytes

START, END = 1_751_364_010, 1_751_367_610


def triple(value: int | None, *, infinite: bool = False) -> dict[str, object]:
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def job(**parts: Any) -> dict[str, Any]:
    """A job as data_parser v0.0.42 prints it."""
    return {
        "account": "ml",
        "allocation_nodes": 1,
        "array": {
            "job_id": 0,
            "limits": {"max": {"running": {"tasks": 0}}},
            "task_id": triple(None),
            "task": "",
        },
        "association": {"account": "ml", "cluster": "lab", "partition": "", "user": "ann", "id": 3},
        "cluster": "lab",
        "time": {
            "elapsed": 3600,
            "eligible": START,
            "end": END,
            "start": START,
            "submission": START - 10,
            "suspended": 0,
            "limit": triple(60),
        },
        "flags": [],
        "het": {"job_id": 0, "job_offset": triple(None)},
        "job_id": 7,
        "name": "train",
        "nodes": "n1",
        "partition": "gpu",
        "kill_request_user": "",
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "steps": [],
        "tres": {"allocated": [tres("cpu", 4), tres("mem", 12_288), tres("node", 1), tres("gres", 2, "gpu")]},
        "user": "ann",
        "working_directory": "/home/ann",
    } | parts


def tres(kind: str, count: Any, name: str = "") -> dict[str, Any]:
    return {"type": kind, "name": name, "id": 1, "count": count}


def plain(value: Any) -> Any:
    """The value as `openapi/dbv0.0.38` prints it: no triples, one state, null for nothing."""
    if isinstance(value, dict):
        if set(value) == {"set", "infinite", "number"}:
            return value["number"] if value["set"] else None
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return None if value == "" else value


def complex_(value: Any) -> Any:
    """The value as the variant `+complex` prints it: a number, null, or "Infinity"."""
    if isinstance(value, dict):
        if set(value) == {"set", "infinite", "number"}:
            return "Infinity" if value["infinite"] else value["number"] if value["set"] else None
        return {key: complex_(part) for key, part in value.items()}
    return [complex_(part) for part in value] if isinstance(value, list) else value


def document(*jobs: Any, parser: str = "data_parser/v0.0.42", errors: Any = (), late: bool = True) -> bytes:
    plugin = {"type": parser} if parser.startswith("openapi") else {"type": "", "data_parser": parser}
    rest = {"meta": {"plugin": plugin}, "errors": list(errors), "warnings": []}
    listed = {"jobs": list(jobs)}
    return json.dumps(listed | rest if late else rest | listed).encode()


def read(*jobs: Any, **options: Any) -> Reading:
    return read_bytes(document(*jobs, **options))


@pytest.mark.parametrize("version", range(39, 46))
def test_every_data_parser(version: int) -> None:
    reading = read(job(), parser=f"data_parser/v0.0.{version}")
    assert (reading.problem, reading.warnings) == (None, [])
    run = reading.run
    assert (run.job_id_raw, run.submit, run.start, run.end) == (7, START - 10, START, END)
    assert (run.state, run.final, run.elapsed_s, run.limit_s, run.flags) == (
        "COMPLETED",
        True,
        3600,
        3600,
        "",
    )
    assert run.alloc_tres == "cpu=4,gres/gpu=2,mem=12G,node=1"
    assert (run.cpu_count, run.node_count, run.node_list, run.user) == (4, 1, "n1", "ann")


@pytest.mark.parametrize("shape", [plain, complex_])
def test_other_shapes_of_one_job_give_the_same_run(shape: Any) -> None:
    old = shape(job())
    if shape is plain:
        old["state"]["current"] = "COMPLETED"
    runs = [read(one, parser="openapi/dbv0.0.38", late=False).run for one in (old, job())]
    names = [name for name in runs[0].__slots__ if name != "raw"]
    assert [getattr(runs[0], name) for name in names] == [getattr(runs[1], name) for name in names]


def test_an_unknown_parser_is_tried_and_said() -> None:
    reading = read(job(), parser="data_parser/v0.0.99")
    assert reading.run.job_id_raw == 7
    assert len(reading.warnings) == 1
    assert "v0.0.99" in reading.warnings[0]


@pytest.mark.parametrize(
    ("current", "word", "final", "flags"),
    [
        ("RUNNING", "RUNNING", False, ""),
        (["RUNNING"], "RUNNING", False, ""),
        (["RUNNING", "COMPLETING"], "RUNNING", False, "state_completing"),
        (["COMPLETED", "COMPLETING"], "COMPLETED", False, "state_completing"),
        (["PENDING", "REQUEUED"], "REQUEUED", True, ""),
        (["PENDING", "RESIZING"], "RESIZING", True, ""),
    ],
)
def test_states(current: Any, word: str, final: bool, flags: str) -> None:
    run = read(job(state={"current": current})).run
    assert (run.state, run.final, run.flags) == (word, final, flags)


def test_who_cancelled() -> None:
    cancelled = {"current": ["CANCELLED"]}
    assert read(job(state=cancelled, kill_request_user="7001")).run.cancelled_by == 7001
    assert read(job(state=cancelled, kill_request_user="ann")).run.cancelled_by is None


@pytest.mark.parametrize("start", [4_294_967_294, 0, None, triple(None)])
def test_never_started(start: Any) -> None:
    time = {"submission": START, "start": start, "end": START, "elapsed": 0, "limit": triple(None)}
    run = read(
        job(state={"current": ["FAILED"]}, time=time, nodes="None assigned", tres={"allocated": []})
    ).run
    assert (run.started, run.start, run.alloc_tres, run.limit_s) == (False, None, "", None)


@pytest.mark.parametrize(
    ("array", "het", "shown"),
    [
        ({"job_id": 6, "task_id": triple(0), "task": ""}, {}, "6_0"),
        ({"job_id": 6, "task_id": 5, "task": None}, {}, "6_5"),
        ({"job_id": 7, "task_id": triple(None), "task": "1-10%2"}, {}, "7_[1-10%2]"),
        ({"job_id": 0, "task_id": None, "task": None}, {"job_id": 6, "job_offset": 1}, "6+1"),
        ({}, {"job_id": 7, "job_offset": triple(0)}, "7+0"),
        ({}, {"job_id": 0, "job_offset": 4_294_967_294}, "7"),
    ],
)
def test_shown_ids(array: Any, het: Any, shown: str) -> None:
    run = read(job(array=array, het=het)).run
    assert (run.job_id, run.job_id_raw) == (shown, 7)


@pytest.mark.parametrize("step_id", ["7.0", "batch", 0, {"x": 1}, None])
def test_steps_of_every_shape(step_id: Any) -> None:
    steps = [
        {
            "time": {"start": START, "end": END + 40},
            "state": "COMPLETED",
            "step": {"job_id": 7, "id": step_id},
        },
        {"time": {"start": triple(START), "end": triple(END)}, "state": ["CANCELLED"], "step": {"id": "7.1"}},
        {"time": {"start": triple(START), "end": triple(0)}, "state": ["RUNNING"], "step": {"id": "7.2"}},
    ]
    reading = read(job(steps=steps))
    assert (reading.run.step_count, reading.run.step_end, reading.steps_skipped) == (2, END + 40, 3)
    assert reading.orphans == []


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (5, 5),
        (None, None),
        (triple(5), 5),
        (triple(None), None),
        (triple(5, infinite=True), None),
        ({"number": 5}, 5),
        ("Infinity", None),
        ("5", 5),
        (True, None),
        ([5], None),
    ],
)
def test_numbers(value: Any, whole: int | None) -> None:
    assert number(value) == whole


@pytest.mark.parametrize("count", [-2, None, 2**64 - 2, 1.5, "x"])
def test_numbers_no_database_takes(count: Any) -> None:
    run = read(job(tres={"allocated": [tres("cpu", 4), tres("energy", count)]})).run
    assert run.cpu_count == 4


@pytest.mark.parametrize(
    "parts",
    [
        {"job_id": None},
        {"job_id": 2**70},
        {"time": 5},
        {"steps": {"a": 1}},
        {"steps": [5]},
        {"name": ["a"]},
        {"state": []},
        {"state": {"current": []}},
        {"state": {"current": None}},
        {"tres": {"allocated": [1]}},
    ],
)
def test_a_record_of_another_shape_is_rejected(parts: Any) -> None:
    reading = read(job(), job(**parts), job(job_id=9))
    assert [run.job_id_raw for run in reading.runs] == [7, 9]
    (rejected,) = reading.rejected
    assert rejected.line == 2
    assert json.loads(rejected.raw)["cluster"] == "lab"


@pytest.mark.parametrize("record", [5, None, [], {}, {"job_state": "RUNNING", "job_id": 5}])
def test_what_is_no_job_is_rejected(record: Any) -> None:
    reading = read(record, job())
    assert (reading.run.line, len(reading.rejected)) == (2, 1)


@pytest.mark.parametrize("late", [False, True])
def test_an_error_of_slurm_ends_the_reading(late: bool) -> None:
    errors = [
        {"error_number": 9003, "error": "Nothing found"},
        {"error_number": 7000, "description": "Unable\nto connect"},
    ]
    reading = read(job(), errors=errors, late=late)
    assert isinstance(reading.problem, EnvironmentProblem)
    assert len(reading.runs) == 1
    assert read(errors=errors[:1]).problem is None


def test_a_document_that_was_cut() -> None:
    whole = document(job(), job(job_id=8), late=False)
    reading = read_bytes(whole[:-30])
    assert [run.job_id_raw for run in reading.runs] == [7]
    assert isinstance(reading.problem, InputProblem)
    assert str(reading.problem).startswith("export: record 2:")


@pytest.mark.parametrize(
    "data", [b"{}", b'{"a": 1}', b"[]", b"[{}]", b'{"jobs"', b"{" * 3000, b'{"x": ' + b"[" * 500]
)
def test_no_output_of_sacct(data: bytes) -> None:
    problem = read_bytes(data).problem
    assert isinstance(problem, InputProblem)


def test_empty_output_is_a_failure() -> None:
    for data in (b"", b"\n  "):
        problem = read_bytes(data, read_json).problem
        assert isinstance(problem, InputProblem)
        assert "empty output" in str(problem)


def test_text_that_no_database_takes() -> None:
    data = document(job(name="a\0b"), job(job_id=8, name="@@"), job(job_id=9, name="\ud800"))
    nul, bad, lone = read_bytes(data.replace(b"@@", b"\xff\xfe")).runs
    assert (nul.name, bad.name) == ("a\ufffdb", "\ufffd\ufffd")
    assert bad.flags == "utf8_replaced"
    assert "\ud800" not in (lone.name or "")


def test_jobs_are_read_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        """A list of many jobs that is never all in memory."""

        def __init__(self, jobs: int) -> None:
            self.left = jobs
            self.one = json.dumps(job(name="x" * 5000)).encode()
            self.rest = b'{"jobs": ['

        def read(self, size: int = -1) -> bytes:
            while len(self.rest) < size and self.left:
                self.left -= 1
                self.rest += self.one + (b"," if self.left else b'], "meta": {}, "errors": []}')
            data, self.rest = self.rest[:size], self.rest[size:]
            return data

    monkeypatch.setattr(json_reader, "BLOCK_JOBS", 50)
    tracemalloc.start()
    runs = sum(len(block) for block in read_json(Endless(1000), ReadOptions(source_name="x")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert runs == 1000
    assert peak < 3 << 20
