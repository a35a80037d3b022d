"""What names a file answers alike everywhere: 2 where another name helps, 3 where the content is wrong."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_trace.cli.main import app
from slurm_trace.errors import EnvironmentProblem, InputProblem, TraceError, UsageProblem, unreadable
from tests.support.world import T0, Job, sacct_text

READ = {
    "--config": ("--config", "{}", "rank"),
    "SLURM_TRACE_CONFIG": ("rank",),
    "rank --rates-overlay": ("rank", "--rates-overlay", "{}"),
    "explain --rates-overlay": ("explain", "1", "--rates-overlay", "{}"),
    "groups --rates-overlay": ("groups", "--rates-overlay", "{}"),
    "report --rates-overlay": ("report", "--html", "page.html", "--rates-overlay", "{}"),
    "rates --rates-overlay": ("rates", "--rates-overlay", "{}"),
    "thresholds --rates-overlay": ("thresholds", "--rates-overlay", "{}"),
    "feed --rates-overlay": ("feed", "--rates-overlay", "{}"),
    "site probe --rates-overlay": ("site", "probe", "--output", "site.toml", "--rates-overlay", "{}"),
    "rules compare --rates-overlay": ("rules", "compare", "--from", "1", "--rates-overlay", "{}"),
    "groups --sreport": ("groups", "--sreport", "{}"),
    "import sacct": ("import", "sacct", "{}"),
    "import events": ("import", "events", "{}"),
    "import feed": ("import", "feed", "{}"),
    "hooks install --sampler": ("hooks", "install", "--root", "image", "--yes", "--sampler", "{}"),
}
"""Calls that read a file; {} is its name."""

FOLDERS = {
    "rules list --rules": ("rules", "list", "--rules", "{}"),
    "rules show --rules": ("rules", "show", "runaway", "--rules", "{}"),
    "rules compare --rules": ("rules", "compare", "--from", "1", "--rules", "{}"),
    "import spool": ("import", "spool", "{}"),
}
"""Calls that read a folder."""

WRITTEN = {
    "report --html": ("report", "--html", "{}"),
    "demo --output": ("demo", "--jobs", "1000", "--output", "{}"),
    "site probe --output": ("site", "probe", "--force", "--output", "{}"),
}
"""Calls that write a file."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_TRACE_STORE", str(tmp_path / "store.db"))
    job = Job(
        number=1, submit=T0, start=T0, end=T0 + 60, stopped_s=60, suspended_s=0, state="COMPLETED", nodes=1,
        gpus=8, gpu_type="h100", cpus=64, flop=0,
    )  # fmt: skip
    Path("export").write_bytes(sacct_text([job.row()]))
    assert CliRunner().invoke(app, ["import", "sacct", "export", "--tz", "UTC"]).exit_code == 0

    def invoke(arguments: tuple[str, ...], name: str) -> TraceError:
        environment = {} if "{}" in arguments else {"SLURM_TRACE_CONFIG": name}
        done = CliRunner().invoke(app, [one.format(name) for one in arguments], env=environment)
        assert isinstance(done.exception, TraceError), (done.exception, done.output)
        return done.exception

    return invoke


@pytest.mark.parametrize("what", [*READ, *FOLDERS])
def test_what_is_not_there_is_2(call, what: str) -> None:
    problem = call((READ | FOLDERS)[what], "no/such")
    assert isinstance(problem, UsageProblem)
    assert re.fullmatch(r"no/such: No such file or directory; name .+", str(problem))


@pytest.mark.parametrize("what", READ)
def test_a_folder_in_the_place_of_a_file_is_2(call, what: str) -> None:
    Path("folder").mkdir()
    problem = call(READ[what], "folder")
    assert isinstance(problem, UsageProblem)
    assert re.fullmatch(r"folder: Is a directory; name .+", str(problem))


@pytest.mark.parametrize("what", [name for name in FOLDERS if "--rules" in name])
def test_a_file_in_the_place_of_a_folder_is_2(call, what: str) -> None:
    problem = call(FOLDERS[what], "export")
    assert isinstance(problem, UsageProblem)
    assert re.fullmatch(r"export: Not a directory; name .+", str(problem))


@pytest.mark.parametrize("content", [b"prose that is nothing\n", b"\xff\xfe\x00bytes", b"{", b"[1]"])
@pytest.mark.parametrize("what", READ)
def test_a_file_of_something_else_is_3(call, what: str, content: bytes) -> None:
    Path("odd").write_bytes(content)
    problem = call(READ[what], "odd")
    assert isinstance(problem, InputProblem)
    assert "odd" in str(problem).partition(";")[0]
    assert "; " in str(problem)
    assert "\n" not in str(problem)


@pytest.mark.parametrize("what", WRITTEN)
def test_a_folder_in_the_place_of_a_file_to_write_is_2(call, what: str) -> None:
    Path("folder").mkdir()
    assert isinstance(call(WRITTEN[what], "folder"), UsageProblem)
    assert not list(Path("folder").iterdir())


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, UsageProblem),
        (errno.EACCES, UsageProblem),
        (errno.ELOOP, UsageProblem),
        (errno.EIO, EnvironmentProblem),
        (errno.ESTALE, EnvironmentProblem),
        (errno.EMFILE, EnvironmentProblem),
    ],
)
def test_what_another_name_does_not_help_is_the_system(number: int, kind: type[TraceError]) -> None:
    problem = unreadable("here", OSError(number, os.strerror(number)), "name another")
    assert type(problem) is kind
    assert str(problem) == f"here: {os.strerror(number)}; name another"


def test_a_name_that_no_file_can_have_is_2() -> None:
    with pytest.raises(ValueError, match="null byte") as error:
        Path("a\0b").stat()
    assert type(unreadable("a", error.value, "name another")) is UsageProblem
