"""Rule documents: read, hold against their JSON Schema, and know on which line each entry stands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from slurm_trace.errors import InputProblem, unreadable

MAX_BYTES = 4 << 20
"""A hundred times the built-in rules."""

SCHEMAS = {
    "slurm-trace/rules/1": "rules.schema.json",
    "slurm-trace/precedence/1": "precedence.schema.json",
    "slurm-trace/rules-index/1": "rules-index.schema.json",
}

REMEDY = "`slurm-trace rules list --json` shows rules in the right form"

_GAP = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of a file: where it stands, from `start` to `end` of its text.

    Attributes:
        name: The file as a message names it.
        text: The whole file.
    """

    name: str
    text: str
    start: int = 0
    end: int = 0

    def problem(self, fault: str, remedy: str = REMEDY, near: object = None) -> InputProblem:
        """The error for this entry; `near` is a value whose line is named if it stands inside the entry."""
        at = self.start
        if near is not None:
            found = self.text.find(json.dumps(near, ensure_ascii=False), self.start, self.end)
            at = found if found >= 0 else at
        line = self.text.count("\n", 0, at) + 1
        return InputProblem(f"{self.name}, line {line}: {fault}; {remedy}")


@dataclass(frozen=True, slots=True)
class Document:
    """A file of rules, of precedence, or the index; `places[i]` is where entry i of its list stands."""

    value: Mapping[str, Any]
    whole: Place
    places: Sequence[Place]


def packaged(folder: str) -> Traversable:
    """A folder of slurm_trace.schema."""
    return files(f"slurm_trace.schema.{folder}")


def read(file: Traversable, schema: str, section: str, name: str | None = None) -> Document:
    """Read one file. The built-in ones are held against their schema by the tests, a site's own here.

    Args:
        file: The file.
        schema: What its `schema` field has to be.
        section: The list in it whose entries are looked up by line.
        name: How messages name a site's own file; None for a built-in one.

    Raises:
        TraceError: It can't be read (see `unreadable`).
        InputProblem: It is no JSON, or does not fit its schema; the message names file and line.
    """
    own, name = name is not None, name or f"schema/rules/{file.name}"
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputProblem(f"{name}: not UTF-8 text, so no rules; name a folder of rule files") from error
    except OSError as error:
        raise unreadable(name, error, "name a folder of rule files with --rules") from error
    if len(data) > MAX_BYTES:
        raise InputProblem(
            f"{name}: longer than {MAX_BYTES >> 20} MiB, so no rules; name a folder of rule files"
        )
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputProblem(
            f"{name}, line {error.lineno}: not valid JSON ({error.msg}); correct it there"
        ) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or nested too deep
        raise InputProblem(f"{name}, line 1: not valid JSON ({error}); correct it there") from error
    places = _places(name, text, section)
    whole = Place(name, text, 0, len(text))
    if own:
        _check(value, schema, whole, section, places)
    return Document(value, whole, places)


def _places(name: str, text: str, section: str) -> list[Place]:
    """Where the entries of a list stand. Inside a JSON string a quote is escaped, so that the key is never text."""
    key = re.search(rf'"{section}"\s*:\s*\[', text)
    found: list[Place] = []
    if key is None:
        return found
    decoder, at = json.JSONDecoder(), key.end()
    while True:
        gap = _GAP.match(text, at)
        start = gap.end() if gap else at
        if text[start] == "]":
            return found
        _, at = decoder.raw_decode(text, start)
        found.append(Place(name, text, start, at))


def _check(value: object, schema: str, whole: Place, section: str, places: Sequence[Place]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    document = json.loads(packaged("json").joinpath(SCHEMAS[schema]).read_text(encoding="utf-8"))
    try:
        error = best_match(Draft202012Validator(document).iter_errors(value))
    except RecursionError:
        raise whole.problem("nested too deep to be read", "take levels out of it", section) from None
    if error is None:
        return
    path = list(error.absolute_path)
    place = whole
    if len(path) > 1 and path[0] == section and isinstance(path[1], int):
        place = places[path[1]]
    entry = error.instance
    near = (
        entry
        if isinstance(entry, (str, int, float))
        else next((p for p in reversed(path) if isinstance(p, str)), None)
    )
    message = " ".join(error.message.split())
    if len(message) > 200:
        message = message[:200] + "..."
    where = " ".join(map(str, path))
    raise place.problem(f"{where}: {message}" if where else message, near=near)
