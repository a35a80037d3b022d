from __future__ import annotations

import pytest

from support.feed_cases import FeedCases


class TestSqlite(FeedCases):
    @pytest.fixture
    def location(self, tmp_path):
        return str(tmp_path / "store.sqlite")
