"""`node doctor` finds what would hurt, and says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_trace.errors import EnvironmentProblem
from slurm_trace.node import checks
from slurm_trace.node.checks import Check, Place, run_checks
from slurm_trace.node.devices.base import DeviceInfo
from support.hooks import HOOKS

GOOD_CONF = """\
Prolog={hooks}/prolog
Epilog={hooks}/epilog
PrologFlags=Alloc # on every node
AccountingStorageTRES=gres/gpu,gres/gpu:h100
"""


def card(index: int, minor: int, persistence: bool = True) -> DeviceInfo:
    return DeviceInfo(
        uuid=f"GPU-{minor}",
        name="H100",
        index=index,
        minor=minor,
        pci=f"00000000:{minor}b:00.0",
        persistence=persistence,
    )


def source_of(devices: list[DeviceInfo]) -> SimpleNamespace:
    return SimpleNamespace(open=lambda: None, close=lambda: None, devices=lambda: devices)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A node without fault, as far as a directory of a test can be one."""
    hooks = tmp_path / "hooks"
    shutil.copytree(HOOKS, hooks, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "run" / "leases").mkdir(parents=True)
    (tmp_path / "run" / "sampler").mkdir()
    (tmp_path / "spool").mkdir()
    (tmp_path / "slurm.conf").write_text(GOOD_CONF.format(hooks=hooks))
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia[0-1]\n")
    return Place(
        directory=tmp_path / "run",
        spool=tmp_path / "spool",
        gres_conf=tmp_path / "gres.conf",
        hooks=hooks,
        slurm_conf=tmp_path / "slurm.conf",
        node="n1",
        source=lambda: source_of([card(0, 0), card(1, 1)]),  # type: ignore[arg-type,return-value]
    )


def find(place: Place, name: str) -> list[Check]:
    return [check for check in run_checks(place) if check.name == name]


def changed(place: Place, **values: object) -> Place:
    return Place(**{**vars(place), **values})  # type: ignore[arg-type]


def test_healthy_node(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # How busy the machine of a test is says nothing.
    monkeypatch.setattr(checks, "_SLOW_MS", 10_000.0)
    status = {
        check.name: check.status for check in run_checks(place) if check.name not in ("sampler", "clock")
    }
    assert set(status.values()) <= {"ok"} or os.geteuid() != 0, status
    (run,) = find(place, "hook run")
    assert run.status == "ok"
    assert "prolog" in run.text
    assert list(place.directory.glob("leases/*")) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("#!/bin/sh\nexit 1\n", "ended with 1: would drain the node"),
        ("#!/bin/sh\nexit 0\n", "0 of 20 leases were written"),
        ("#!/none/sh\n", "a job here would drain the node"),
        ("#!/bin/sh\nsleep 600\n", "timed out"),
    ],
)
def test_hook_that_would_hurt(place: Place, monkeypatch: pytest.MonkeyPatch, text: str, part: str) -> None:
    monkeypatch.setattr(checks, "_TOOL_S", 0.5)
    (place.hooks / "prolog").write_text(text)
    (check,) = find(place, "hook run")
    assert (check.status, part in check.text) == ("fail", True), check.text


def test_missing_hook(place: Place) -> None:
    (place.hooks / "common.sh").unlink()
    (check,) = find(place, "hooks")
    assert check.status == "fail"
    assert "hooks install" in check.text


def test_hook_that_others_can_write(place: Place) -> None:
    (place.hooks / "prolog").chmod(0o777)
    texts = [check.text for check in find(place, "hooks")]
    assert any("chmod go-w" in text for text in texts)


@pytest.mark.parametrize(
    ("before", "after", "name", "status"),
    [
        ("Prolog=", "#Prolog=", "Prolog", "fail"),
        ("/epilog\n", "/epilog.none\n", "Epilog", "fail"),
        ("PrologFlags=Alloc", "PrologFlags=NoHold", "PrologFlags", "warn"),
        ("PrologFlags=Alloc", "prologflags = contain,x11", "PrologFlags", "ok"),
        ("gres/gpu,", "", "AccountingStorageTRES", "fail"),
    ],
)
def test_slurm_conf(place: Place, before: str, after: str, name: str, status: str) -> None:
    assert place.slurm_conf is not None
    place.slurm_conf.write_text(place.slurm_conf.read_text().replace(before, after, 1))
    (check,) = find(place, name)
    assert check.status == status


def test_prolog_in_a_directory_of_drop_ins(place: Place, tmp_path: Path) -> None:
    assert place.slurm_conf is not None
    folder = tmp_path / "prolog.d"
    folder.mkdir()
    (folder / "50-ours").write_text(f"#!/bin/sh\n{place.hooks}/prolog\n")
    text = place.slurm_conf.read_text().replace(f"{place.hooks}/prolog", f"{folder}/*")
    place.slurm_conf.write_text(text)
    assert find(place, "Prolog")[0].status == "ok"
    (folder / "50-ours").unlink()
    assert find(place, "Prolog")[0].status == "warn"


