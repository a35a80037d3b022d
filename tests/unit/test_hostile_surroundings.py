"""Commands whose streams, arguments and files are the worst that a shell can hand them: a code and one line each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_trace.analysis.thresholds import Thresholds
from slurm_trace.errors import InputProblem, UsageProblem
from slurm_trace.site.profile import load_profile
from slurm_trace.store.location import parse_location

EXPORT = (
    "JobIDRaw|JobID|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES|NodeList\n"
    "1|1|lab|COMPLETED|1740823200|1740823260|1740826860|3600|1|cpu=4,gres/gpu=1,node=1|n1\n"
)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a line of shell in which `$ST` is the command; returns its code and what it said on stderr."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(EXPORT)

    def line(text):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "SLURM_TRACE_STORE": str(tmp_path / "store"),
            "ST": f"{sys.executable} -c 'from slurm_trace.cli.main import run; run()'",
        }
        done = subprocess.run(
            ["bash", "-c", text.replace("$ST", environment["ST"])],
            capture_output=True, env=environment, timeout=120, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr
        assert b"Traceback" not in done.stdout
        return done.returncode, done.stderr.decode()

    return line


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_streams_that_are_closed(shell, form):
    call = f"$ST import sacct a.txt --format {form}"
    assert shell(f"{call} >&-") == (0, "")
    assert shell(f"{call} 2>&-") == (0, "")
    assert shell(f"{call} <&- >&- 2>&-") == (0, "")


def test_standard_input_that_is_closed(shell):
    code, said = shell("$ST import sacct - <&-")
    assert code == 3
    assert "empty output" in said


@pytest.mark.parametrize("call", ["rates", "rates --json", "rates --format csv", "--help"])
def test_full_disk_behind_standard_output(shell, call):
    code, said = shell(f"$ST {call} >/dev/full")
    assert code == 4
    assert said == (
        "slurm-trace: standard output: No space left on device; what was printed is not whole, make room and repeat\n"
    )


@pytest.mark.parametrize("call", ["rates --json", "rates --format csv", "rates"])
def test_reader_that_leaves_early_is_no_failure(shell, call):
    assert shell(f"$ST {call} | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}") == (0, "")


def test_narrow_encoding(shell):
    Path("a.txt").write_text(EXPORT.replace("|lab|", "|Zürich|"))
    assert shell("$ST import sacct a.txt")[0] == 0
    assert shell("PYTHONIOENCODING=ascii $ST groups --by cluster")[0] == 0


@pytest.mark.parametrize(
    "call", ["import sacct $'a\\xff'", "import sacct a.txt --cluster $'\\xff'", "explain $'\\xff'"]
)
def test_arguments_that_are_no_text(shell, call):
    code, said = shell(f"$ST {call}")
    assert code == 2
    assert "is no UTF-8" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("call", "code", "word"),
    [
        ("import events /dev/zero", 3, "line 1: no output of `sacctmgr show event`"),
        ("import sacct /dev/zero", 3, "no UTF-8 text"),
        ("import events /proc/self/mem", 4, "Input/output error after 0 bytes"),
        (f"import sacct {'x' * 5000}", 2, "File name too long"),
        ("thresholds --rates-overlay /dev/zero", 3, "longer than 16 MiB"),
        ("--config /dev/zero site show", 3, "longer than 16 MiB"),
    ],
)
def test_files_that_are_none(shell, call, code, word):
    shell("$ST import sacct a.txt")
    assert shell(f"ulimit -v 2000000; $ST {call}")[0] == code
    assert word in shell(f"$ST {call}")[1]


@pytest.mark.parametrize("kind", ["fifo", "folder", "nothing"])
def test_report_replaces_files_only(shell, kind):
    shell("$ST import sacct a.txt; mkfifo fifo; mkdir folder")
    target = "" if kind == "nothing" else kind
    assert shell(f"$ST report --html '{target}'")[0] == 2
    assert Path("fifo").is_fifo()
    assert Path("folder").is_dir()


def test_report_leaves_a_link(shell):
    Path("real.html").touch()
    Path("link.html").symlink_to("real.html")
    shell("$ST import sacct a.txt")
    assert shell("$ST report --html link.html")[0] == 0
    assert Path("link.html").is_symlink()
    assert Path("real.html").read_text().startswith("<!")


def test_line_without_end_among_events(shell):
    header = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason\n"
    row = "lab|{}|2025-03-01T10:00:00|2025-03-02T10:00:00|DOWN|{}\n"
    Path("e.txt").write_text(header + row.format("n1", "x" * (5 << 20)) + row.format("n2", "y"))
    assert shell("$ST import events e.txt --tz UTC")[0] == 0
    code, _ = shell("$ST import events e.txt --tz UTC --format csv | grep -q '^2,2,0,0,2,0,0$'")
    assert code == 0


def test_terminal_is_not_steered_by_an_error(shell):
    code, said = shell("$ST --store $'/nowhere/\\e[31m' rank")
    assert code == 4
    assert "\x1b" not in said


def test_no_home(monkeypatch):
    with pytest.raises(UsageProblem, match="no home directory"):
        parse_location("~nobody-has-this-name/store")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", "a=" + "[" * 100_000),
        ("a.toml", "a=" + "9" * 5_000),
        ("a.toml", "a=1e99999999999999999999"),
        ("a.json", "[" * 100_000),
        ("a.json", '{"devices":[{"id":' + "9" * 5_000 + "}]}"),
        ("a.json", '{"devices":[{"id":1e99999999999999999999}]}'),
    ],
)
def test_documents_that_no_parser_takes(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputProblem, match=r"not valid (TOML|JSON) \(.+\); correct it there"):
        Thresholds.load(path)
    with pytest.raises(InputProblem):
        load_profile(path)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_dates_of_a_profile_that_no_clock_shows(tmp_path, moment):
    path = tmp_path / "site.toml"
    path.write_text(f'[clusters.a]\nnodes=[{{hosts="n1",from="{moment}"}}]\n')
    with pytest.raises(InputProblem, match="write dates of the years"):
        load_profile(path)
