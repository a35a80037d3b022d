"""Runs the hooks as slurmd does: a process group of their own, output read to its end, then the group is killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from slurm_trace.node.lease import LeaseScan, read_leases

HOOKS = Path(str(files("slurm_trace.prolog_epilog")))
# What to execute, and the words before the script. A /bin/sh that is bash knows so by its name.
SHELLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dash": ("dash", ("dash",)),
    "bash": ("bash", ("bash",)),
    "bash as sh": ("bash", ("sh",)),
    "busybox sh": ("busybox", ("busybox", "sh")),
}
JOB: Mapping[str, str] = {
    "SLURM_JOB_ID": "4711",
    "SLURM_CLUSTER_NAME": "lab",
    "SLURMD_NODENAME": "n1",
    "SLURM_JOB_UID": "7001",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_ACCOUNT": "ml",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_START_TIME": "1796051971",
    "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_GPUS": "0,1",
    "CUDA_VISIBLE_DEVICES": "0,1",
}
Environment = Mapping[str, str] | Mapping[bytes, bytes]


@dataclass(frozen=True)
class Ran:
    """How a hook ended, what it wrote, how long it took, and whether any of its processes was left."""

    code: int
    output: bytes
    seconds: float
    left_over: bool


@dataclass
class HookBox:
    """A directory for leases, a configuration that names it, and the hooks in one shell."""

    root: Path
    shell: str = "dash"
    hooks: Path = HOOKS
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return self.root / "run"

    @property
    def leases(self) -> Path:
        return self.directory / "leases"

    def make(self) -> HookBox:
        self.leases.mkdir(parents=True)
        (self.directory / "sampler").mkdir()
        return self

    def configure(self, **settings: str) -> None:
        self.settings.update(settings)

    @property
    def config(self) -> Path:
        path = self.root / "hooks.conf"
        if not path.exists() or path.is_file():
            lines = {"directory": str(self.directory), **self.settings}
            text = "".join(f"{key}={value}\n" for key, value in lines.items())
            # Never while a hook may be reading it.
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        return path

    def run(
        self,
        hook: str,
        env: Environment,
        *,
        before: Callable[[], object] | None = None,
        cwd: Path | None = None,
        signal_after_s: float | None = None,
    ) -> Ran:
        program, words = SHELLS[self.shell]
        executable = shutil.which(program)
        assert executable, f"{program} is not installed"
        command = [*words, str(self.hooks / hook), str(self.config)]
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            executable=executable,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=before,
            cwd=cwd,
        )
        if signal_after_s is not None:
            time.sleep(signal_after_s)
            process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
        seconds = time.monotonic() - started
        left_over = _alive(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return Ran(process.returncode, output, seconds, left_over)

    def prolog(self, env: Environment = JOB) -> Ran:
        return self.run("prolog", env)

    def epilog(self, env: Environment = JOB) -> Ran:
        return self.run("epilog", env)

    def scan(self) -> LeaseScan:
        return read_leases(self.leases)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.leases.iterdir())


def _alive(group: int) -> bool:
    # The last child may need a moment to be reaped by init.
    for _ in range(20):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        if not _running(group):
            return False
        time.sleep(0.01)
    return True


def _running(group: int) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        # Not in the glob's pattern: it looks at each match, and a process that ends meanwhile is an error to it.
        with contextlib.suppress(OSError):
            words = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(words[2]) == group and words[0] not in "ZX":
                return True
    return False


def with_tools(box: HookBox, **scripts: str) -> Path:
    """The same hooks with some programs replaced by shell scripts. What `logger` gets goes to the returned file."""
    tools, log = box.root / "tools", box.root / "log"
    tools.mkdir()
    scripts = {"logger": f'printf "%s\\n" "$*" >>{log}', **scripts}
    for name, text in scripts.items():
        tool = tools / name
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(0o755)
    box.hooks = box.root / "hooks"
    shutil.copytree(HOOKS, box.hooks, ignore=shutil.ignore_patterns("__pycache__"))
    common = box.hooks / "common.sh"
    text, count = re.subn(r"^PATH=", f"PATH={tools}:", common.read_text(), flags=re.MULTILINE)
    assert count == 1
    if box.shell.startswith("busybox"):
        # It takes its own programs before those of the PATH.
        text += "".join(f'{name}() {{ {tools / name} "$@"; }}\n' for name in scripts if "-" not in name)
    common.write_text(text)
    return log
