"""One job of `sacct --json`, of any data_parser, as the cells that its text row would have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

#: Words behind the base state that say that this incarnation is over; text output shows them as the state.
_CLOSING = ("REQUEUED", "RESIZING")

#: Units of memory in TRES, from MiB up, as sacct prints them while the number stays whole.
_UNITS = "MGTP"


def number(value: Any) -> int | None:
    """A whole number of any data_parser: plain, `{set, infinite, number}`, or a string; None if unset or infinite."""
    if isinstance(value, dict):
        unset = value.get("set") is False or value.get("infinite") is True
        return None if unset else number(value.get("number"))
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        # Without rounding to a context, which 1e999999999 would overflow.
        return math.ceil(value) if value.is_finite() and value.copy_abs() < 2**63 else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:19])
    return None


def job_cells(job: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The cells of a job by the names of our fields, and flags for what only JSON tells.

    Raises:
        ValueError: A part has another shape than in any version known.
    """
    if "time" not in job or "state" not in job:
        raise ValueError("no time or no state: this is no job of sacct --json")
    times, state, array, het = (_part(job, name) for name in ("time", "state", "array", "het"))
    word, flags = _state(state.get("current"), job.get("kill_request_user"))
    job_id = number(job.get("job_id"))
    if job_id is None:
        raise ValueError("no job_id")
    if isinstance(job["job_id"], Decimal) and job["job_id"] != job_id:
        raise ValueError(f"{str(job['job_id'])[:40]!r} is no job id")
    resources = _tres(_part(job, "tres").get("allocated"))
    cells = {
        "job_id": _shown_id(job_id, array, het),
        "job_id_raw": str(job_id),
        "cluster": _text(job.get("cluster")),
        "name": _text(job.get("name")),
        "user": _text(job.get("user")) or _text(_part(job, "association").get("user")),
        "account": _text(job.get("account")),
        "partition": _text(job.get("partition")),
        "state": word,
        "start": _digits(times.get("start")),
        "end": _digits(times.get("end")),
        "elapsed_raw": _digits(times.get("elapsed")),
        "suspended": _digits(times.get("suspended")),
        "limit_raw": _digits(times.get("limit")),
        "node_count": _digits(job.get("allocation_nodes")),
        "node_list": _text(job.get("nodes")),
        "alloc_tres": resources,
        "work_dir": _text(job.get("working_directory")),
    }
    if (submitted := _digits(times.get("submission"))) != "":
        cells["submit"] = submitted
    if "sluid" in job:
        cells["sluid"] = _text(job.get("sluid"))
    return cells, flags


def step_cells(job: dict[str, Any], cells: dict[str, str]) -> Iterator[tuple[dict[str, str], Any]]:
    """The cells of each step of a job, and the step itself."""
    steps = job.get("steps")
    if steps is None:
        return
    if not isinstance(steps, list):
        raise ValueError("steps is no list")
    for step in steps:
        if not isinstance(step, dict):
            raise ValueError("a step is no object")
        times, name = _part(step, "time"), _part(step, "step").get("id")
        suffix = str(name).rpartition(".")[2] if isinstance(name, str | int) else "step"
        row = {
            "job_id": f"{cells['job_id']}.{suffix or 'step'}",
            "job_id_raw": f"{cells['job_id_raw']}.{suffix or 'step'}",
            "cluster": cells["cluster"],
            "state": _state(step.get("state"), None)[0],
            "start": _digits(times.get("start")),
            "end": _digits(times.get("end")),
        }
        yield row, step


def _part(job: dict[str, Any], name: str) -> dict[str, Any]:
    part = job.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise ValueError(f"{name} is no object")
    return part


def _text(value: Any) -> str:
    """Text for one cell; NUL and lone surrogates, which no database takes, replaced."""
    if value is None:
        return ""
    if not isinstance(value, str | int):
        raise ValueError(f"{str(value)[:40]!r} where text is expected")
    return str(value).replace("\0", "\ufffd").encode(errors="replace").decode()


def _digits(value: Any) -> str:
    whole = number(value)
    return "" if whole is None else str(whole)


def _state(current: Any, killer: Any) -> tuple[str, list[str]]:
    words = [_text(word) for word in (current if isinstance(current, list) else [current])]
    base = words[0] if words else ""
    for word in _CLOSING:
        if word in words[1:]:
            base = word
    flags = [f"state_{word.lower()}" for word in words[1:] if word != base and word.isidentifier()]
    if base == "CANCELLED" and isinstance(killer, str) and killer.isdigit():
        base = f"CANCELLED by {killer}"
    return base, flags


def _shown_id(job_id: int, array: dict[str, Any], het: dict[str, Any]) -> str:
    array_id, het_id = number(array.get("job_id")), number(het.get("job_id"))
    if array_id:
        tasks, task = _text(array.get("task")), number(array.get("task_id"))
        if task is not None and task < 2**32 - 2:
            return f"{array_id}_{task}"
        if tasks:
            return f"{array_id}_[{tasks.strip('[]')}]"
    offset = number(het.get("job_offset"))
    if het_id and offset is not None and offset < 2**32 - 2:
        return f"{het_id}+{offset}"
    return str(job_id)


def _tres(entries: Any) -> str:
    """AllocTRES in the form and order in which text output has it."""
    if not isinstance(entries, list):
        return _text(entries)
    parts = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError("a TRES is no object")
        count = number(entry.get("count"))
        if count is None or count < 0:
            continue
        kind, name = _text(entry.get("type")), _text(entry.get("name"))
        parts.append(
            f"{kind}/{name}={count}" if name else f"{kind}={_memory(count) if kind == 'mem' else count}"
        )
    return ",".join(sorted(parts))


def _memory(mebibytes: int) -> str:
    unit = 0
    while mebibytes and mebibytes % 1024 == 0 and unit < len(_UNITS) - 1:
        mebibytes //= 1024
        unit += 1
    return f"{mebibytes}{_UNITS[unit]}"
