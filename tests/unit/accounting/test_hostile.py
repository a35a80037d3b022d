"""Exports that nobody should be able to make anything of, and names that pretend to be rows."""

from __future__ import annotations

import json
from datetime import UTC
from io import BytesIO

import pytest

from slurm_trace.accounting import json_reader
from slurm_trace.accounting.open_source import read_any
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RUN_FIELDS
from slurm_trace.errors import InputProblem

HEADER = "JobIDRaw|Cluster|User|Account|State|Submit|Start|End|JobName\n"
ROW = "{}|lab|ada|physics|COMPLETED|1740823200|1740823260|1740826860|{}\n"
JOB = {
    "job_id": 1,
    "cluster": "lab",
    "name": "a",
    "user": "ada",
    "state": {"current": ["COMPLETED"]},
    "time": {"submission": 1740823200, "start": 1740823260, "end": 1740826860, "elapsed": 3600},
}


def read(data, **options):
    """The runs as dicts, the rejected rows, and the problem that ended the reading."""
    runs, rejected, problem = [], [], None
    stream = BytesIO(data if isinstance(data, bytes) else data.encode())
    try:
        for block in read_any(stream, ReadOptions(zone=UTC, **options)):
            runs += [dict(zip(RUN_FIELDS, run, strict=True)) for run in zip(*block.columns, strict=True)]
            rejected += block.rejected
    except InputProblem as error:
        problem = str(error)
    return runs, rejected, problem


def document(*jobs):
    return json.dumps({"meta": {"plugin": {"data_parser": "data_parser/v0.0.41"}}, "jobs": jobs})


def test_lines_that_end_with_a_bare_carriage_return():
    runs, _, problem = read((HEADER + ROW.format(1, "a") + ROW.format(2, "b")).replace("\n", "\r"))
    assert not runs
    assert "line 1: lines end with a bare carriage return" in problem


def test_header_longer_than_any():
    _, _, problem = read(HEADER.rstrip() + "|" + "x" * (2 << 20) + "\n" + ROW.format(1, "a"))
    assert "line 1: longer than 1 MiB" in problem


@pytest.mark.parametrize("change", [str.lower, str.upper, lambda text: "\ufeff" + text])
def test_the_same_header_again(change):
    runs, rejected, problem = read(HEADER + ROW.format(1, "a") + change(HEADER) + ROW.format(2, "b"))
    assert [run["job_id_raw"] for run in runs] == [1, 2]
    assert not rejected
    assert problem is None


@pytest.mark.parametrize("change", [str.lower, str.upper, lambda text: "\ufeff" + text])
def test_another_header_of_as_many_columns(change):
    other = change(HEADER.replace("User|Account", "Account|User"))
    runs, _, problem = read(HEADER + ROW.format(1, "a") + other + ROW.format(2, "b"))
    assert [run["job_id_raw"] for run in runs] == [1]
    assert "line 3: another export with other columns begins here" in problem


def test_a_header_in_a_name_hides_nothing_behind_it():
    text = HEADER + ROW.format(1, "x\nJobID|State|User") + ROW.format(2, "b")
    runs, rejected, problem = read(text)
    assert [run["job_id_raw"] for run in runs] == [1, 2]
    assert [row.line for row in rejected] == [3]
    assert problem is None


def test_what_sacct_itself_wrote_has_one_header():
    forged = HEADER.strip().replace("User|Account", "Account|User")
    runs, rejected, problem = read(
        HEADER + ROW.format(1, "x\n" + forged) + ROW.format(2, "b"), delimiter="|", one_answer=True
    )
    assert [(run["job_id_raw"], run["user"]) for run in runs] == [(1, "ada"), (2, "ada")]
    assert [row.line for row in rejected] == [3]
    assert problem is None


def test_json_number_that_nothing_can_hold():
    huge = document(JOB, JOB | {"job_id": 2, "exit": "@"}).replace('"@"', "1e99999999999999999999999")
    runs, _, problem = read(huge)
    assert [run["job_id_raw"] for run in runs] == [1]
    assert "record 2: a number that nothing can hold; 1 records before it were read" in problem


def test_json_number_with_thousands_of_digits():
    jobs = [JOB | {"job_id": n} for n in (1, "@", 3)]
    runs, rejected, problem = read(document(*jobs).replace('"@"', "9" * 200_000))
    assert [run["job_id_raw"] for run in runs] == [1, 3]
    assert [row.reason for row in rejected] == [f"'{'9' * 40}' is no job id"]
    assert problem is None


def test_json_number_beyond_every_context():
    runs, rejected, problem = read(document(JOB).replace("3600", "1e999999999"))
    assert [run["elapsed_s"] for run in runs] == [None]
    assert not rejected
    assert problem is None


def test_json_half_pairs():
    jobs = [
        JOB | {"job_id": n, "name": name}
        for n, name in enumerate(("\udc00", "\ud83d", "\U0001f600"), start=1)
    ]
    jobs.append(JOB | {"job_id": 4, "name": "\\" + "udc00"})
    runs, rejected, problem = read(document(*jobs))
    names = [run["name"] for run in runs]
    assert names[0] == names[1] == "\ufffd"
    assert names[2:] == ["\U0001f600", "\\" + "udc00"]
    assert ["utf8_replaced" in run["flags"] for run in runs] == [True, True, False, False]
    assert not rejected
    assert problem is None


def test_json_half_pairs_wherever_a_chunk_ends():
    text = document(JOB | {"name": "\U0001f600\udc00\\" + "udc00"})
    for size in range(1, 40):
        source = BytesIO(text.encode())
        stream = json_reader._Utf8(source)
        source.read = lambda _, size=size, source=source: BytesIO.read(source, size)
        assert "".join(iter(lambda stream=stream: stream.read().decode(), "")) == text.replace(
            "\\ude00\\udc00", "\\ude00\\ufffd"
        )


def test_json_text_without_end():
    _, _, problem = read(document(JOB, JOB | {"name": "x" * (json_reader.MAX_STRETCH_BYTES + (1 << 20))}))
    assert "a text or a list longer than 16 MiB" in problem


def test_json_parts_that_nobody_asked_for():
    text = document(JOB).replace('{"meta"', '{"more": [' + '{"a": [1, 2]},' * 9 + "[[[]]]" + '], "meta"')
    runs, _, problem = read(text)
    assert len(runs) == 1
    assert problem is None
    assert "nested" in read(text.replace("[[[]]]", "[" * 60 + "]" * 60))[2]


def test_json_jobs_that_are_no_list():
    _, _, problem = read('{"jobs": {"a": 1}}')
    assert "this is no output of sacct --json (jobs is no list)" in problem


def test_json_job_id_that_is_no_whole_number():
    _, rejected, _ = read(document(JOB | {"job_id": 1.5}))
    assert [row.reason for row in rejected] == ["'1.5' is no job id"]
