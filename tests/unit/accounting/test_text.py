"""The text of sacct: delimiters, headers, broken lines, blocks."""

import io

import pytest

from slurm_trace.accounting import text
from slurm_trace.accounting.options import ReadOptions, plain_delimiter
from slurm_trace.accounting.realign import MAX_EXTRA
from slurm_trace.errors import InputProblem
from support.sacct import Reading, read_bytes, read_lines

NAMES = ("JobID", "JobIDRaw", "State", "Submit", "Start", "End", "Elapsed", "JobName", "AllocTRES", "WorkDir")


def cells(number: int, name: str = "train", work_dir: str = "/home/u", step: str = "") -> list[str]:
    job = f"{number}{step}"
    times = ["1751364000", str(1_751_364_000 + number), str(1_751_364_060 + number), "00:01:00"]
    return [job, job, "COMPLETED", *times, name, "cpu=1,node=1", work_dir]


def export(*rows: list[str], delimiter: str = "|", end: str = "", newline: str = "\n") -> bytes:
    return (newline.join(delimiter.join(row) + end for row in (list(NAMES), *rows)) + newline).encode()


@pytest.mark.parametrize("delimiter", ["|", "\x1f", "|#", "^|^", ";|;", ",", "\t", "~", "#~#"])
@pytest.mark.parametrize("trailing", [False, True])
def test_any_delimiter_with_and_without_one_at_the_end(delimiter: str, trailing: bool) -> None:
    rows = cells(7), cells(7, step=".0"), cells(8)
    rows[2][8] = ""
    for row in rows[:2]:
        row[8] = "node=1"
    reading = read_bytes(export(*rows, delimiter=delimiter, end=delimiter * trailing))
    assert [run.job_id for run in reading.runs] == ["7", "8"]
    assert {(run.work_dir, run.flags) for run in reading.runs} == {("/home/u", "")}
    assert (reading.steps_skipped, reading.rejected) == (1, [])


@pytest.mark.parametrize(
    ("typed", "meant"), [("\\x1f", "\x1f"), ("\\t", "\t"), ("|", "|"), ("^|^", "^|^"), ("\\\\", "\\")]
)
def test_delimiter_as_typed(typed: str, meant: str) -> None:
    assert plain_delimiter(typed) == meant
    reading = read_bytes(export(cells(7), delimiter=meant), delimiter=typed)
    assert reading.run.job_id == "7"


def test_names_of_columns_in_any_case_and_unknown_ones() -> None:
    run = read_lines("jobid|JOBIDRAW|state|Nonsense|Planned|Reserved", "7|7|COMPLETED|x|00:00:01|y").run
    assert (run.job_id_raw, run.state) == (7, "COMPLETED")


def test_columns_given_by_name() -> None:
    data = export(cells(7), cells(8)).partition(b"\n")[2]
    reading = read_bytes(data, fields=NAMES)
    assert [(run.job_id, run.line) for run in reading.runs] == [("7", 1), ("8", 2)]
    assert read_bytes(export(cells(7)), fields=("JobName", "JobID")).run.line == 2


def test_columns_given_that_do_not_fit() -> None:
    problem = read_bytes(export(cells(7)).partition(b"\n")[2], fields=("JobID", "State")).problem
    assert isinstance(problem, InputProblem)
    assert "2 columns" in str(problem)
    assert "JobIDRaw" in str(read_bytes(b"7|a\n", fields=("State", "User")).problem)


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\n"])
def test_no_output_is_a_failure(data: bytes) -> None:
    problem = read_bytes(data).problem
    assert isinstance(problem, InputProblem)
    assert "never" in str(problem) or "do not call sacct with -n" in str(problem)


def test_header_alone_is_no_rows() -> None:
    reading = read_bytes(export())
    assert (reading.problem, reading.runs, reading.rejected) == (None, [], [])


