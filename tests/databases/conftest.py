from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import servers


@pytest.fixture(scope="session")
def postgresql() -> Iterator[servers.Server]:
    """A PostgreSQL server of the host's packages."""
    if not servers.postgresql_programs():
        pytest.skip("not installed: postgresql")
    with servers.postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[servers.Server]:
    """A MariaDB server of the host's packages."""
    if not servers.mariadb_programs():
        pytest.skip("not installed: mariadb-server")
    with servers.mariadb() as server:
        yield server
