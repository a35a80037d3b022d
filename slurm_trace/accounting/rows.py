"""One row of accounting, its cells as text, read into a run: the single place where the meaning of a row is decided."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from slurm_trace.accounting.jobids import JobRef, parse_job_id
from slurm_trace.accounting.nodes import NO_NODES, count_nodes
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RejectedRow, RunRecord, StepRecord
from slurm_trace.accounting.states import KNOWN_STATES, base_state, is_final
from slurm_trace.accounting.times import (
    LONGEST_RUN_S,
    NO_TIME,
    Moment,
    TimeReader,
    parse_duration,
    parse_limit,
)
from slurm_trace.accounting.tres import parse_count, parse_tres

#: A run that ended less than this before the query may still change: slurmctld sends its last columns up to 5 s late.
SETTLING_S = 10

#: `source` of a run read from sacct, whatever the format.
SOURCE = "sacct"

#: `run_key` of a row without Submit and Start until `number_rows` gives it one.
KEY_OPEN = 0

_NOTHING = frozenset({"", "(null)", "n/a", "none", "unknown"})
_LARGEST_ID = 2**63 - 1

Row = Mapping[str, str]


class SkippedStep(NamedTuple):
    """A step whose run cannot be told because its array task carries no raw id."""

    line: int


ReadRow = RunRecord | StepRecord | SkippedStep | RejectedRow


class _Times(NamedTuple):
    submit: int | None
    start: int | None
    end: int | None
    elapsed_s: int | None
    suspended_s: int | None


class RowReader:
    """Reads rows of one input. Reading has no effect on later rows: the same row reads the same wherever it stands."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.times = TimeReader(options.zone)
        self._flag_zone = options.zone is None
        self.settled_before = None if options.queried_at is None else options.queried_at - SETTLING_S

    def read(self, row: Row, line: int, raw: bytes, flags: Collection[str] = ()) -> ReadRow:
        """Read one row.

        Args:
            row: Text of each cell by the name of our field; a field without a column is missing.
            line: First physical line of the row.
            raw: The row as received.
            flags: What was odd about the row before it came here.
        """
        try:
            ref, raw_id = _identity(row)
            if ref.step is not None:
                return self._step(row, ref, raw_id, line, raw)
            if raw_id is None:
                raise ValueError(
                    f"array task {ref.shown} without JobIDRaw: export again with the column JobIDRaw"
                )
            return self._run(row, ref, raw_id, line, raw, set(flags))
        except ValueError as error:
            return RejectedRow(line, str(error), raw)

    def _step(
        self, row: Row, ref: JobRef, raw_id: int | None, line: int, raw: bytes
    ) -> StepRecord | SkippedStep:
        word = base_state(row["state"])[0] if "state" in row else None
        start, end = self._time(row, "start").latest, self._time(row, "end").latest
        if raw_id is None:
            return SkippedStep(line)
        finished = is_final(word) if word is not None else end is not None
        job_id = f"{ref.shown}.{ref.step}"
        return StepRecord(self._cluster(row), raw_id, job_id, start, end, finished, line, raw)

    def _run(self, row: Row, ref: JobRef, raw_id: int, line: int, raw: bytes, flags: set[str]) -> RunRecord:
        word, cancelled_by, known = self._state(row, flags)
        times = self._run_times(row, word, flags)
        never = _never_started(row, word, times, known=known)
        final = self._final(row, word, times.end, flags)
        elapsed_s = _settle_elapsed(row, times, flags, never=never, open_end=not final)
        if word == "PENDING" and times.start is not None and not never:
            flags.add("half_written")
        node_count, node_list = (0, None) if never else _nodes(row, flags)
        run_key = times.submit if times.submit is not None else times.start
        if times.submit is None:
            flags.add("identity_incomplete")
        return RunRecord(
            cluster=self._cluster(row),
            job_id_raw=raw_id,
            run_key=KEY_OPEN if run_key is None else run_key,
            submit=times.submit,
            job_id=ref.shown,
            array_job_id=ref.array_job,
            het_job_id=ref.het_job,
            sluid=row.get("sluid") or None,
            db_index=row.get("db_index") or None,
            name=row.get("name") or None,
            user=row.get("user") or None,
            uid=_count(row, "uid"),
            account=row.get("account") or None,
            partition=row.get("partition") or None,
            state=word,
            cancelled_by=cancelled_by,
            final=final,
            started=not never,
            start=times.start,
            end=times.end,
            elapsed_s=elapsed_s,
            suspended_s=times.suspended_s,
            limit_s=limit_of(row),
            node_count=node_count,
            cpu_count=0 if never else _first_count(row, "cpu_count", "ncpus"),
            node_list=node_list,
            alloc_tres=resources(row.get("alloc_tres")),
            alloc_gres=resources(row.get("alloc_gres")),
            work_dir=row.get("work_dir") or None,
            queried_at=None if final else self._true_at(times.start, elapsed_s, times.suspended_s),
            source=SOURCE,
            flags=" ".join(sorted(flags)),
            line=line,
            raw=raw,
        )

    def _cluster(self, row: Row) -> str | None:
        return row.get("cluster") or self.options.cluster

    def _time(self, row: Row, name: str) -> Moment:
        text = row.get(name)
        if text is None:
            return NO_TIME
        try:
            return self.times.read(text)
        except ValueError as error:
            raise ValueError(f"{name.capitalize()}: {error}") from None

    def _state(self, row: Row, flags: set[str]) -> tuple[str, int | None, bool]:
        text = row.get("state")
        word, cancelled_by = ("UNKNOWN", None) if text is None else base_state(text)
        known = word in KNOWN_STATES
        if not known:
            flags.add("state_unknown")
        return word, cancelled_by, known

    def _final(self, row: Row, word: str, end: int | None, flags: set[str]) -> bool:
        if not is_final(word) or "state_completing" in flags:
            return False
        if word in ("REQUEUED", "RESIZING") and end is None and "end" in row:
            return False
        if self.settled_before is not None and end is not None and end > self.settled_before:
            flags.add("settling")
            return False
        return True

    def _run_times(self, row: Row, word: str, flags: set[str]) -> _Times:
        if not row.get("submit", "?").strip():
            raise ValueError("Submit is empty, which sacct never leaves it")
        submit, start, end = self._time(row, "submit"), self._time(row, "start"), self._time(row, "end")
        moments = (submit, start, end)
        if self._flag_zone and any(moment.local for moment in moments):
            flags.add("tz_assumed")
        flags.update(moment.shift for moment in moments if moment.shift)
        elapsed_s, disagree = elapsed_of(row)
        if disagree:
            flags.add("elapsed_disagrees")
        started_at = start.latest if elapsed_s is not None else start.earliest
        if (
            start.ancient
            and word != "PENDING"
            and submit.latest is not None
            and resources(row.get("alloc_tres"))
        ):
            started_at = submit.latest
            flags.add("start_from_submit")
        return _Times(submit.latest, started_at, end.latest, elapsed_s, suspended_of(row))

    def _true_at(self, start: int | None, elapsed_s: int | None, suspended_s: int | None) -> int | None:
        """The moment at which a row that is not final was true."""
        if self.options.queried_at is not None:
            return self.options.queried_at
        if start is None or elapsed_s is None:
            return None
        return start + elapsed_s + (suspended_s or 0)


