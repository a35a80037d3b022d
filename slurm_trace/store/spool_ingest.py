"""Bring sealed spool files into the store: checked outside the write lock, stored some at a time, each once."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import func, select, update

from slurm_trace.errors import unreadable
from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.engine import Store, failures_of
from slurm_trace.store.fit import storable
from slurm_trace.store.ingest import Import, ImportInfo, ImportSummary, Rejection
from slurm_trace.store.leases import refresh_leases
from slurm_trace.store.models import lease, spool_file, spool_reject
from slurm_trace.store.spool_copy import sealed_as
from slurm_trace.store.spool_prepare import PreparedSpool, RejectedSpool, prepare, scratch_folder
from slurm_trace.store.spool_rows import store_spool
from slurm_trace.store.upsert import Counts

KIND = "spool"
"""Kind of the imports that this makes."""

ENDING = ".spool"
WAIT_S = 300.0
"""How long to wait for another import to end: nobody sits in front of this one."""

BATCH_FILES = 200
BATCH_BYTES = 64 << 20
Progress = Callable[[int, int], None]
"""Told how many files of how many are done."""


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A file that was not taken in, why, and where it is now."""

    file: str
    reason: str
    kept: str


@dataclass(slots=True)
class SpoolSummary:
    """Counts of one import: read = inserted + unchanged + rejected.

    Attributes:
        bytes: Of the files that were new.
        leases: Leases that they are of.
        joined: How many of these have a run in the store.
    """

    inserted: int = 0
    unchanged: int = 0
    bytes: int = 0
    leases: int = 0
    joined: int = 0
    rejected: list[RejectedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, other: SpoolSummary) -> None:
        """Sum up."""
        self.inserted += other.inserted
        self.unchanged += other.unchanged
        self.bytes += other.bytes
        self.rejected += other.rejected

    @property
    def read(self) -> int:
        """Files in all."""
        return self.inserted + self.unchanged + len(self.rejected)


def find_files(given: Path) -> list[Path]:
    """The sealed spool files of a directory, or the one file.

    Raises:
        TraceError: It cannot be read (see `unreadable`).
    """
    try:
        if not stat.S_ISDIR(given.stat().st_mode):
            return [given]
        return sorted(path for path in given.iterdir() if path.suffix == ENDING and path.name[0] != ".")
    except (OSError, ValueError) as error:
        raise unreadable(given, error, "name the sampler's outbox, or a sealed file of it") from error


def import_spools(
    store: Store, given: Path, cluster: str | None = None, progress: Progress = lambda done, whole: None
) -> SpoolSummary:
    """Import the sealed files of a directory, or one file.

    Args:
        store: The store.
        given: Directory or file.
        cluster: Cluster of the files that name none.
        progress: Told how far it is.

    Raises:
        UsageProblem: There is no such file or directory that this user may read.
        EnvironmentProblem: The store or the file system failed; what was stored before that stays.
    """
    summary = SpoolSummary()
    files = find_files(given)
    if not files:
        summary.warnings.append(f"{given} holds no sealed spool files (*{ENDING})")
    known = _known(store, files)
    new = [path for path in files if sealed_as(path.name) not in known]
    summary.unchanged = len(files) - len(new)
    info = ImportInfo(KIND, str(given.absolute()), cluster=cluster)
    waiting = iter(new)
    touched: set[int] = set()
    while True:
        with scratch_folder() as scratch:
            batch = _batch(waiting, scratch)
            if not batch:
                break
            with SpoolImport(store, info, WAIT_S) as running:
                touched |= running.add_files(batch, summary)
                running.finish()
        progress(summary.read, len(files))
    summary.leases, summary.joined = len(touched), _joined(store, touched)
    return summary


def _batch(waiting: Iterator[Path], scratch: Path) -> list[PreparedSpool | RejectedSpool]:
    found: list[PreparedSpool | RejectedSpool] = []
    size = 0
    for path in waiting:
        one = prepare(path, scratch)
        if one is not None:
            found.append(one)
            size += one.checked.size if isinstance(one, PreparedSpool) else 0
        if len(found) == BATCH_FILES or size > BATCH_BYTES:
            break
    return found


