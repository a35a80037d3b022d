"""Texts that many rows share, stored once."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, select

from slurm_trace.store.bulk import insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.models import interned


def intern(connection: Connection, ids: Ids, text: str) -> int:
    """The id of a text, inside a transaction of the one writer; a text that is new gets one."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    known = connection.execute(select(interned.c.id).where(interned.c.digest == digest)).scalar()
    if known is not None:
        return int(known)
    (number,) = ids.take(connection, interned)
    insert_rows(connection, interned, ("id", "digest", "text"), [(number, digest, text)])
    return number