def number_rows(keys: list[int], raws: list[bytes], seen: Counter[bytes]) -> None:
    """Give rows without Submit and Start their key: a negative digest of the row and its n-th repetition.

    Args:
        keys: The `run_key` of each run; those equal to `KEY_OPEN` are replaced.
        raws: The rows as received.
        seen: Repetitions so far in this import; carried on.
    """
    for i, key in enumerate(keys):
        if key == KEY_OPEN:
            digest = hashlib.blake2b(raws[i], digest_size=16).digest()
            seen[digest] += 1
            numbered = hashlib.blake2b(digest + str(seen[digest]).encode(), digest_size=8).digest()
            keys[i] = -(int.from_bytes(numbered) % _LARGEST_ID) - 1


def _identity(row: Row) -> tuple[JobRef, int | None]:
    """The shown id and the raw one; the raw one is taken from the shown one only where that is certain."""
    shown, raw = row.get("job_id"), row.get("job_id_raw")
    ref = parse_job_id(raw or "" if shown is None else shown)
    if raw is None:
        return ref, ref.raw
    number = parse_job_id(raw)
    if number.task is not None or number.tasks or number.het is not None:
        raise ValueError(f"{raw[:40]!r} is no JobIDRaw")
    if (number.step is None) != (ref.step is None):
        raise ValueError(f"JobID {str(shown)[:40]!r} and JobIDRaw {raw[:40]!r} do not name the same row")
    return ref, number.job


