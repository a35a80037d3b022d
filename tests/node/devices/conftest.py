"""The fake driver library, in its newest and in an old version."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_nvml.harness import FakeNvml


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """The library of a current driver."""
    return FakeNvml(tmp_path)


@pytest.fixture
def old(tmp_path: Path) -> FakeNvml:
    """The library of a driver before R515."""
    return FakeNvml(tmp_path, old_driver=True)
