"""Runs Slurm's own commands: clean environment, time limit, exit status, errors in one line.

Times are asked for in UTC epoch seconds, so that neither the zone of this host nor a DST fold can change one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from slurm_trace.errors import EnvironmentProblem

CALL_LIMIT_S = 300.0
SHORT_LIMIT_S = 60.0
# Before the second, third and fourth try: slurmdbd restarts, or is busy.
BACKOFF_S = (2.0, 10.0, 30.0)
_STDERR_SHOWN = 300
_STDERR_READ = 64 * 1024

# Where the configuration is and who we are; any other SLURM_* or SACCT_* variable changes what sacct answers.
_KEPT = ("SLURM_CONF", "SLURM_JWT")
_DROPPED = ("SLURM_", "SACCT_", "SACCTMGR_", "SCONTROL_", "SINFO_", "LC_", "LANG")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. `status` is None if it ran past its limit and was killed."""

    status: int | None
    stderr: str

    @property
    def reason(self) -> str:
        """Exit status and standard error in one line."""
        ended = "no answer in time" if self.status is None else f"exit {self.status}"
        said = "; ".join(line.strip() for line in self.stderr.splitlines() if line.strip())
        if len(said) > _STDERR_SHOWN:
            said = said[:_STDERR_SHOWN] + " ..."
        return f"{ended}: {said}" if said else ended


class Runner(Protocol):
    """Runs one command to its end, its output into a file."""

    def run(self, argv: Sequence[str], stdout: IO[bytes], limit_s: float) -> Finished:
        """Run `argv`; kill it after `limit_s` seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        ...

    def now(self) -> int:
        """UTC epoch seconds."""
        ...


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a Slurm command: no user's defaults, UTC, epoch seconds, UTF-8."""
    kept = {
        name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_DROPPED)
    }
    return kept | {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


class SubprocessRunner:
    """The real thing. Each command gets its own process group, so that nothing of it outlives its limit."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = clean_environment(os.environ if environment is None else environment)

    def run(self, argv: Sequence[str], stdout: IO[bytes], limit_s: float) -> Finished:
        """Run `argv`, see Runner.

        Raises:
            EnvironmentProblem: The command cannot be started.
        """
        with tempfile.TemporaryFile() as stderr:
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentProblem(
                    f"cannot run {argv[0]}: {error.strerror}; run this where Slurm's client commands are "
                    "on PATH, or import a file written by sacct"
                ) from error
            status: int | None = None
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _end(process)
            stderr.seek(0)
            return Finished(status, stderr.read(_STDERR_READ).decode("utf-8", "replace"))

    def sleep(self, seconds: float) -> None:
        """Wait, see Runner."""
        time.sleep(seconds)

    def now(self) -> int:
        """UTC epoch seconds."""
        return int(time.time())


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def ask(
    runner: Runner, argv: Sequence[str], *, pauses: Sequence[float] = (), limit_s: float = SHORT_LIMIT_S
) -> str:
    """Standard output of a short command.

    Args:
        runner: Runs it.
        argv: The command.
        pauses: Seconds to wait before each further try.
        limit_s: Time limit of one try.

    Raises:
        EnvironmentProblem: It failed to the last, did not answer in time, or said nothing.
    """
    for pause_s in (*pauses, None):
        with tempfile.TemporaryFile() as stdout:
            finished = runner.run(argv, stdout, limit_s)
            stdout.seek(0)
            text = stdout.read().decode("utf-8", "replace")
        if finished.status == 0 and text.strip():
            return text
        if pause_s is not None:
            runner.sleep(pause_s)
    what = "failed" if finished.status != 0 else "said nothing"
    raise EnvironmentProblem(f"{' '.join(argv)} {what} ({finished.reason}); try again when Slurm answers")
