"""`report` on what a real Slurm recorded, names with every trick included."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_trace.cli.main import app
from slurm_trace.errors import EnvironmentProblem


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with as_file(files("slurm_trace.examples") / "recorded") as recorded:
        for version in ("slurm-2205", "slurm-2411"):
            done = _call(path, "import", "sacct", f"{recorded}/{version}/sacct.txt", "--tz", "UTC")
            assert done.exit_code == 0, done.output
    return path


def _call(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--store", str(store), *arguments])


def test_the_report_of_the_recorded_cluster(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("an older report")
    done = _call(store, "report", "--html", str(target), "--threshold", "1e15", "--top", "200")
    assert done.exit_code == 0, done.output
    page = target.read_text(encoding="utf-8")
    assert "1.00&times;10<sup>15</sup>" in page
    assert "lab:2" in page
    assert "<script" not in page
    assert "complete: assumed" in page
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_nothing(store: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    done = _call(store, "report", "--html", str(tmp_path / "missing" / "report.html"))
    assert isinstance(done.exception, EnvironmentProblem)
    assert "name a file in a folder you may write to" in str(done.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
