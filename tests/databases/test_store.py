"""The store's tests once more, on real servers."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from sqlalchemy import text

from slurm_trace.errors import EnvironmentProblem
from slurm_trace.store.engine import connect, open_store
from support.store_cases import StoreCases

_numbers = itertools.count()


@pytest.mark.postgresql
class TestPostgresql(StoreCases):
    @pytest.fixture
    def location(self, postgresql):
        return postgresql.create_database(f"trace{next(_numbers)}")

    def test_database_that_cannot_hold_every_name(self, postgresql):
        narrow = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        location = postgresql.create_database(f"trace{next(_numbers)}", narrow)
        with pytest.raises(EnvironmentProblem, match="LATIN1"):
            open_store(location, create=True)

    def test_table_of_somebody_else(self, location):
        with contextlib.closing(connect(location, create=True)) as other, other.writing() as connection:
            connection.execute(text("CREATE TABLE event (x int)"))
        with pytest.raises(EnvironmentProblem, match="table event of something else"):
            open_store(location, create=True)


@pytest.mark.mariadb
class TestMariadb(StoreCases):
    @pytest.fixture
    def location(self, mariadb):
        return mariadb.create_database(f"trace{next(_numbers)}")
