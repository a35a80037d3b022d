"""No reading is no evidence: it is said, with the reason, and weighs nothing."""

from __future__ import annotations


class NoReading(Exception):
    """A quantity cannot be read of a run, and why."""
