"""Feeds on real servers."""

from __future__ import annotations

import itertools

import pytest

from support.feed_cases import FeedCases

_numbers = itertools.count()


@pytest.mark.postgresql
class TestPostgresql(FeedCases):
    @pytest.fixture
    def location(self, postgresql):
        return postgresql.create_database(f"feed{next(_numbers)}")


@pytest.mark.mariadb
class TestMariadb(FeedCases):
    @pytest.fixture
    def location(self, mariadb):
        return mariadb.create_database(f"feed{next(_numbers)}")