def test_marks_and_line_ends_of_another_system() -> None:
    reading = read_bytes(b"\xef\xbb\xbf" + export(cells(7), cells(8), newline="\r\n"))
    assert [(run.job_id, run.work_dir, run.line) for run in reading.runs] == [
        ("7", "/home/u", 2),
        ("8", "/home/u", 3),
    ]
    problem = read_bytes(export(cells(7)).decode().encode("utf-16")).problem
    assert "iconv" in str(problem)
    assert "gzip -dc" in str(read_bytes(b"\x1f\x8b\x08\0").problem)


@pytest.mark.parametrize(
    "name", ["a\rb", "a\tb", "\x1b[31mred", " blank ", "'q' `b`", "a[1-3].batch", "30|7"[:2], "é🚀"]
)
def test_odd_names_are_kept(name: str) -> None:
    assert read_bytes(export(cells(7, name=name))).run.name == name


def test_bytes_that_are_no_text() -> None:
    data = (
        export(cells(7), cells(8, name="@"), cells(9, name="#"))
        .replace(b"@", b"\xff\xfe")
        .replace(b"#", b"a\0b")
    )
    good, bad, nul = read_bytes(data).runs
    assert (good.flags, bad.flags, nul.flags) == ("", "utf8_replaced", "utf8_replaced")
    assert (bad.name, nul.name) == ("\ufffd\ufffd", "a\ufffdb")
    assert b"\xff\xfe" in bad.raw
    assert b"\0" in nul.raw


class TestBrokenLines:
    def test_newline_in_the_middle(self) -> None:
        reading = read_bytes(export(cells(7), cells(8, name="a\nb\n\nc"), cells(9)))
        assert [(run.job_id, run.line, run.flags) for run in reading.runs] == [
            ("7", 2, ""),
            ("8", 3, "line_joined"),
            ("9", 7, ""),
        ]
        assert reading.runs[1].name == "a\nb\n\nc"
        assert reading.rejected == []

    @pytest.mark.parametrize("end", ["", "|"])
    def test_newline_in_the_last_column(self, end: str) -> None:
        reading = read_bytes(export(cells(7), cells(8, work_dir="/a\nb\nc"), cells(9), end=end))
        assert [run.work_dir for run in reading.runs] == ["/home/u", "/a\nb\nc", "/home/u"]
        assert reading.runs[1].flags == "line_joined"
        assert reading.rejected == []

    def test_a_record_does_not_swallow_the_next(self) -> None:
        rows = [cells(7), cells(8), cells(9)]
        lines = export(*rows).decode().splitlines()
        lines[2] = lines[2][: lines[2].index("train")]
        reading = read_lines(*lines)
        assert [run.job_id for run in reading.runs] == ["7", "9"]
        assert [(row.line, row.raw) for row in reading.rejected] == [(3, lines[2].encode())]

    def test_cut_record_before_a_broken_one(self) -> None:
        lines = export(cells(7), cells(8, name="a\nb"), cells(9)).decode().splitlines()
        lines.insert(2, "a|b")
        reading = read_lines(*lines)
        assert [run.job_id for run in reading.runs] == ["7", "8", "9"]
        assert [row.line for row in reading.rejected] == [3]

    def test_message_of_sacct_is_no_name(self) -> None:
        reading = read_bytes(export(cells(7)) + b"sacct: error: slurm_persist_conn_open: failed\n")
        assert (reading.run.work_dir, [row.line for row in reading.rejected]) == ("/home/u", [3])

    def test_delimiter_in_names(self) -> None:
        reading = read_bytes(
            export(cells(7, name="a|b", work_dir="/x|y"), cells(8, name="|"), cells(9, work_dir="/c|"))
        )
        assert [(run.name, run.work_dir, run.flags) for run in reading.runs] == [
            ("a|b", "/x|y", "line_realigned"),
            ("|", "/home/u", "line_realigned"),
            ("train", "/c|", "line_realigned"),
        ]

    def test_delimiter_and_newline(self) -> None:
        run = read_bytes(export(cells(7, name="a|b\nc|d"))).run
        assert (run.name, run.flags) == ("a|b\nc|d", "line_joined line_realigned")

    def test_what_nobody_can_tell_is_rejected(self) -> None:
        lines = "JobID|JobIDRaw|State|Comment|Cluster|User|JobName", "7|7|COMPLETED|a|b|c|d|e"
        reading = read_lines(*lines)
        assert reading.runs == []
        assert "delimiter stands in a name" in reading.rejected[0].reason
        assert read_lines(lines[0], "7|7|COMPLETED|" + "|" * (MAX_EXTRA + 9)).rejected[0].line == 2

    def test_name_of_unknown_extent_is_left_empty(self) -> None:
        run = read_lines("JobID|JobIDRaw|State|JobName|WorkDir", "7|7|COMPLETED|a|/b|/c").run
        assert (run.name, run.work_dir, run.flags) == (None, None, "identity_incomplete line_realigned")


