"""What two accounts of one run become, in whatever order they come.

A run is a list of values in the order of MODEL, the columns of `job_run` that describe it.
"""

from __future__ import annotations

from typing import Any

from slurm_trace.store.models import job_run

PROVENANCE = ("import_id", "line", "raw_block_id", "raw_at", "raw_size")
"""Columns of `job_run` that say where the account in it came from."""

MODEL: tuple[str, ...] = tuple(c.name for c in job_run.columns if c.name not in ("id", *PROVENANCE))
AT: dict[str, int] = {name: i for i, name in enumerate(MODEL)}

Run = list[Any]

_KEY, _SUBMIT, _FLAGS, _SOURCE = AT["run_key"], AT["submit"], AT["flags"], AT["source"]
_FINAL, _START, _STARTED, _QUERIED = AT["final"], AT["start"], AT["started"], AT["queried_at"]
_LONGEST = (AT["end"], AT["elapsed_s"], AT["suspended_s"])
_STEPS = (AT["step_end"], AT["step_count"])
_ELAPSED, _ALLOCATION = AT["elapsed_s"], AT["allocation_id"]
_NODES, _NODE_LIST, _CPUS = AT["node_count"], AT["node_list"], AT["cpu_count"]

SHORTENED, ALLOC_CHANGED = "shortened", "alloc_changed"
"""Flags of a final row that a later account contradicts: in its times, in what it was given."""

STEP_SOURCE = "step"
"""Source of a run that only its steps are known of."""


FINAL = 3


def finality(run: Run) -> int:
    """0 steps only, 1 not final, 2 ended but too young to be final, 3 final."""
    if run[_FINAL]:
        return FINAL
    if run[_SOURCE] == STEP_SOURCE:
        return 0
    return 2 if "settling" in run[_FLAGS].split() else 1


def identity_incomplete(run: Run) -> bool:
    """Whether the run is keyed by its Start, or by less, because its row had no Submit."""
    return run[_SUBMIT] is None and "identity_incomplete" in run[_FLAGS].split()


def same(stored: Run, other: Run) -> bool:
    """Whether two accounts say the same, wherever each was read from."""
    return (
        stored[:_SOURCE] == other[:_SOURCE]
        and stored[_SOURCE + 1 : _FLAGS] == other[_SOURCE + 1 : _FLAGS]
        and (
            stored[_FLAGS] == other[_FLAGS]
            or _without(stored[_FLAGS], SHORTENED, ALLOC_CHANGED) == other[_FLAGS]
        )
    )


def merge(stored: Run, new: Run) -> tuple[Run, bool]:
    """Merge a new account of a run into the stored one.

    Of two final accounts the new one's allocation stands: `RunTable` has put into it what either says.

    Returns:
        The run, and whether the new account is what it is now based on.
    """
    old_rank, new_rank = finality(stored), finality(new)
    if old_rank != new_rank:
        base, other = (new, stored) if new_rank > old_rank else (stored, new)
        result = list(base)
    elif new_rank == FINAL:
        base, other = _order(stored, new, _length)
        result = _merge_final(base, other)
        if new[_ALLOCATION] is not None:
            result[_ALLOCATION] = new[_ALLOCATION]
    else:
        base, other = _order(stored, new, _progress)
        result = list(base)
    for i in _STEPS:
        result[i] = _largest(base[i], other[i])
    if identity_incomplete(base) and not identity_incomplete(other):
        result[_KEY], result[_SUBMIT] = other[_KEY], other[_SUBMIT]
        result[_FLAGS] = _without(result[_FLAGS], "identity_incomplete")
    return result, base is new


def _order(stored: Run, new: Run, weight: Any) -> tuple[Run, Run]:
    """The one that wins first. Where nothing tells them apart the later import does."""
    old, young = weight(stored), weight(new)
    return (stored, new) if old > young else (new, stored)


def _length(run: Run) -> tuple[float, ...]:
    start = run[_START]
    return (
        *(-1 if run[i] is None else run[i] for i in _LONGEST),
        float("-inf") if start is None else -start,
        not identity_incomplete(run),
    )


def _progress(run: Run) -> tuple[float, ...]:
    return (
        *(-1 if run[i] is None else run[i] for i in (_QUERIED, _ELAPSED)),
        run[_STARTED],
        run[_START] is not None,
        not identity_incomplete(run),
    )


def _merge_final(base: Run, other: Run) -> Run:
    """Both are final: each fills in what the other lacks; where they disagree the longer and the more stays."""
    result = [b if b is not None else o for b, o in zip(base, other, strict=True)]
    for i in _LONGEST:
        result[i] = _largest(base[i], other[i])
    if base[_START] is not None and other[_START] is not None:
        result[_START] = min(base[_START], other[_START])
    if (other[_NODES] or 0) > (base[_NODES] or 0) and other[_NODE_LIST] is not None:
        result[_NODE_LIST] = other[_NODE_LIST]
    for i in (_NODES, _CPUS):
        result[i] = _largest(base[i], other[i])
    noted = {flag for flag in (SHORTENED, ALLOC_CHANGED) if flag in other[_FLAGS].split()}
    if _disagree(base, other, (_START, *_LONGEST)):
        noted.add(SHORTENED)
    if _disagree(base, other, (_ALLOCATION, _NODES, _CPUS)):
        noted.add(ALLOC_CHANGED)
    if noted:
        result[_FLAGS] = " ".join(sorted({*result[_FLAGS].split(), *noted}))
    return result


def with_both(stored: str | None, new: str | None) -> str | None:
    """AllocTRES or AllocGRES that holds all that two accounts name, so that neither can take anything away.

    Nothing named (an empty text) leaves open what was held, and stays so.
    """
    if stored is None or new is None:
        return new if stored is None else stored
    if not stored or not new:
        return ""
    parts = stored.split(",")
    more = [part for part in new.split(",") if part not in parts]
    # What ends with `+` was cut, and has to stay last.
    return ",".join(sorted([*parts, *more], key=lambda part: part.endswith("+"))) if more else stored


def _disagree(base: Run, other: Run, columns: tuple[int, ...]) -> bool:
    return any(base[i] != other[i] for i in columns if base[i] is not None and other[i] is not None)


def _largest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _without(flags: str, *names: str) -> str:
    return " ".join(flag for flag in flags.split() if flag not in names)
