"""`demo` runs anywhere from an install alone, shows the commands it runs, and leaves nothing but its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_trace.examples.generate import CLUSTER


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, str]:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "tmp").mkdir()
    command = [
        sys.executable,
        "-P",
        "-c",
        "from slurm_trace.cli.main import run; run()",
        "demo",
        "--jobs",
        "2000",
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder / "tmp"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, folder, done.stderr


def test_every_step_is_a_command_that_can_be_typed(shown: tuple[str, Path, str]) -> None:
    commands = [line for line in shown[0].splitlines() if line.startswith("$ ")]
    assert [line.split()[2] for line in commands] == [
        "store", "import", "import", "import", "import", "rank", "groups", "groups", "groups", "explain", "report",
    ]  # fmt: skip
    assert not any("/tmp/" in line for line in commands)


def test_it_finds_what_is_there_to_be_found(shown: tuple[str, Path, str]) -> None:
    out = shown[0]
    assert "4.67e23" in out
    assert f"{CLUSTER}:" in out
    assert "lab:" in out
    assert "sum: " in out
    assert "NOT_RULED_OUT" in out


def test_it_leaves_nothing_but_the_report(shown: tuple[str, Path, str]) -> None:
    folder = shown[1]
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left == {"tmp", "report.html"}
    assert "<!doctype html>" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_warning_is_given_once(shown: tuple[str, Path, str]) -> None:
    warnings = [line for line in shown[2].splitlines() if line.startswith("warning: ")]
    assert any("job ids from" in line for line in warnings)
    assert len(warnings) == len(set(warnings))
