"""Which values no database can hold: one bad row must not take its whole block along."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import Any

from slurm_trace.accounting.records import RUN_FIELDS, RejectedRow, RunBlock
from slurm_trace.store.bulk import NO_INTEGER
from slurm_trace.store.models import NAME_MAX

INT_MAX = 2**63 - 1

_INTS = frozenset(
    (
        *(
            "job_id_raw",
            "run_key",
            "submit",
            "array_job_id",
            "het_job_id",
            "uid",
            "cancelled_by",
            "start",
            "end",
        ),
        *("elapsed_s", "suspended_s", "limit_s", "node_count", "cpu_count", "step_end", "step_count"),
        *("queried_at", "line"),
    )
)
_BOOLS = frozenset({"final", "started"})
_REQUIRED = frozenset(
    {"job_id_raw", "run_key", "job_id", "state", "final", "started", "source", "flags", "line"}
)
_TEXTS = tuple(i for i, name in enumerate(RUN_FIELDS) if name not in _INTS | _BOOLS | {"raw"})
_KEYS = tuple(RUN_FIELDS.index(name) for name in ("job_id_raw", "run_key"))


def has_unfit(block: RunBlock) -> bool:
    """A quick look for what would not make every driver raise: a NUL in a text, a key or a name too long."""
    if any(len(name) > NAME_MAX for name in set(block.column("cluster")) if name):
        return True
    try:
        for i in _KEYS:
            array("q", block.columns[i])
        return any("\0" in "".join(filter(None, block.columns[i])) for i in _TEXTS)
    except (OverflowError, TypeError):
        return True


def without_unfit(block: RunBlock) -> RunBlock:
    """The block with the rows that no database can hold among its rejected ones."""
    rows = list(zip(*block.columns, strict=True))
    reasons = [_reason(row) for row in rows]
    fits = [reason is None for reason in reasons]
    line, raw = RUN_FIELDS.index("line"), RUN_FIELDS.index("raw")
    rejected = [
        RejectedRow(row[line] if _is_int(row[line]) else 0, reason, bytes(row[raw]))
        for row, reason in zip(rows, reasons, strict=True)
        if reason is not None
    ]
    steps = [step for step in block.steps if text_reason(step.job_id) is None and _is_int(step.job_id_raw)]
    rejected += [
        RejectedRow(step.line, "the step's id cannot be stored", step.raw)
        for step in block.steps
        if step not in steps
    ]
    return RunBlock(
        tuple(list(compress(column, fits)) for column in block.columns),
        steps,
        block.steps_skipped - (len(block.steps) - len(steps)),
        block.rejected + rejected,
        block.warnings,
    )


def _reason(row: Sequence[Any]) -> str | None:
    for name, value in zip(RUN_FIELDS, row, strict=True):
        reason = _value_reason(name, value)
        if reason:
            return f"{name} {reason}"
    return None


def _value_reason(name: str, value: Any) -> str | None:
    if value is None:
        return "is missing" if name in _REQUIRED else None
    if name in _INTS:
        return None if _is_int(value) else "is no whole number of 64 bits"
    if name in _BOOLS:
        return None if isinstance(value, bool) else "is neither true nor false"
    if name == "raw":
        return None
    if name == "cluster" and isinstance(value, str) and len(value) > NAME_MAX:
        return f"is longer than {NAME_MAX} characters"
    return text_reason(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and NO_INTEGER < value <= INT_MAX


def text_reason(value: Any) -> str | None:
    """Why a text cannot be stored; None if it can."""
    if not isinstance(value, str):
        return "is no text"
    if "\0" in value:
        return "holds a NUL character"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds half a surrogate pair"
    return None


def storable(text: str) -> str:
    """A text of our own making, with what no database can hold replaced."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
