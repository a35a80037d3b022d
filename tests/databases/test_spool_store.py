"""Spool files on real servers."""

from __future__ import annotations

import itertools

import pytest

from support.spool_cases import SpoolCases

_numbers = itertools.count()


@pytest.mark.postgresql
class TestPostgresql(SpoolCases):
    @pytest.fixture
    def location(self, postgresql):
        return postgresql.create_database(f"spool{next(_numbers)}")


@pytest.mark.mariadb
class TestMariadb(SpoolCases):
    @pytest.fixture
    def location(self, mariadb):
        return mariadb.create_database(f"spool{next(_numbers)}")
