"""SHA-256 without OpenSSL: hashlib would load four MiB of it into a process that has to stay small."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any


def _sha256() -> Any:
    # CPython's own: since 3.12, and before.
    for module in ("_sha2", "_sha256"):
        if importlib.util.find_spec(module) is not None:
            return importlib.import_module(module).sha256
    return importlib.import_module("hashlib").sha256


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = _sha256()()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return str(digest.hexdigest())
