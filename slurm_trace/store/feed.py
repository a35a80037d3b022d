"""Charges of a provider's feed: each is one row, whatever is imported again; a correction only ever raises it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from slurm_trace.accounting.feed import Charge, RejectedCharge
from slurm_trace.accounting.records import RejectedRow
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.catalog import Ids
from slurm_trace.store.engine import Store, failures_of
from slurm_trace.store.ingest import Import, ImportInfo, ImportSummary, Rejection
from slurm_trace.store.lock import WAIT_S
from slurm_trace.store.models import feed_charge, feed_reject
from slurm_trace.store.rejects import Rejects
from slurm_trace.store.upsert import Counts

KIND = "feed"
"""Kind of the imports that this makes."""

KEY = ("provider", "account", "resource", "sku", "start", "end")
_LABELS = ("meter", "service_category", "charge_category")
_TOLD = (*_LABELS, "used_s", "quantity", "cost", "currency", "flags")
_COLUMNS = ("id", "import_id", "digest", *KEY, *_TOLD, "line", "raw")
_CHANGED = ("import_id", *_TOLD, "line", "raw")
_UPDATE = (
    update(feed_charge)
    .where(feed_charge.c.id == bindparam("at_id"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGED})
)


class FeedImport(Import):
    """One import of a feed."""

    def __init__(self, store: Store, info: ImportInfo, wait_s: float = WAIT_S) -> None:
        super().__init__(store, info, wait_s)
        self._repetitions: Counter[bytes] = Counter()

    def add_charges(self, charges: Sequence[Charge], rejected: Sequence[RejectedCharge]) -> None:
        """Bring in some rows; all of them are committed when this returns."""
        told = ImportSummary(rejected=[Rejection(row.line, row.reason) for row in rejected])
        with failures_of(self._store.url):
            try:
                with self._connection.begin():
                    keyed = [(_digest(one, self._repetitions), one) for one in charges]
                    told.runs = keep_charges(self._connection, self._id, self._ids, keyed)
                    self._keep_rejected(rejected)
                    self._note({}, told)
            except BaseException:
                self._forget()
                raise
        self.summary.add(told)

    def _forget(self) -> None:
        super()._forget()
        self._rejects = Rejects(self._ids, feed_reject, "account")

    def _keep_rejected(self, rejected: Sequence[RejectedCharge]) -> None:
        for account in dict.fromkeys(row.account for row in rejected):
            rows = [RejectedRow(r.line, r.reason, r.raw) for r in rejected if r.account == account]
            self._rejects.add(self._connection, self._id, account, rows)


def keep_charges(
    connection: Connection, import_id: int, ids: Ids, charges: Sequence[tuple[bytes, Charge]]
) -> Counts:
    """Store charges, each given with the digest of its key."""
    wanted = dict(charges)
    stored = _stored(connection, wanted)
    changed = []
    for digest, (number, known) in stored.items():
        one = wanted[digest]
        merged = _merge(known, _told(one))
        if merged != known:
            values = (import_id, *merged, one.line, one.raw)
            changed.append(
                {"at_id": number, **dict(zip((f"new_{n}" for n in _CHANGED), values, strict=True))}
            )
    if changed:
        connection.execute(_UPDATE, changed)
    new = {digest: one for digest, one in wanted.items() if digest not in stored}
    rows = [
        (number, import_id, digest, *(getattr(one, name) for name in KEY), *_told(one), one.line, one.raw)
        for number, (digest, one) in zip(
            ids.take(connection, feed_charge, len(new)), new.items(), strict=True
        )
    ]
    insert_rows(connection, feed_charge, _COLUMNS, rows)
    return Counts(len(new), len(changed), len(stored) - len(changed))


def _digest(one: Charge, repetitions: Counter[bytes]) -> bytes:
    """Of the key, and of how often it has come before: one resource may be charged in parts for one period."""
    key = hashlib.blake2b(repr(tuple(getattr(one, n) for n in KEY)).encode(), digest_size=16).digest()
    repetition = repetitions[key]
    repetitions[key] += 1
    if not repetition:
        return key
    return hashlib.blake2b(key + str(repetition).encode(), digest_size=16).digest()


def _told(one: Charge) -> tuple[Any, ...]:
    flags = " ".join(sorted(set(one.flags)))
    return (*(getattr(one, name) for name in _TOLD[:-1]), flags)


def _stored(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, tuple[int, tuple[Any, ...]]]:
    found = {}
    query = select(feed_charge.c.digest, feed_charge.c.id, *(feed_charge.c[name] for name in _TOLD))
    for chunk in in_chunks(digests):
        for digest, number, *told in connection.execute(query.where(feed_charge.c.digest.in_(chunk))):
            found[bytes(digest)] = (number, tuple(told))
    return found


def _merge(known: tuple[Any, ...], told: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a charge is after a correction: the longer time, more instances, and no label that is disputed."""
    old, new = (dict(zip(_TOLD, values, strict=True)) for values in (known, told))
    flags = {*old["flags"].split(), *new["flags"].split()}
    merged: dict[str, Any] = {}
    for name in _LABELS:
        # Not given in one of them is a difference too: with the label the charge may count for less.
        if old[name] != new[name]:
            flags.add(f"{name}_disputed")
        merged[name] = None if f"{name}_disputed" in flags else old[name]
    for name in ("used_s", "quantity"):
        merged[name] = max((v for v in (old[name], new[name]) if v is not None), default=None)
    if None not in (old["used_s"], new["used_s"]) and new["used_s"] < old["used_s"]:
        flags.add("shortened")
    if (old["quantity"] is None) != (new["quantity"] is None) and None in (old["used_s"], new["used_s"]):
        # One of them may stand for more instances than the other tells of.
        flags.add("quantity_disputed")
    for name in ("cost", "currency"):
        merged[name] = old[name] if new[name] is None else new[name]
    merged["flags"] = " ".join(sorted(flags))
    return tuple(merged[name] for name in _TOLD)
