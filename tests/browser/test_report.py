"""A real browser shows the report: no script runs, no request leaves, and names out of records stay text."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from slurm_trace.analysis.picture import histogram
from slurm_trace.analysis.report import render
from support.reports import HOSTILE, RULES, THRESHOLDS, T, grouped, ranking

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    bounds = histogram([10.0 ** (12 + i % 12) * (1 + i % 7) for i in range(5000)], T)
    path.write_text(render(ranking(), grouped(), THRESHOLDS, bounds, RULES), encoding="utf-8")
    return path


def _chromium(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("chromium")
    assert command, "no chromium; `make test` as root installs it"
    profile = page.with_name("profile")
    return subprocess.run(
        [
            command,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            *arguments,
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_page_as_the_browser_understood_it(page: Path) -> None:
    done = _chromium(page, "--dump-dom")
    assert "<title>Compute threshold report: eu-gpai</title>" in done.stdout
    assert "<script" not in done.stdout
    assert "<img" not in done.stdout
    assert HOSTILE[0].replace("<", "&lt;").replace(">", "&gt;") in done.stdout
    assert done.stdout.count("<circle") > 80
    assert ":CONSOLE" not in done.stderr, "the browser had something to complain about"


@pytest.mark.parametrize("width", [1280, 480])
def test_it_can_be_looked_at(page: Path, width: int) -> None:
    shot = page.with_name(f"report-{width}.png")
    _chromium(page, f"--window-size={width},1600", f"--screenshot={shot}")
    data = shot.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (width, 1600)
    assert len(data) > 20_000, "an empty page"