def test_slurm_conf_that_is_not_there(place: Place, tmp_path: Path) -> None:
    (check,) = find(changed(place, slurm_conf=tmp_path / "none"), "slurm.conf")
    assert check.status == "unknown"


def test_order_of_gpus(place: Place) -> None:
    (check,) = find(place, "gres")
    assert (check.status, check.text) == ("ok", "0→00000000:0b:00.0, 1→00000000:1b:00.0")
    turned = changed(place, source=lambda: source_of([card(0, 1), card(1, 0)]))
    assert "is not NVML's for 2" in find(turned, "gres")[0].text
    missing = changed(place, source=lambda: source_of([card(0, 0)]))
    assert find(missing, "gres")[0].status == "fail"
    place.gres_conf.write_text("Name=gpu Count=2\n")
    assert find(place, "gres")[0].status == "warn"


def test_persistence_that_is_off(place: Place) -> None:
    off = changed(place, source=lambda: source_of([card(0, 0, persistence=False), card(1, 1)]))
    (check,) = find(off, "persistence")
    assert (check.status, "1 of 2 cards" in check.text) == ("warn", True)


def test_driver_that_fails_or_hangs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise EnvironmentProblem("NVML does not start: install the driver")

    broken = SimpleNamespace(open=gone, close=lambda: None)
    (check,) = find(changed(place, source=lambda: broken), "devices")
    assert (check.status, check.text) == ("fail", "NVML does not start: install the driver")
    monkeypatch.setattr(checks, "_DRIVER_S", 0.1)
    hanging = SimpleNamespace(open=threading.Event().wait, close=lambda: None)
    (check,) = find(changed(place, source=lambda: hanging), "devices")
    assert "did not answer" in check.text


def test_spool(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(changed(place, spool=tmp_path / "none"), "spool")[0].status == "fail"
    monkeypatch.setattr(checks, "_file_system", lambda path: "nfs4")
    assert "need a local disk" in find(place, "spool")[0].text


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ({"chronyc": "System time     : 0.000012 seconds fast of NTP time\n"}, "ok"),
        ({"chronyc": "System time     : 7.500000 seconds slow of NTP time\n"}, "warn"),
        ({"timedatectl": "NTPSynchronized=yes\n"}, "ok"),
        ({"timedatectl": "NTPSynchronized=no\n"}, "warn"),
        ({}, "unknown"),
    ],
)
def test_clock(place: Place, monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], status: str) -> None:
    monkeypatch.setattr(checks, "_tool", lambda *command: answers.get(command[0], ""))
    assert find(place, "clock")[0].status == status


def test_command_ends_with_one_where_a_check_failed(place: Place, tmp_path: Path) -> None:
    settings = tmp_path / "node.conf"
    settings.write_text(
        f"directory={place.directory}\nspool={tmp_path / 'none'}\ngres_conf={place.gres_conf}\n"
    )
    command = [
        sys.executable,
        "-c",
        "from slurm_trace.cli.main import run; run()",
        "node",
        "doctor",
        "--json",
    ]
    command += ["--config", str(settings), "--hooks", str(place.hooks), "--slurm-conf", str(place.slurm_conf)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert ended.returncode == 1, ended.stderr
    report = json.loads(ended.stdout)
    assert report["schema"] == "slurm-trace/node-doctor/1"
    status = {check["name"]: check["status"] for check in report["checks"]}
    assert status["hook run"] in ("ok", "warn")
    assert (status["spool"], status["PrologFlags"]) == ("fail", "ok")


def test_what_this_user_may_not_see_is_unknown(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become a user without rights")
    locked = place.spool.with_name("locked")
    (locked / "open").mkdir(parents=True)
    locked.chmod(0o700)
    place = replace(place, spool=locked / "open", hooks=locked / "open")
    for parent in locked.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        found = list(run_checks(place))
    finally:
        os.seteuid(0)
    assert [(one.name, one.status) for one in found if one.name in ("hooks", "spool")] == [
        ("hooks", "unknown"),
        ("spool", "unknown"),
    ]
    assert all("run this as root" in one.text for one in found if one.name in ("hooks", "spool"))


def test_library_that_fails_in_its_own_way_is_not_one_that_hangs(place: Place) -> None:
    def broken() -> SimpleNamespace:
        raise ValueError("no such symbol")

    (devices,) = [one for one in run_checks(replace(place, source=broken)) if one.name == "devices"]
    assert devices.status == "fail"
    assert "ValueError: no such symbol" in devices.text