def test_header_in_the_middle() -> None:
    twice = export(cells(7)) + export(cells(8))
    reading = read_bytes(twice)
    assert [(run.job_id, run.line) for run in reading.runs] == [("7", 2), ("8", 4)]
    assert reading.rejected == []
    other = export(cells(7)) + b"JobIDRaw|JobID|State\n8|8|FAILED\n"
    reading = read_bytes(other)
    assert [run.job_id for run in reading.runs] == ["7"]
    assert "line 3" in str(reading.problem)


class TestBlocks:
    def read(self, data: bytes, monkeypatch: pytest.MonkeyPatch, size: int) -> tuple[Reading, list[int]]:
        monkeypatch.setattr(text, "BLOCK_BYTES", size)
        monkeypatch.setattr(text, "_HEAD_BYTES", 300)
        sizes = [len(block) for block in text.read_text(io.BytesIO(data), ReadOptions(source_name="x"))]
        return read_bytes(data), sizes

    @pytest.mark.parametrize("size", [64, 100, 300, 1000])
    def test_borders_change_nothing(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        rows = []
        for number in range(1, 60):
            rows.append(
                cells(number, name="a\nb" if number % 7 == 0 else "a|b" if number % 11 == 0 else "train")
            )
            rows += [cells(number, step=f".{step}") for step in range(number % 4)]
        rows[-1][-1] = "/x\ny"
        data = export(*rows)
        whole = read_bytes(data)
        reading, sizes = self.read(data, monkeypatch, size)
        assert reading == whole
        assert len(sizes) > 1
        assert [run.job_id for run in reading.runs] == [str(number) for number in range(1, 60)]
        assert [run.step_count for run in reading.runs] == [number % 4 or None for number in range(1, 60)]
        assert reading.orphans == []

    def test_steps_far_behind_their_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = export(cells(7), *(cells(7, step=f".{step}") for step in range(500)))
        reading, sizes = self.read(data, monkeypatch, 500)
        assert (reading.run.step_count, reading.steps_skipped, reading.orphans) == (500, 500, [])
        assert len(sizes) > 10

    def test_a_line_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(text, "BLOCK_BYTES", 100)
        monkeypatch.setattr(text, "MAX_LINE_BYTES", 2000)
        monkeypatch.setattr(text, "_HEAD_BYTES", 300)
        reading = read_bytes(export(cells(7)) + b"x" * 5000 + b"\n" + export(cells(8)).partition(b"\n")[2])
        assert [(run.job_id, run.line) for run in reading.runs] == [("7", 2), ("8", 4)]
        assert [(row.line, "longer" in row.reason) for row in reading.rejected] == [(3, True)]


def test_step_belongs_to_the_run_that_was_under_way() -> None:
    first, second = cells(7), cells(7)
    first[2], second[3], second[4], second[5] = "REQUEUED", "1751365000", "1751365000", "1751365060"
    step = cells(7, step=".0")
    step[4], step[5] = "1751364010", "1751364070"
    late = cells(7, step=".1")
    late[4], late[5] = "1751365001", "1751365090"
    reading = read_bytes(export(first, second, step, late))
    assert [(run.step_count, run.step_end) for run in reading.runs] == [
        (1, 1_751_364_070),
        (1, 1_751_365_090),
    ]
    early = cells(7, step=".2")
    early[4] = "1751363000"
    assert [s.job_id for s in read_bytes(export(first, early)).orphans] == ["7.2"]
