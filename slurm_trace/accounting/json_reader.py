"""`sacct --json`, read job by job in bounded memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

import ijson

from slurm_trace.accounting.blocks import BlockMaker, empty_columns
from slurm_trace.accounting.json_record import job_cells, number, step_cells
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RejectedRow, RunBlock
from slurm_trace.accounting.rows import ReadRow, RowReader
from slurm_trace.errors import EnvironmentProblem, InputProblem

#: Jobs of one block.
BLOCK_JOBS = 2_000

_CHUNK_BYTES = 1 << 16

_MAX_DEPTH = 50

#: Most bytes between two beginnings of an object or a list: one text, or a list of figures, that no record has.
MAX_STRETCH_BYTES = 16 << 20

#: An escaped backslash or a whole pair stays; half a pair would end the document for the parser.
_SURROGATES = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_PAIR_LENGTH = 12

#: The parser leaves an error behind, to come up anywhere, at a number that int() refuses (4,300 digits).
_KEPT_DIGITS = 100
_LONG_NUMBER = re.compile(r"\d{1000,}", re.ASCII)

#: The parts of a document that are looked at.
_PARTS = frozenset({"meta", "errors"})
_SCALARS = frozenset({"string", "number", "boolean", "null"})

#: slurmdbd's "nothing found with query" (openapi v0.0.37 and v0.0.38 report it as an error).
_NOTHING_FOUND = 9003

_KNOWN_PARSERS = frozenset(
    [f"openapi/dbv0.0.{n}" for n in range(36, 40)] + [f"data_parser/v0.0.{n}" for n in range(39, 46)]
)


def read_json(stream: IO[bytes], options: ReadOptions) -> Iterator[RunBlock]:
    """Read the output of `sacct --json`, of any data_parser from v0.0.37 on.

    Args:
        stream: The bytes; read once, from where it stands.
        options: How to read them; delimiter and fields do not matter.

    Yields:
        Blocks of runs. `line` is the number of the job in its list, counted from 1.

    Raises:
        InputProblem: The document is empty, cut, no JSON or no output of sacct; the jobs before that have been
            handed out.
        EnvironmentProblem: Slurm reported an error (other than that it found nothing), so that the list of jobs may
            not be whole; the jobs that are there have been handed out.
    """
    document = _Document(stream, options)
    maker, reader = BlockMaker(options), RowReader(options)
    rows: list[ReadRow] = []
    record = jobs = 0
    for record, job in enumerate(document.jobs(), start=1):
        rows.extend(_read_job(reader, job, record, replaced=document.replaced))
        jobs += 1
        if jobs == BLOCK_JOBS:
            yield maker.make(empty_columns(), rows, last=False)
            rows, jobs = [], 0
    block = maker.make(empty_columns(), rows, last=True)
    block.warnings.extend(document.warnings())
    if len(block) or block.steps_skipped or block.rejected or block.warnings:
        yield block
    document.check(record)


def _read_job(reader: RowReader, job: Any, record: int, *, replaced: bool) -> list[ReadRow]:
    raw = _dump(job)
    if not isinstance(job, dict):
        return [RejectedRow(record, "the record is no object", raw)]
    try:
        cells, flags = job_cells(job)
        steps = [(step, _dump(part)) for step, part in step_cells(job, cells)]
    except ValueError as error:
        return [RejectedRow(record, str(error), raw)]
    if replaced and "\\ufffd" in raw.decode():
        flags.append("utf8_replaced")
    return [
        reader.read(cells, record, raw, flags),
        *(reader.read(step, record, step_raw) for step, step_raw in steps),
    ]


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()


class _Document:
    """The parts of one JSON document, as they come past: `meta` and `errors` may stand before or behind the jobs."""

    def __init__(self, stream: IO[bytes], options: ReadOptions) -> None:
        self._name = options.source_name
        self._bytes = _Utf8(stream)
        self._parts: dict[str, Any] = {}
        self._failure: str | None = None

    @property
    def replaced(self) -> bool:
        """Whether bytes that are no UTF-8 were replaced so far."""
        return self._bytes.replaced

    def jobs(self) -> Iterator[Any]:
        """The members of the list `jobs`, until it ends or the document does."""
        events = ijson.basic_parse(self._bytes)
        try:
            event, _ = next(events)
            if event != "start_map":
                self._failure = "the document is no object"
                return
            key = ""
            for event, value in events:
                if event == "map_key":
                    key = value
                elif event == "end_map":
                    continue
                elif key == "jobs" and event == "start_array":
                    self._parts[key] = True
                    yield from self._members(events)
                elif key == "jobs":
                    self._failure = "jobs is no list"
                    return
                elif key in _PARTS:
                    self._parts[key] = self._build(events, event, value)
                else:
                    self._skip(events, event)
        except (ijson.JSONError, ValueError) as error:
            self._failure = str(error).strip().partition("\n")[0] or "broken JSON"
        except ArithmeticError:
            self._failure = "a number that nothing can hold"

    def warnings(self) -> list[str]:
        """What to tell about the document as a whole."""
        parser = self._parser()
        if "jobs" not in self._parts or parser in _KNOWN_PARSERS:
            return []
        return [
            f"{self._name}: data_parser {parser or 'without a name'} is not known; it was read like the known ones"
        ]

    def _parser(self) -> str:
        meta = self._parts.get("meta")
        plugin = meta.get("plugin", meta.get("plugins")) if isinstance(meta, dict) else None
        found = [plugin.get("data_parser"), plugin.get("type")] if isinstance(plugin, dict) else []
        return next((name for name in found if isinstance(name, str) and name), "")

    def check(self, records: int) -> None:
        """Raise what was wrong with the document."""
        if self._bytes.size == 0:
            raise InputProblem(
                f"{self._name}: empty output: sacct prints nothing and ends with status 0 if a data_parser is missing; "
                "look at its messages"
            )
        if "jobs" not in self._parts and not self._problems():
            why = f" ({self._failure})" if self._failure else ""
            raise InputProblem(
                f"{self._name}: this is no output of sacct --json{why}; export again with sacct --json"
            )
        if self._failure is not None:
            raise InputProblem(
                f"{self._name}: record {records + 1}: {self._failure}; {records} records before it were read, "
                "export the rest again"
            )
        for problem in self._problems():
            raise EnvironmentProblem(
                f"{self._name}: Slurm reported {problem}; the list of jobs may not be whole, export it again"
            )

    def _problems(self) -> list[str]:
        errors = self._parts.get("errors")
        problems = []
        for error in errors if isinstance(errors, list) else []:
            if not isinstance(error, dict):
                problems.append(ascii(error)[:80])
            elif number(error.get("error_number")) != _NOTHING_FOUND:
                words = [str(error[key]) for key in ("description", "error") if error.get(key)]
                problems.append(f"error {error.get('error_number')} ({ascii(': '.join(words))[:120]})")
        return problems

    def _members(self, events: _Events) -> Iterator[Any]:
        for event, value in events:
            if event == "end_array":
                return
            yield self._build(events, event, value)

    def _build(self, events: _Events, event: str, value: Any, depth: int = 0) -> Any:
        """The value that begins with this event."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} deep")
        self._bytes.stretch = 0
        if event == "start_map":
            built: dict[str, Any] = {}
            key = ""
            for event, value in events:
                if event == "map_key":
                    key = value
                elif event == "end_map":
                    return built
                else:
                    built[key] = value if event in _SCALARS else self._build(events, event, value, depth + 1)
        if event == "start_array":
            listed: list[Any] = []
            for event, value in events:
                if event == "end_array":
                    return listed
                listed.append(value if event in _SCALARS else self._build(events, event, value, depth + 1))
        return value

    def _skip(self, events: _Events, event: str) -> None:
        """Go past the value that begins with this event."""
        depth = 0
        while True:
            self._bytes.stretch = 0
            depth += (event in _BEGINS) - (event in _ENDS)
            if depth > _MAX_DEPTH:
                raise ValueError(f"nested more than {_MAX_DEPTH} deep")
            if depth <= 0:
                return
            event, _ = next(events)


