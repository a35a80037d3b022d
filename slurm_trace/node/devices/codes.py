"""What NVML's return codes (nvml.h, nvmlReturn_t) mean for a reading, as words of `errors.REASONS`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_REASONS = {
    1: "closed", 3: "not_supported", 4: "no_permission", 6: "not_found", 9: "driver_not_loaded", 10: "timeout",
    12: "library_missing", 13: "missing_symbol", 15: "lost", 16: "reset_required", 18: "driver_mismatch",
    21: "no_data", 25: "not_supported", 26: "not_supported", 999: "unknown_error",
}  # fmt: skip
# What does not change while the driver stays loaded: such a call is not repeated.
LASTING = frozenset({"not_supported", "no_permission", "missing_symbol", "whole_card", "switched_off"})
# After these the card answers nothing more.
DEAD = frozenset({"lost", "reset_required"})
# A rate over a longer time than this may be another job's.
STALE_US = 120_000_000


def reason_of(code: int) -> str:
    """The word for a return code."""
    return _REASONS.get(code, "other_error")


def commonest(reasons: Iterable[str]) -> str:
    """The reason that stands for several; of equally frequent ones the first by name."""
    counts = Counter(reasons)
    return min(counts, key=lambda reason: (-counts[reason], reason))
