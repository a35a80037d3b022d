from __future__ import annotations

import pytest

from support.store_cases import StoreCases


class TestSqlite(StoreCases):
    @pytest.fixture
    def location(self, tmp_path):
        return str(tmp_path / "store.sqlite")
