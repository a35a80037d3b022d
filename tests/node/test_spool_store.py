"""Spool files in SQLite."""

from __future__ import annotations

import pytest

from support.spool_cases import SpoolCases


class TestSqlite(SpoolCases):
    @pytest.fixture
    def location(self, tmp_path):
        return str(tmp_path / "store.db")