def resources(text: str | None) -> str | None:
    """AllocTRES or AllocGRES with the words for nothing made empty."""
    return "" if text is not None and text.strip().lower() in _NOTHING else text


def limit_of(row: Row) -> int | None:
    """Time limit in seconds from TimelimitRaw (minutes), else from Timelimit."""
    raw, text = row.get("limit_raw"), row.get("limit")
    limit_s = parse_limit(raw, minutes=True) if raw else None
    return limit_s if limit_s is not None or not text else parse_limit(text, minutes=False)


def _seconds(row: Row, name: str) -> int | None:
    text = row.get(name)
    if text is None:
        return None
    seconds = parse_duration(text)
    return None if seconds is not None and seconds >= LONGEST_RUN_S else seconds


def suspended_of(row: Row) -> int | None:
    """Suspended in seconds."""
    return _seconds(row, "suspended")


def elapsed_of(row: Row) -> tuple[int | None, bool]:
    """Elapsed in seconds as given, and whether Elapsed and ElapsedRaw differ.

    Where they do, this is the larger, unless the other one is the distance from Start to End (see `_settle_elapsed`).
    """
    given = [s for s in (_seconds(row, "elapsed"), _seconds(row, "elapsed_raw")) if s is not None]
    return (max(given) if given else None), len(set(given)) > 1


def _settle_elapsed(row: Row, times: _Times, flags: set[str], *, never: bool, open_end: bool) -> int | None:
    """Run time where Elapsed, ElapsedRaw and End - Start - Suspended do not agree.

    The distance from Start to End is the witness between two that differ. Against a single one the larger stands,
    because a bound must not be too small; with two exceptions: without a column Suspended a shorter Elapsed is a
    suspended run, and an Elapsed that reaches back to Submit has the waiting time in it.
    """
    elapsed_s = times.elapsed_s
    if elapsed_s is None:
        return None
    if never:
        if elapsed_s:
            flags.add("elapsed_disagrees")
        return 0
    if times.start is None or times.end is None:
        return elapsed_s
    apart_s = times.end - times.start - (times.suspended_s or 0)
    if apart_s == elapsed_s:
        return elapsed_s
    if "elapsed_disagrees" in flags and apart_s in (_seconds(row, "elapsed"), _seconds(row, "elapsed_raw")):
        return apart_s
    if times.suspended_s is None and apart_s > elapsed_s > 0:
        return elapsed_s
    flags.add("elapsed_disagrees")
    if not open_end and apart_s > 0 and times.submit is not None and elapsed_s == times.end - times.submit:
        return apart_s
    return max(elapsed_s, apart_s)


def _never_started(row: Row, word: str, times: _Times, *, known: bool) -> bool:
    """Whether the row proves that the run never held a resource. No column, no proof."""
    if "start" not in row:
        return False
    nodes = row.get("node_list")
    unplaced = nodes is not None and nodes.strip().lower() in NO_NODES and nodes.strip() != ""
    if times.start is not None:
        return unplaced and times.start == times.end
    if word == "PENDING":
        return True
    if (known and not is_final(word)) or times.elapsed_s:
        return False
    allocated = resources(row.get("alloc_tres"))
    return allocated == "" or (allocated is None and unplaced)


def _count(row: Row, name: str) -> int | None:
    text = row.get(name)
    return parse_count(text) if text and text.strip().lower() not in _NOTHING else None


def _first_count(row: Row, *names: str) -> int | None:
    for name in names:
        number = _count(row, name)
        if number is not None:
            return number
    return parse_tres(resources(row.get("alloc_tres"))).cpus


def _nodes(row: Row, flags: set[str]) -> tuple[int | None, str | None]:
    """How many nodes, and which. Where the count and the list disagree, the larger number stands."""
    claimed = _count(row, "alloc_nodes")
    if claimed is None:
        claimed = _count(row, "node_count")
    if claimed is None:
        claimed = parse_tres(resources(row.get("alloc_tres"))).nodes
    nodes = row.get("node_list")
    if nodes is None or nodes.strip().lower() in NO_NODES:
        return claimed, None
    try:
        listed = count_nodes(nodes)
    except ValueError:
        flags.add("nodes_disagree")
        return claimed, nodes
    if claimed is not None and claimed != listed:
        flags.add("nodes_disagree")
    return max(listed, claimed or 0), nodes
