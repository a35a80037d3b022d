"""Bring the schema of a store up to date, from the migrations inside the installed package."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade_schema(connection: Connection) -> None:
    """Run every migration the database lacks; on an empty database that is all of them, which only tests do.

    Args:
        connection: A connection inside a transaction; the caller commits.
    """
    with resources.as_file(resources.files("slurm_trace.schema.migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
