"""The grammar of JobID."""

import pytest

from slurm_trace.accounting.jobids import JobRef, parse_job_id


@pytest.mark.parametrize(
    ("text", "ref", "raw"),
    [
        ("30", JobRef(30), 30),
        ("30_5", JobRef(30, task=5), None),
        ("30_0", JobRef(30, task=0), None),
        ("30_[1-10%2]", JobRef(30, tasks="[1-10%2]"), 30),
        ("30_[1,3,5-7]", JobRef(30, tasks="[1,3,5-7]"), 30),
        ("32+1", JobRef(32, het=1), 33),
        ("32+0", JobRef(32, het=0), 32),
        ("2.batch", JobRef(2, step="batch"), 2),
        ("2.0", JobRef(2, step="0"), 2),
        ("30_5.batch", JobRef(30, task=5, step="batch"), None),
        ("32+1.0", JobRef(32, het=1, step="0"), 33),
        ("1488666.bat+", JobRef(1488666, step="bat+"), 1488666),
        ("8012944_24093.0", JobRef(8012944, task=24093, step="0"), None),
    ],
)
def test_ids(text: str, ref: JobRef, raw: int | None) -> None:
    found = parse_job_id(text)
    assert (found, found.raw) == (ref, raw)
    assert found.shown + (f".{found.step}" if found.step else "") == text


def test_families() -> None:
    assert parse_job_id("30_5").array_job == parse_job_id("30_[1-3]").array_job == 30
    assert parse_job_id("32+1").het_job == 32
    assert parse_job_id("30").array_job is parse_job_id("30").het_job is None


@pytest.mark.parametrize(
    "text", ["", "0", "x", "30_", "30.", "30_5_6", "-3", "٣", "30 ", "3" * 30, "JobID", "30\n"]
)
def test_what_is_no_job_id(text: str) -> None:
    with pytest.raises(ValueError, match="no job id"):
        parse_job_id(text)
