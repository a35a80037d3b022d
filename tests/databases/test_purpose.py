"""What purpose evidence reads of a run, on real servers: the same as from SQLite."""

from __future__ import annotations

import itertools

import pytest

from slurm_trace.classify import classify
from slurm_trace.store.engine import open_store
from slurm_trace.store.load import load_runs
from slurm_trace.store.spool_ingest import import_spools
from support.purpose import busy_spool
from support.runs import T0, ingest, run

_numbers = itertools.count()


def told(location, outbox):
    store = open_store(location, create=True)
    try:
        ingest(
            store,
            run(1, name="x", end=T0 + 3610, elapsed_s=3600),
            run(2, name="x", start=T0 + 3700, end=T0 + 3800),
        )
        import_spools(store, outbox)
        runs = load_runs(store).set_index("job_id_raw")
        return [classify(store, int(runs["run_id"][job])).finding for job in (1, 2)]
    finally:
        store.close()


def check(location, tmp_path):
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    busy_spool(outbox)
    ours, theirs = told(str(tmp_path / "store.sqlite"), outbox), told(location, outbox)
    assert theirs == ours
    assert ours[0].readings["continuation"].value == 2
    assert sum(reading.value is not None for reading in ours[0].readings.values()) == 17


@pytest.mark.postgresql
def test_postgresql(postgresql, tmp_path):
    check(postgresql.create_database(f"purpose{next(_numbers)}"), tmp_path)


@pytest.mark.mariadb
def test_mariadb(mariadb, tmp_path):
    check(mariadb.create_database(f"purpose{next(_numbers)}"), tmp_path)
