"""The most compute processes that were seen at once on each device of a lease, and on one of a run's."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer

revision = "0007"
down_revision = "0006"

BIG = BigInteger().with_variant(Integer(), "sqlite")
OF_DEVICE = "most compute processes at once; NULL: not read"
OF_RUN = "most at once on one device; NULL: of some device it is not known"


def upgrade() -> None:
    """Files that are stored already were not looked through for it: what they saw stays unknown."""
    op.add_column("lease_device", Column("process_max", BIG, comment=OF_DEVICE))
    op.add_column("job_summary", Column("process_max", BIG, comment=OF_RUN))


def downgrade() -> None:
    for name in ("job_summary", "lease_device"):
        op.drop_column(name, "process_max")
