"""The fake driver library, in its newest and in an old version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.harness import FakeNvml


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeNvml]:
    """The library of a current driver."""
    library = FakeNvml(tmp_path)
    yield library
    library.end()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[FakeNvml]:
    """The library of a driver before R515."""
    library = FakeNvml(tmp_path, old_driver=True)
    yield library
    library.end()
