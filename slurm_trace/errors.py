"""The one exception tree. Every message is a single line that names the remedy; none reaches a user as a traceback."""

from __future__ import annotations


class TraceError(Exception):
    """Anything that ends a command. `exit_code` follows the contract of the command line."""

    exit_code = 4


class CheckFailed(TraceError):
    """A check that was asked for did not hold (exit 1)."""

    exit_code = 1


class UsageProblem(TraceError):
    """The call cannot be carried out as it was given (exit 2)."""

    exit_code = 2


class InputProblem(TraceError):
    """The input is not what it should be; what was readable is kept (exit 3)."""

    exit_code = 3


class EnvironmentProblem(TraceError):
    """Slurm, the database or the file system failed (exit 4)."""

    exit_code = 4
