"""The single file: built, and run from prolog to outbox by a real Python 3.9 with nothing installed beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from fake_nvml.build import build as build_fake_nvml

from slurm_trace.node.spool import read_spool
from slurm_trace.version import VERSION
from support.python39 import python39
from support.sampling import adds_up

ROOT = Path(__file__).parents[2]
CARDS = "".join(f"gpu H100 GPU-00000000-0000-0000-0000-00000000000{n}\n" for n in range(8))


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zipapp") / "slurm-trace-node.pyz"
    subprocess.run([sys.executable, str(ROOT / "prolog_epilog" / "zipapp_node.py"), str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def python() -> list[str]:
    return [*python39(), "-I"]


def test_it_is_a_program_by_itself(zipapp: Path) -> None:
    assert os.access(zipapp, os.X_OK)
    assert zipapp.read_bytes().startswith(b"#!/usr/bin/python3 -I\n")
    names = zipfile.ZipFile(zipapp).namelist()
    assert {"pynvml.py", "slurm_trace/node/main.py", "slurm_trace/errors.py"} <= set(names)
    assert not [name for name in names if name.startswith(("slurm_trace/cli", "slurm_trace/store"))]
    assert "nvidia_ml_py/METADATA" in names, "it names the licence of what is brought along"


def test_the_python_is_a_real_3_9(python: list[str], zipapp: Path) -> None:
    asked = "import sys, json; print(json.dumps([sys.implementation.name, sys.version_info[:2]]))"
    found = subprocess.run([*python, "-c", asked], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == ["cpython", [3, 9]]
    shown = subprocess.run([*python, str(zipapp), "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == VERSION


def test_every_module_can_be_imported_there(python: list[str], zipapp: Path) -> None:
    names = zipfile.ZipFile(zipapp).namelist()
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py") and not name.endswith("__main__.py")
    ]
    # amdsmi is AMD's own package, imported only where a source of that kind is made.
    code = f"import sys; sys.path.insert(0, {str(zipapp)!r})\n" + "".join(
        f"import {name}\n" for name in modules
    )
    done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(modules) > 25


def test_it_samples_nvml_from_prolog_to_outbox(python: list[str], zipapp: Path, tmp_path: Path) -> None:
    (tmp_path / "scenario").write_text(CARDS + "work 0 0 100000 hmma=0.5\n")
    leases = tmp_path / "run" / "leases"
    leases.mkdir(parents=True)
    environment = {
        **os.environ,
        "FAKE_NVML": str(tmp_path / "scenario"),
        "LD_LIBRARY_PATH": str(build_fake_nvml()),
    }
    settings = [
        "--directory",
        str(tmp_path / "run"),
        "--spool",
        str(tmp_path / "open"),
        "--interval-s",
        "0.2",
    ]
    # The start of the command line names the libraries of 3.9; the fake driver goes before them.
    words = [
        f"{word}:{environment['LD_LIBRARY_PATH']}" if word.startswith("LD_LIBRARY_PATH=") else word
        for word in python
    ]
    sampler = subprocess.Popen(
        [*words, str(zipapp), "run", *settings], env=environment, stderr=subprocess.PIPE
    )
    try:
        uptime = Path("/proc/uptime").read_text().split()[0]
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        stem = f"7.{uptime.replace('.', '')}"
        lines = f"version=1\njob_id=7\ncluster=hill\nnode=n1\nboot_id={boot_id}\nuptime={uptime}\n"
        gpus = "gpus=0,1,2,3,4,5,6,7\n"
        (leases / ".lease").write_text(lines.replace("boot_id", gpus + "boot_id"))
        (leases / ".lease").rename(leases / f"{stem}.lease")
        until = time.monotonic() + 30
        while not list((tmp_path / "open").glob("*.open")) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.5)
        sampler.send_signal(signal.SIGTERM)
        _, errors = sampler.communicate(timeout=20)
    finally:
        sampler.kill()
    assert (sampler.returncode, errors) == (0, b"")
    (path,) = (tmp_path / "outbox").glob("*.spool")
    spool = read_spool(path)
    assert (spool.closed, len(spool.devices)) == ("stop", 8)
    assert spool.meta["source"] == "nvml"
    assert {read.moment for read in spool.counters} >= {"start", "stop"}
    assert sum(len(series.columns["mono_ms"]) for series in spool.samples()) >= 40
    adds_up(spool)
