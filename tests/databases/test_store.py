"""The store's tests once more, on real servers."""

from __future__ import annotations

import itertools

import pytest

from support.store_cases import StoreCases

_numbers = itertools.count()


@pytest.mark.postgresql
class TestPostgresql(StoreCases):
    @pytest.fixture
    def location(self, postgresql):
        return postgresql.create_database(f"trace{next(_numbers)}")


@pytest.mark.mariadb
class TestMariadb(StoreCases):
    @pytest.fixture
    def location(self, mariadb):
        return mariadb.create_database(f"trace{next(_numbers)}")