class SpoolImport(Import):
    """One batch of spool files, as an import of its own."""

    def add_files(self, batch: Sequence[PreparedSpool | RejectedSpool], summary: SpoolSummary) -> set[int]:
        """Store files and note damaged ones, all in one transaction; the leases that there is news of."""
        told = SpoolSummary()
        rejected = [one for one in batch if isinstance(one, RejectedSpool)]
        good = [one for one in batch if isinstance(one, PreparedSpool)]
        with failures_of(self._store.url), self._connection.begin():
            clusters = set(self._clusters.all(self._connection))
            clusters.update(one.checked.lease.cluster for one in good if one.checked.lease.cluster)
            default = self._info.cluster or (next(iter(clusters)) if len(clusters) == 1 else None)
            touched: dict[int, str] = {}
            for one in good:
                name = one.checked.lease.cluster or default
                if name is None:
                    rejected.append(_unnamed(one, Path(self._info.name)))
                    continue
                cluster_id = self._clusters.id_of(self._connection, name)
                lease_id = store_spool(self._connection, self._id, self._ids, cluster_id, one)
                if lease_id is None:
                    told.unchanged += 1
                else:
                    touched[lease_id] = name
                    told.inserted += 1
                    told.bytes += one.checked.size
            refresh_leases(self._connection, sorted(touched))
            self._keep_rejected(rejected)
            self._resolve(one.digest for one in good)
            noted = ImportSummary(
                runs=Counts(inserted=told.inserted, unchanged=told.unchanged),
                rejected=[Rejection(0, f"{one.name}: {one.reason}") for one in rejected],
            )
            self._note({}, noted, touched.values())
        self.summary.add(noted)
        self._seen |= set(touched.values())
        told.rejected = [RejectedFile(one.name, one.reason, one.kept) for one in rejected]
        summary.add(told)
        return set(touched)

    def _keep_rejected(self, rejected: Sequence[RejectedSpool]) -> None:
        wanted = {_reject_digest(one): one for one in rejected}
        for chunk in in_chunks(wanted):
            here = spool_reject.c.digest.in_(chunk)
            known = {
                bytes(d)
                for d in self._connection.execute(select(spool_reject.c.digest).where(here)).scalars()
            }
            for digest in known:
                again = {
                    "import_id": self._id,
                    "reason": storable(wanted[digest].reason),
                    "resolved_by": None,
                }
                row = spool_reject.c.digest == digest
                self._connection.execute(update(spool_reject).where(row).values(again))
                del wanted[digest]
        ids = self._ids.take(self._connection, spool_reject, len(wanted))
        rows = [
            (
                number,
                self._id,
                digest,
                one.size,
                sealed_as(one.name),
                *map(storable, (one.name, one.reason, one.kept)),
            )
            for number, (digest, one) in zip(ids, wanted.items(), strict=True)
        ]
        names = ("id", "import_id", "digest", "size", "sealed_as", "name", "reason", "kept")
        insert_rows(self._connection, spool_reject, names, rows)

    def _resolve(self, digests: Iterable[str]) -> None:
        """Files that came damaged before and whole now."""
        for chunk in in_chunks(digests):
            here = (spool_reject.c.sealed_as.in_(chunk), spool_reject.c.resolved_by.is_(None))
            stored = select(spool_file.c.digest).where(spool_file.c.digest.in_(chunk))
            there = list(self._connection.execute(stored).scalars())
            if there:
                done = update(spool_reject).where(spool_reject.c.sealed_as.in_(there), here[1])
                self._connection.execute(done.values(resolved_by=self._id))


def _unnamed(one: PreparedSpool, given: Path) -> RejectedSpool:
    name = one.checked.name
    kept = given / name if given.is_dir() else given
    reason = "it names no cluster and the store does not tell which it is; add --cluster NAME"
    return RejectedSpool(name, one.checked.size, one.digest, reason, str(kept))


def _reject_digest(one: RejectedSpool) -> bytes:
    told = f"{one.name}\0{one.digest}".encode(errors="replace")
    return hashlib.blake2b(told, digest_size=16).digest()


def _joined(store: Store, leases: set[int]) -> int:
    with store.reading() as connection:
        return sum(
            connection.execute(select(func.count(lease.c.run_id)).where(lease.c.id.in_(chunk))).scalar_one()
            for chunk in in_chunks(sorted(leases))
        )


def _known(store: Store, files: Sequence[Path]) -> set[str]:
    """Digests of files that are in the store."""
    digests = {digest for path in files if (digest := sealed_as(path.name))}
    found: set[str] = set()
    with store.reading() as connection:
        for chunk in in_chunks(sorted(digests)):
            query = select(spool_file.c.digest).where(spool_file.c.digest.in_(chunk))
            found.update(connection.execute(query).scalars())
    return found
