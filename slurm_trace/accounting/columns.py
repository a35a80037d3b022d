"""The fast way through plain rows: whole columns at once.

Nothing is decided here. A cell is resolved by the same functions as in `rows`, each distinct text once. A row is
plain if its cells agree in every respect: a finished run with all its times, Elapsed = End - Start - Suspended, a node
list as long as the count says; or one that ended before it began and held nothing. Every other row goes through
`RowReader.read`.
"""

from __future__ import annotations

import math
import re
from typing import Any

from slurm_trace.accounting.jobids import parse_job_id
from slurm_trace.accounting.memo import ODD, Memo, or_odd
from slurm_trace.accounting.nodes import NO_NODES, count_nodes
from slurm_trace.accounting.records import RUN_FIELDS, StepRecord
from slurm_trace.accounting.rows import SOURCE, RowReader, limit_of, resources, suspended_of
from slurm_trace.accounting.states import base_state, is_final
from slurm_trace.accounting.time_columns import DurationColumns, TimeColumns
from slurm_trace.accounting.times import is_no_time
from slurm_trace.accounting.tres import parse_count, parse_tres

Cells = dict[str, list[str]]

#: Columns without which no row is plain.
PLAIN_NEEDS = ("state", "submit", "start", "end")

_STEP_ID = re.compile(r"([1-9]\d{0,17})\.\S+", re.ASCII)
_ALONE: tuple[int | None, int | None, bool] = (None, None, True)
_NO_STATE: tuple[str | None, int | None, bool] = (None, None, False)


