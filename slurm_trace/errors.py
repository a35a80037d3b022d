"""The one exception tree. Every message is a single line that names the remedy; none reaches a user as a traceback."""

from __future__ import annotations

import errno

_ANOTHER_NAME_HELPS = frozenset(
    {
        errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG,
        errno.ENXIO,
    }
)  # fmt: skip


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


def unreadable(name: object, error: OSError | ValueError, remedy: str) -> TraceError:
    """The error for a file or a folder that a call names and that cannot be read.

    Returns:
        UsageProblem where naming another one helps: it is not there, is no file, or is not this user's to read.
        EnvironmentProblem where the system failed.
    """
    failed = isinstance(error, OSError) and error.errno not in _ANOTHER_NAME_HELPS
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return (EnvironmentProblem if failed else UsageProblem)(f"{name}: {reason}; {remedy}")
