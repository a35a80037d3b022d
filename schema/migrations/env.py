"""Alembic environment: runs on the connection that the caller hands over."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], transactional_ddl=True, render_as_batch=True
)
context.run_migrations()