class ColumnReader:
    """Reads the plain rows of a block, all at once."""

    def __init__(self, reader: RowReader) -> None:
        self._assumed = "tz_assumed" if reader.options.zone is None else ""
        self._cluster = reader.options.cluster
        self._settled = math.inf if reader.settled_before is None else reader.settled_before
        self._times = TimeColumns(reader.times)
        self._states = Memo(_state)
        self._durations = DurationColumns()
        self._idle = Memo(or_odd(lambda v: suspended_of({"suspended": v})))
        self._limits: dict[str, Memo[int | None]] = {
            "limit": Memo(lambda v: limit_of({"limit": v})),
            "limit_raw": Memo(lambda v: limit_of({"limit_raw": v})),
        }
        self._counts = Memo(or_odd(parse_count))
        self._nodes = Memo(or_odd(_listed))
        self._resources = Memo(resources)
        self._tres = Memo(lambda v: parse_tres(resources(v)))
        self._words: Memo[str | None] = Memo(lambda v: v or None)
        self._clusters: Memo[str | None] = Memo(lambda v: v or self._cluster)

    def read_runs(
        self, cells: Cells, lines: list[int], raws: list[bytes]
    ) -> tuple[tuple[list[Any], ...], list[bool]]:
        """Columns of the runs in the order of RUN_FIELDS, and which of the rows are plain.

        What stands in the columns for a row that is not plain has no meaning.

        Args:
            cells: Text of the cells, column by column, of rows that are no steps; with the columns of `PLAIN_NEEDS`.
            lines: Line of each row.
            raws: Bytes of each row.
        """
        n = len(lines)
        out: dict[str, list[Any]] = {"line": lines, "raw": list(raws), "source": [SOURCE] * n}
        out["final"], out["started"], out["flags"] = [True] * n, [True] * n, [""] * n
        plain = self._fill_times(cells, out, n)
        for sound in (*self._fill_ids(cells, out), *self._fill_counts(cells, out, n)):
            plain = [p and s for p, s in zip(plain, sound, strict=True)]
        self._fill_words(cells, out, n)
        return tuple(out.get(name) or [None] * n for name in RUN_FIELDS), plain

    def read_steps(self, cells: Cells, lines: list[int], raws: list[bytes]) -> list[StepRecord | None]:
        """The steps among rows that are steps; None for one that has to be read as a row."""
        raw_ids = cells.get("job_id_raw") or cells["job_id"]
        shown = cells.get("job_id") or raw_ids
        states = self._states.column(cells["state"])
        starts, ends = self._times.read(cells["start"])[0], self._times.read(cells["end"])[0]
        named = cells.get("cluster")
        clusters = self._clusters.column(named) if named else [self._cluster] * len(lines)
        steps: list[StepRecord | None] = []
        for i, raw_id in enumerate(raw_ids):
            match = _STEP_ID.fullmatch(raw_id)
            word = states[i][0]
            same = shown[i] == raw_id or _is_step(shown[i])
            if match is None or not same or word is None or starts[i] != starts[i] or ends[i] != ends[i]:
                steps.append(None)
                continue
            start, end = int(starts[i]), int(ends[i])
            finished = is_final(word)
            steps.append(
                StepRecord(
                    clusters[i], int(match.group(1)), shown[i], start, end, finished, lines[i], raws[i]
                )
            )
        return steps

    def _fill_times(self, cells: Cells, out: dict[str, list[Any]], n: int) -> list[bool]:
        states = self._states.column(cells["state"])
        out["state"] = [state[0] for state in states]
        out["cancelled_by"] = [state[1] for state in states]
        local = False
        for name in ("submit", "start", "end"):
            out[name], of_zone = self._times.read(cells[name])
            local = local or of_zone
        out["run_key"] = list(out["submit"])
        if local:
            out["flags"] = [self._assumed] * n
        idle = [0] * n
        if "suspended" in cells:
            out["suspended_s"] = idle = self._idle.column(cells["suspended"])
        apart = [e - s - i for s, e, i in zip(out["start"], out["end"], idle, strict=True)]
        given = [self._durations.read(cells[name]) for name in ("elapsed", "elapsed_raw") if name in cells]
        if given:
            out["elapsed_s"] = given[0]
        settled = self._settled
        plain = [
            state[2] and submit == submit and a == g and end <= settled
            for state, submit, end, a, g in zip(
                states, out["submit"], out["end"], apart, given[0] if given else apart, strict=True
            )
        ]
        if len(given) > 1:
            plain = [p and a == b for p, a, b in zip(plain, *given, strict=True)]
        for i in self._unstarted(cells, out["start"]):
            zeros = all(column[i] == 0 for column in given) and idle[i] == idle[i]
            if zeros and states[i][2] and out["submit"][i] == out["submit"][i] and out["end"][i] <= settled:
                plain[i], out["started"][i], out["start"][i] = True, False, None
        return plain

    def _unstarted(self, cells: Cells, starts: list[float]) -> list[int]:
        """The rows without a start and without an allocation."""
        if "alloc_tres" not in cells:
            return []
        texts, held = cells["start"], cells["alloc_tres"]
        odd = [i for i, start in enumerate(starts) if start != start]
        return [i for i in odd if is_no_time(texts[i]) and self._resources[held[i]] == ""]

    def _fill_ids(self, cells: Cells, out: dict[str, list[Any]]) -> list[list[bool]]:
        raw = cells.get("job_id_raw") or cells["job_id"]
        shown = cells.get("job_id") or raw
        out["job_id"] = list(shown)
        digits = "".join(raw)
        if digits.isascii() and digits.isdigit() and min(raw) >= "1" and max(map(len, raw)) < 19:
            out["job_id_raw"] = list(map(int, raw))
            sound = []
        else:
            out["job_id_raw"] = [_number(text) for text in raw]
            sound = [[number > 0 for number in out["job_id_raw"]]]
        if shown != raw:
            families = [_ALONE if s == r else _family(s) for s, r in zip(shown, raw, strict=True)]
            out["array_job_id"] = [family[0] for family in families]
            out["het_job_id"] = [family[1] for family in families]
            sound.append([family[2] for family in families])
        return sound

    def _fill_counts(self, cells: Cells, out: dict[str, list[Any]], n: int) -> list[list[bool]]:
        sound = []
        if "uid" in cells:
            out["uid"] = self._counts.column(cells["uid"])
            sound.append(out["uid"])
        for name in ("cpu_count", "ncpus"):
            if name in cells:
                out["cpu_count"] = self._counts.column(cells[name])
                sound.append(out["cpu_count"])
                break
        else:
            if "alloc_tres" in cells:
                out["cpu_count"] = [tres.cpus for tres in self._tres.column(cells["alloc_tres"])]
        claimed: list[Any] = [None] * n
        for name in ("alloc_nodes", "node_count"):
            if name in cells:
                claimed = self._counts.column(cells[name])
                sound.append(claimed)
                break
        else:
            if "alloc_tres" in cells:
                claimed = [tres.nodes for tres in self._tres.column(cells["alloc_tres"])]
        checks = [[value == value for value in column] for column in sound]
        out["node_count"] = claimed
        if "node_list" in cells:
            out["node_count"] = listed = self._nodes.column(cells["node_list"])
            out["node_list"] = list(cells["node_list"])
            checks.append(
                [
                    c == k or (c is None and k == k) or not started
                    for c, k, started in zip(claimed, listed, out["started"], strict=True)
                ]
            )
        if not all(out["started"]):
            for i in [i for i, started in enumerate(out["started"]) if not started]:
                out["cpu_count"][i] = out["node_count"][i] = 0
                if "node_list" in out:
                    out["node_list"][i] = None
        return checks

    def _fill_words(self, cells: Cells, out: dict[str, list[Any]], n: int) -> None:
        for name in ("user", "account", "partition", "work_dir"):
            if name in cells:
                out[name] = self._words.column(cells[name])
        for name in ("sluid", "db_index", "name"):
            if name in cells:
                out[name] = [text or None for text in cells[name]]
        for name in ("alloc_tres", "alloc_gres"):
            if name in cells:
                out[name] = self._resources.column(cells[name])
        out["cluster"] = (
            self._clusters.column(cells["cluster"]) if "cluster" in cells else [self._cluster] * n
        )
        limits: list[int | None] = [None] * n
        for name in ("limit", "limit_raw"):
            if name in cells:
                own = self._limits[name].column(cells[name])
                limits = [a if a is not None else b for a, b in zip(own, limits, strict=True)]
        out["limit_s"] = limits


def _state(text: str) -> tuple[str | None, int | None, bool]:
    """Base word, canceller, and whether a run in this state can be plain; no word for what only a row can judge."""
    try:
        word, uid = base_state(text)
    except ValueError:
        return _NO_STATE
    return word, uid, is_final(word)


def _listed(text: str) -> float:
    return ODD if text.strip().lower() in NO_NODES else count_nodes(text)


def _number(text: str) -> int:
    """A number of up to nine digits; 0 for what only a row can judge."""
    plain = text.isascii() and text.isdigit() and len(text) < 10 and text[0] != "0"
    return int(text) if plain else 0


def _family(text: str) -> tuple[int | None, int | None, bool]:
    """The array and the heterogeneous job that a JobID names, and whether it is written as we would write it."""
    array, _, task = text.partition("_")
    if _number(array) and (_number(task) or task == "0"):
        return int(array), None, True
    try:
        ref = parse_job_id(text)
    except ValueError:
        return None, None, False
    return ref.array_job, ref.het_job, ref.shown == text


def _is_step(text: str) -> bool:
    """Whether a JobID is that of a step, written as we would write it."""
    try:
        ref = parse_job_id(text)
    except ValueError:
        return False
    return ref.step is not None and f"{ref.shown}.{ref.step}" == text
