"""What can go wrong with a device source. Every one carries `reason`, a word of `REASONS`, for the record."""

from __future__ import annotations

from slurm_trace.errors import EnvironmentProblem

# The vocabulary of missing values, gaps and capabilities; docs/FIELDS.md prints it.
REASONS = {
    "ok": "the value can be read",
    "not_supported": "this card, driver or mode has no such value",
    "no_permission": "the driver keeps it from this user",
    "missing_symbol": "the installed driver library is too old to know the call",
    "whole_card": "counts the whole card, and this device is a part of it: read the parent",
    "switched_off": "left out by configuration",
    "sentinel": "the driver answered with a number that stands for no value",
    "out_of_range": "the driver answered with a number outside the possible range",
    "no_data": "the driver has no value at present",
    "first_read": "a rate needs an earlier reading",
    "counter_restarted": "a counter went backwards: no rate over that step",
    "unknown_error": "the driver says only that something went wrong",
    "timeout": "the driver gave up on the call",
    "lost": "the card has fallen off the bus",
    "reset_required": "the card has to be reset before it answers again",
    "not_found": "the driver does not know the card, or the entry",
    "library_missing": "no driver library on this node",
    "driver_not_loaded": "the kernel driver is not loaded",
    "driver_mismatch": "library and kernel driver are of different versions: a new process is needed",
    "closed": "the source is not open",
    "other_error": "the driver answered with another error code",
}


class DeviceProblem(EnvironmentProblem):
    """A device or its driver did not answer as it should."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class SourceGone(DeviceProblem):
    """No device can be read: library, driver or rights are missing. Close the source, try again later."""


class DeviceLost(DeviceProblem):
    """One device does not answer at all. Others may: close and open again to find it by its UUID."""

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(
            f"{uuid} does not answer ({reason}); a reset or reboot of the card may be needed", reason
        )
        self.uuid = uuid


class NotSupported(DeviceProblem):
    """What was asked for does not exist on this device, for the reason given."""