_Events = Iterator[tuple[str, Any]]
_BEGINS = frozenset({"start_map", "start_array"})
_ENDS = frozenset({"end_map", "end_array"})


class _Utf8:
    """A stream without what the parser does not take: bytes that are no UTF-8, and halves of surrogate pairs."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.replaced = False
        self.size = 0
        self.stretch = 0

    def read(self, _size: int = -1) -> bytes:
        """The next bytes; empty at the end.

        Raises:
            ValueError: No object and no list has begun for too long.
        """
        if _size == 0:
            return b""
        text = ""
        while True:
            chunk = self._stream.read(_CHUNK_BYTES)
            self.size += len(chunk.strip()) if self.size == 0 else len(chunk)
            self.stretch += len(chunk)
            if self.stretch > MAX_STRETCH_BYTES:
                raise ValueError(f"a text or a list longer than {MAX_STRETCH_BYTES >> 20} MiB")
            decoded = self._decoder.decode(chunk, final=not chunk)
            if "\ufffd" in decoded and b"\xef\xbf\xbd" not in chunk:
                self.replaced = True
            text += decoded
            # An escape or a number that the end of the chunk cuts is looked at together with the next one.
            if not chunk or (text and "\\" not in text[-_PAIR_LENGTH:] and not text[-1].isdecimal()):
                return self._paired(text).encode()

    def _paired(self, text: str) -> str:
        text = _LONG_NUMBER.sub(lambda match: match[0][:_KEPT_DIGITS], text)
        if "\\ud" not in text and "\\uD" not in text:
            return text
        whole = _SURROGATES.sub(lambda match: match[1] or "\\ufffd", text)
        self.replaced = self.replaced or whole != text
        return whole
