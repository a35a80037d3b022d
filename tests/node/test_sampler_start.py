"""Where hooks.conf says so, the first prolog starts the sampler; it outlives the prolog and is started once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hooks import JOB, SHELLS, HookBox, with_tools

# Says what a process started by a hook must not have: the hook's streams, its environment, its session.
SAMPLER = """\
exec >{root}/started.$$
env
ls -l /proc/$$/fd
read -r stat </proc/$$/stat
set -- ${{stat##*) }}
echo "session=$4 group=$3"
echo "$$ ${{20}}" >{root}/run/sampler/pid
exec sleep 60
"""


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HookBox]:
    box = HookBox(tmp_path, request.param).make()
    sampler = tmp_path / "sampler"
    sampler.write_text("#!/bin/bash\n" + SAMPLER.format(root=tmp_path))
    sampler.chmod(0o755)
    box.configure(sampler_command=f"{sampler} run --until-idle", sampler_user="root", sampler_start="setsid")
    yield box
    pid = box.directory / "sampler" / "pid"
    if pid.exists():
        os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)


def wait_for_sampler(box: HookBox) -> int:
    pid = box.directory / "sampler" / "pid"
    for _ in range(200):
        if pid.exists() and pid.read_text().strip():
            return int(pid.read_text().split()[0])
        time.sleep(0.02)
    pytest.fail("no sampler was started")


def test_setsid_starts_it_once_and_it_outlives_the_prolog(box: HookBox) -> None:
    ran = box.prolog()
    assert (ran.code, ran.output, ran.left_over) == (0, b"", False)
    pid = wait_for_sampler(box)
    box.prolog({**JOB, "SLURM_JOB_ID": "4712"})
    time.sleep(0.2)
    os.kill(pid, 0)
    (report,) = box.root.glob("started.*")
    text = report.read_text()
    assert "SLURM" not in text
    assert "CUDA" not in text
    assert "pipe:" not in text
    assert os.getsid(pid) not in (os.getsid(0), os.getpgid(0))


def test_sampler_that_died_is_started_again(box: HookBox) -> None:
    box.prolog()
    pid = wait_for_sampler(box)
    os.kill(pid, signal.SIGKILL)
    (box.directory / "sampler" / "pid").write_text(f"{os.getpid()} 1\n")
    box.prolog({**JOB, "SLURM_JOB_ID": "4712"})
    for _ in range(200):
        if len(list(box.root.glob("started.*"))) == 2:
            break
        time.sleep(0.02)
    assert len(list(box.root.glob("started.*"))) == 2
    time.sleep(0.1)


def test_systemd_run_is_asked_not_to_wait(box: HookBox) -> None:
    with_tools(box, **{"systemd-run": f'printf "%s\\n" "$@" >{box.root}/asked'})
    box.configure(sampler_start="systemd", sampler_user="slurm-trace")
    assert box.prolog().code == 0
    asked = (box.root / "asked").read_text().splitlines()
    assert {"--no-block", "--collect", "--uid=slurm-trace", "-p", "NoNewPrivileges=yes"} <= set(asked)
    assert asked[-3:] == [f"{box.root}/sampler", "run", "--until-idle"]


@pytest.mark.parametrize("text", ["exit 1", "exec sleep 600"])
def test_systemd_run_that_fails_or_hangs_costs_no_lease(box: HookBox, text: str) -> None:
    log = with_tools(box, **{"systemd-run": text})
    box.configure(sampler_start="systemd")
    ran = box.prolog()
    assert ran.code == 0
    assert len(box.scan().open) == 1
    assert log.read_text().count("\n") == 1


def test_by_default_nothing_is_started(box: HookBox) -> None:
    box.configure(sampler_start="no")
    box.prolog()
    time.sleep(0.1)
    assert list(box.root.glob("started.*")) == []


def test_start_script_that_is_missing_is_said(box: HookBox) -> None:
    log = with_tools(box)
    (box.hooks / "sampler.sh").unlink()
    ran = box.prolog()
    assert (ran.code, ran.output) == (0, b"")
    assert "sampler.sh: no sampler is started" in log.read_text()
    assert len(box.scan().open) == 1
