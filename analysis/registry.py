"""Registry documents: read, check, merge, digest. schema/json/registry.schema.json says what one may hold.

A registry is the union of documents, each with some of the sections. A site's own document (the overlay) has the same
form; its entries replace those of the same id.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

from slurm_trace.errors import InputProblem, unreadable

Entry = Mapping[str, Any]
Sections = dict[str, dict[str, Entry]]

RATE_FILES = (
    "general.json",
    "architectures.json",
    "devices_nvidia.json",
    "devices_other.json",
    "mig_profiles.json",
    "cpu_cores.json",
)
RATE_SECTIONS = ("general", "gres", "architectures", "devices", "mig_profiles", "cpu_cores")
THRESHOLD_FILES = ("thresholds.json",)
THRESHOLD_SECTIONS = ("thresholds",)
SKU_FILES = ("provider_skus.json",)
SKU_SECTIONS = ("provider_skus", "no_compute")
OBSERVABLE_FILES = ("observables.json", "sources.json")
OBSERVABLE_SECTIONS = ("observables", "sources")

MAX_OVERLAY_BYTES = 16 << 20
"""A hundred times the built-in registry."""


def load(names: Iterable[str], sections: Iterable[str], overlay: Path | None) -> Sections:
    """The merged registry: section → id → entry. Decimal fractions stay exact.

    Args:
        names: Files of schema/registry.
        sections: The sections that are asked for; others of an overlay are checked and left aside.
        overlay: A site's own document (JSON or TOML).

    Raises:
        InputProblem: The overlay is no registry document.
        TraceError: It can't be read (see `unreadable`).
    """
    merged: Sections = {section: {} for section in sections}
    documents = [json.loads(_packaged("registry", name), parse_float=Decimal) for name in names]
    if overlay is not None:
        documents.append(_read_overlay(overlay))
    for document in documents:
        for section, entries in merged.items():
            entries.update((entry["id"], entry) for entry in document.get(section, ()))
    return merged


def digest(sections: Sections) -> str:
    """SHA-256 over the canonical JSON of a merged registry."""
    text = json.dumps(sections, sort_keys=True, separators=(",", ":"), default=number_text)
    return hashlib.sha256(text.encode()).hexdigest()


def entry_problem(overlay: Path | None, section: str, entry_id: str, fault: str, remedy: str) -> InputProblem:
    """The error for an entry that is well-formed but can't be used."""
    where = overlay or "the built-in registry"
    return InputProblem(f"{where}: {section} entry {entry_id!r}: {fault}; {remedy}")


def number_text(value: object) -> str:
    """A decimal fraction in canonical JSON."""
    if isinstance(value, Decimal):
        return str(value.normalize())
    raise TypeError(f"no canonical form for {type(value).__name__}")


def _packaged(folder: str, name: str) -> str:
    return files(f"slurm_trace.schema.{folder}").joinpath(name).read_text(encoding="utf-8")


def _read_overlay(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_OVERLAY_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "name a JSON or TOML file with --rates-overlay") from error
    if len(data) > MAX_OVERLAY_BYTES:
        raise InputProblem(
            f"{path}: longer than {MAX_OVERLAY_BYTES >> 20} MiB, so no overlay; name a JSON or TOML file"
        )
    try:
        text = data.decode()
        document: Any
        if path.suffix.lower() == ".toml":
            document = _dates_as_text(tomllib.loads(text, parse_float=Decimal))
        else:
            document = json.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        raise InputProblem(f"{path}: not UTF-8 text, so no overlay; name a JSON or TOML file") from error
    # Besides the parsers' own errors: nested too deep, or a number with thousands of digits.
    except (ValueError, RecursionError, ArithmeticError) as error:
        form = path.suffix[1:].upper() if path.suffix.lower() == ".toml" else "JSON"
        reason = str(error).partition(";")[0]
        raise InputProblem(f"{path}: not valid {form} ({reason}); correct it there") from error
    check(document, str(path))
    return dict(document)


def check(document: object, name: str) -> None:
    """Hold a document against the JSON Schema of registries.

    Raises:
        InputProblem: It does not fit; the message names the entry.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = json.loads(_packaged("json", "registry.schema.json"))
    errors = list(Draft202012Validator(schema).iter_errors(document))
    # A property that is wrong or missing makes its neighbours count as unexpected: name the cause first.
    error = best_match([e for e in errors if e.validator != "unevaluatedProperties"] or errors)
    if error is None:
        _check_ids(document, name)
        return
    place = list(error.absolute_path)
    section = str(place[0]) if place else "the document"
    entry = ""
    if len(place) > 1 and isinstance(document, dict):
        found = document[place[0]][place[1]]
        named = found.get("id") if isinstance(found, dict) else None
        entry = f" entry {place[1]}" + (f" ({named!r})" if named else "")
    inner = "".join(f" {part}" for part in place[2:])
    message = " ".join(error.message.split())
    if len(message) > 200:
        message = message[:200] + "..."
    raise InputProblem(
        f"{name}: {section}{entry}{inner}: {message}; see `slurm-trace rates --json` for entries in the right form"
    )


def _check_ids(document: object, name: str) -> None:
    assert isinstance(document, dict)  # noqa: S101 - the schema has just said so
    for section, entries in document.items():
        if not isinstance(entries, list):
            continue
        seen: set[str] = set()
        for entry in entries:
            if entry["id"] in seen:
                raise InputProblem(
                    f"{name}: {section} entry {entry['id']!r} stands there twice; keep one of them"
                )
            seen.add(entry["id"])


def _dates_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _dates_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
