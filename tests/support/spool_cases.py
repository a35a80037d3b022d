"""What every store must do with spool files, whatever database it is in. A subclass brings the fixture `location`."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
from sqlalchemy import delete, func, select

from slurm_trace.node.spool import Event
from slurm_trace.store import models
from slurm_trace.store.card_clocks import load_clocks
from slurm_trace.store.device_ends import load_ends
from slurm_trace.store.engine import open_store, upgrade_store
from slurm_trace.store.job_summary import CLOCK_S
from slurm_trace.store.load import load_imports, load_runs
from slurm_trace.store.samples import count_leases, count_samples, prune_chunks
from slurm_trace.store.spool_ingest import import_spools
from slurm_trace.store.telemetry import load_cycles, load_stretches
from support.runs import T0, ingest, run, running, step
from support.spools import card, counter, gap, samples, spool

UNSTABLE = {
    "id",
    "import_id",
    "run_id",
    "lease_id",
    "spool_id",
    "cluster_id",
    "columns_id",
    "facts_id",
    "kind_id",
    "card_id",
    "joined_in",
}
NODE_TABLES = (
    "interned", "lease", "spool_file", "lease_device", "rollup_hour", "counter_read", "lease_gap", "lease_event",
    "sample_chunk", "sample_interval", "ring_busy", "run_cycles", "job_summary", "disagreement",
    "device_ends", "card_clock",
)  # fmt: skip

FIRST_TABLES = {
    "cluster", "import_log", "allocation", "allocation_gres", "raw_block", "job_run", "step_row", "rejected_row",
    "event", "watermark", "verdict",
}  # fmt: skip
"""What a store of the first revision had."""


PROCESSES = ("lease_device", "job_summary")
"""Tables that came to have a column of processes with revision 0007."""


def drop_processes(connection):
    """The tables as they were before."""
    for name in PROCESSES:
        connection.exec_driver_sql(f"ALTER TABLE {name} DROP COLUMN process_max")


def rows(store, name):
    """Rows of a table with names in place of numbers that depend on the order of things."""
    table = models.metadata.tables[name]
    columns = [column for column in table.columns if column.name not in UNSTABLE]
    source = table
    if "spool_id" in table.c:
        source = table.join(models.spool_file)
        columns.append(models.spool_file.c.digest.label("file"))
    elif "run_id" in table.c:
        source = table.outerjoin(models.job_run, table.c.run_id == models.job_run.c.id)
        columns += [models.job_run.c.job_id_raw.label("of_job"), models.job_run.c.run_key.label("of_run")]
    with store.reading() as connection:
        found = connection.execute(select(*columns).select_from(source)).all()
    return sorted((tuple(row) for row in found), key=repr)


def whole(store):
    """All that the nodes told, in an order of its own."""
    return {name: rows(store, name) for name in NODE_TABLES}


def one(store, name, **where):
    """The one row of a table."""
    table = models.metadata.tables[name]
    with store.reading() as connection:
        query = select(table).where(*(table.c[key] == value for key, value in where.items()))
        return connection.execute(query).one()


def kinds(store):
    """Kinds and figures of the disagreements."""
    with store.reading() as connection:
        found = connection.execute(select(models.disagreement)).all()
    return {(row.kind, row.node, row.recorded, row.seen) for row in found}


def work(location, folder, errors):
    """A process of its own that imports a folder."""
    try:
        store = open_store(location)
        summary = import_spools(store, Path(folder))
        store.close()
        assert summary.rejected == []
    except BaseException as error:  # noqa: BLE001 (shown by the test)
        errors.put(repr(error))


class SpoolCases:
    """Run against SQLite, PostgreSQL and MariaDB."""

    @pytest.fixture
    def store(self, location):
        store = open_store(location, create=True)
        yield store
        store.close()

    @pytest.fixture
    def outbox(self, tmp_path):
        folder = tmp_path / "outbox"
        folder.mkdir()
        return folder

    @pytest.fixture
    def take(self, store, outbox):
        """Import the outbox; counts of inserted, unchanged and rejected."""

        def take():
            found = import_spools(store, outbox)
            assert found.read == found.inserted + found.unchanged + len(found.rejected)
            return found.inserted, found.unchanged, len(found.rejected)

        return take

    # What is stored

    def test_a_file_is_stored_once(self, store, outbox, take):
        reads = [counter(10, moment="start", energy_mj=5), counter(110, moment="end", energy_mj=2**62)]
        spool(outbox, counters=reads, gaps=[gap(10, 11), gap(50, None, None)],
              events=[Event(6_000 * 10**9, T0 * 10**9, "GPU-0", "xid", "it's; DROP TABLE lease --")])  # fmt: skip
        assert take() == (1, 0, 0)
        before = whole(store)
        assert take() == (0, 1, 0)
        assert whole(store) == before
        lease = one(store, "lease")
        assert (lease.node, lease.job_id_raw, lease.uid, lease.user) == ("n1", 1, 1000, "ada")
        assert (lease.opened_at, lease.closed_at, lease.closed, lease.whole) == (
            T0 + 10,
            T0 + 110,
            "end",
            True,
        )
        assert (lease.device_count, lease.part_count, lease.covered_ms + lease.gap_ms) == (2, 1, 200_000)
        assert one(store, "lease_event").detail == "it's; DROP TABLE lease --"
        assert one(store, "counter_read", position=1).energy_mj == 2**62
        gaps = rows(store, "lease_gap")
        assert [(row[1], row[3]) for row in gaps] == [(None, None), (1, 5_011 * 10**9)]
        assert len(rows(store, "lease_device")) == 2

    def test_raw_chunks_are_kept_as_received(self, store, outbox, take):
        import sqlite3

        path = spool(outbox)
        take()
        with sqlite3.connect(path) as file:
            (data,) = file.execute("SELECT data FROM chunk").fetchone()
        assert bytes(one(store, "sample_chunk").data) == data
        assert one(store, "sample_chunk").last_at == T0 + 110

    def test_nothing_there_makes_no_import(self, store, outbox):
        found = import_spools(store, outbox)
        assert (found.read, len(found.warnings)) == (0, 1)
        assert load_imports(store) == []

    def test_an_older_store_is_upgraded(self, store, location):
        with store.writing() as connection:
            for table in reversed(models.metadata.sorted_tables):
                if table.name not in FIRST_TABLES:
                    table.drop(connection)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
        upgrade_store(location).close()
        assert count_leases(store) == []

    def test_ends_of_counters_are_told_to_an_older_store(self, store, location, outbox, take):
        told = [(10, 7, None), (60, None, 5), (110, 9, 6)]
        reads = [counter(at, energy_mj=mj, gpm_sm_cycles_active=cycles) for at, mj, cycles in told]
        spool(outbox, 1, counters=[*reads, counter(50, "GPU-1", energy_mj=3)], meta={"driver_version": "550"})
        spool(outbox, 2, devices=[card(power_limit_mw=700_000)], counters=reads[1:], closed="lost", end=None)
        spool(outbox, 3)
        take()
        expected = whole(store)
        assert len(expected["device_ends"]) == 3
        cards = select(models.device_ends.c.card_id)
        with store.writing() as connection:
            numbers = connection.execute(cards).scalars().all()
            models.device_ends.drop(connection)
            models.card_clock.drop(connection)
            connection.execute(delete(models.interned).where(models.interned.c.id.in_(numbers)))
            drop_processes(connection)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0004'")
        upgrade_store(location).close()
        assert whole(store) == expected

    def test_the_highest_clock_of_a_model_is_told_to_an_older_store(self, store, location, outbox, take):
        fast = [card("GPU-0", max_sm_mhz=2100), card("GPU-1", name=None, max_sm_mhz=3000)]
        spool(outbox, 1, devices=fast, node="n2")
        spool(outbox, 2, devices=[card("GPU-7", max_sm_mhz=2100), card("GPU-8", max_sm_mhz=None)])
        sampled = samples(range(11, 112), sm_clock_mhz=2500)
        spool(outbox, 3, columns={"GPU-0": sampled}, devices=[card(max_sm_mhz=None)], cluster="d")
        take()
        expected = whole(store)
        found = {(c.cluster, c.card): (c.clock_mhz, c.node, c.uuid) for c in load_clocks(store)}
        assert found == {
            ("c", "NVIDIA H100 80GB HBM3"): (2100, "n1", "GPU-7"),
            ("c", None): (3000, "n2", "GPU-1"),
            ("d", "NVIDIA H100 80GB HBM3"): (2500, "n1", "GPU-0"),
        }
        names = select(models.card_clock.c.card_id)
        with store.writing() as connection:
            numbers = connection.execute(names).scalars().all()
            models.card_clock.drop(connection)
            connection.execute(delete(models.interned).where(models.interned.c.id.in_(numbers)))
            drop_processes(connection)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0005'")
        upgrade_store(location).close()
        assert whole(store) == expected

    def test_what_files_of_an_older_store_saw_of_processes_stays_unknown(self, store, location, outbox, take):
        ingest(store, run(1, node_list="n1"))
        spool(outbox, 1, devices=[card()], columns={"GPU-0": samples(range(11, 112), process_count=2)})
        take()
        assert [one(store, name).process_max for name in PROCESSES] == [2, 2]
        with store.writing() as connection:
            drop_processes(connection)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0006'")
        upgrade_store(location).close()
        assert [one(store, name).process_max for name in PROCESSES] == [None, None]

    def test_references_hold(self, store, outbox, take):
        spool(outbox, 1, counters=[counter(20)])
        spool(outbox, 2)
        ingest(store, run(1, node_list="n2"))
        take()
        with store.reading() as connection:
            for table in models.metadata.sorted_tables:
                for key in table.foreign_keys:
                    orphans = (
                        select(func.count())
                        .select_from(table.outerjoin(key.column.table, key.parent == key.column))
                        .where(key.parent.is_not(None), key.column.is_(None))
                    )
                    assert connection.execute(orphans).scalar() == 0, key

    # Parts

    def test_parts_make_one_lease(self, store, outbox, take):
        reads = [
            [counter(at, energy_mj=energy)] for at, energy in ((20, 10**8), (60, 5 * 10**8), (100, 9 * 10**8))
        ]
        spool(outbox, begin=10, end=50, closed="part", counters=reads[0])
        spool(outbox, begin=50, end=80, opened=10, part=1, closed="stop", counters=reads[1])
        assert take() == (2, 0, 0)
        lease = one(store, "lease")
        assert (lease.closed, lease.closed_at, lease.whole, lease.part_count) == (None, None, False, 2)
        assert lease.seen_until == T0 + 80
        spool(outbox, begin=80, end=110, opened=10, part=2, counters=reads[2])
        ingest(store, run(1))
        assert take() == (1, 2, 0)
        lease = one(store, "lease")
        assert (lease.closed_at, lease.whole, lease.part_count) == (T0 + 110, True, 3)
        summary = one(store, "job_summary")
        assert summary.covered_ms == 200_000
        assert (summary.energy_mj, summary.energy_from) == (8 * 10**8 + 30_000_000, "power"), (
            "GPU-1 has no counter"
        )
        assert summary.flags == ""

    def test_energy_over_parts_has_no_hole(self, store, outbox, take):
        one_card = [card()]
        for part, (begin, end, energy) in enumerate(
            ((10, 50, 10**8), (50, 80, 5 * 10**8), (80, 110, 2 * 10**7))
        ):
            spool(outbox, begin=begin, end=end, opened=10, part=part, devices=one_card,
                  counters=[counter(begin + 5, energy_mj=energy)], closed="end" if part == 2 else "part")  # fmt: skip
        ingest(store, run(1, alloc_tres="gres/gpu=1"))
        take()
        summary = one(store, "job_summary")
        assert (summary.energy_mj, summary.energy_from, summary.energy_resets) == (42 * 10**7, "counter", 1)

    @pytest.mark.parametrize(
        ("counted", "kept"), [(40_000_000, (40_000_000, "counter")), (20, (30_000_000, "power"))]
    )
    def test_of_counter_and_sampled_power_the_larger_counts(self, store, outbox, take, counted, kept):
        reads = [counter(10, energy_mj=7), counter(110, energy_mj=7 + counted)]
        spool(outbox, devices=[card()], counters=reads)
        ingest(store, run(1, alloc_tres="gres/gpu=1"))
        take()
        summary = one(store, "job_summary")
        assert (summary.energy_mj, summary.energy_from) == kept

    def test_what_counters_prove_is_kept_by_run_and_told_stretch_by_stretch(self, store, outbox, take):
        clock = 1_000
        told = {
            "gpm_sm_cycles_elapsed": 10**6 * clock,
            "gpm_sm_cycles_active": 10**5 * clock,
            "energy_mj": 100_000,
        }
        reads = [counter(at, **{name: each * at for name, each in told.items()}) for at in (10, 60, 110)]
        quiet = samples(range(10, 112), sm_clock_mhz=clock, utilization_pct=10)
        spool(
            outbox, devices=[card()], counters=reads, columns={"GPU-0": quiet}, meta={"driver_version": "550"}
        )
        ingest(store, run(1, alloc_tres="gres/gpu=1", node_list="n1"))
        take()
        stored = load_cycles(store)
        (row,) = stored.table.to_dict("records")
        assert stored.kinds[row["kind"]].rung == "cycles_active"
        (run_id,) = load_runs(store)["run_id"]
        found = load_stretches(store, int(run_id))
        assert [(one.from_s - T0, one.to_s - T0) for one in found] == [(11, 60), (60, 108)]
        assert row["seconds"] == sum(one.seconds for one in found)
        assert row["active_kcycles"] == sum(one.cycles.active for one in found)
        (end,) = load_ends(store).to_dict("records")
        assert (end["uuid"], end["first_energy"], end["last_energy"]) == ("GPU-0", 10**6, 11 * 10**6)

    def test_a_part_that_is_missing_is_told(self, store, outbox, take):
        spool(outbox, begin=80, end=110, opened=10, part=2)
        ingest(store, run(1))
        take()
        assert ("parts", "n1", None, 1) in kinds(store)

    def test_two_files_of_one_part_do_not_count_twice(self, store, outbox, take):
        spool(outbox)
        spool(outbox, end=130)
        ingest(store, run(1))
        take()
        lease = one(store, "lease")
        assert (lease.part_count, lease.whole) == (2, False)
        assert lease.covered_ms in (200_000, 240_000)
        assert one(store, "job_summary").flags == "lease_parts"

    # Which run it is

    @pytest.mark.parametrize("accounting_first", [True, False])
    @pytest.mark.parametrize(
        ("said", "how"),
        [
            ({"sluid": "s1", "start_time": str(T0 + 10)}, "sluid"),
            ({"sluid": "s1", "start_time": str(T0 + 999)}, "sluid"),
            ({"start_time": str(T0 + 10)}, "start"),
            ({"start_time": str(T0 + 12)}, "overlap"),
            ({}, "overlap"),
        ],
    )
    def test_join(self, store, outbox, take, said, how, accounting_first):
        spool(outbox, **said)
        if not accounting_first:
            take()
            assert one(store, "lease").run_id is None
        ingest(store, run(1, sluid="s1" if "sluid" in said else None), run(1, cluster="d"), run(2))
        take()
        lease = one(store, "lease")
        runs = load_runs(store).set_index("run_id")
        assert lease.joined_by == how
        joined = runs.loc[lease.run_id]
        assert (joined.cluster, joined.job_id_raw) == ("c", 1)
        assert joined.lease_end == T0 + 110 + CLOCK_S

    def test_a_requeued_job_has_a_lease_for_each_run(self, store, outbox, take):
        first = run(1, state="REQUEUED")
        second = run(1, submit=T0 + 120, run_key=T0 + 120, start=T0 + 240, end=T0 + 340)
        spool(outbox, begin=240.4, end=341)
        spool(outbox, begin=10.4, end=111)
        ingest(store, first)
        take()
        assert sum(row[-1] is None for row in rows(store, "lease")) == 1
        ingest(store, second)
        runs = load_runs(store).set_index("run_key")
        assert (runs.lease_end[T0], runs.lease_end[T0 + 120]) == (T0 + 111 + CLOCK_S, T0 + 341 + CLOCK_S)
        assert len(rows(store, "lease")) == 2

    def test_another_sluid_or_start_is_another_run(self, store, outbox, take):
        spool(outbox, 1, sluid="s1", start_time=str(T0 + 10))
        spool(outbox, 2, start_time=str(T0 + 500))
        spool(outbox, 3, begin=5_000, end=5_100)
        ingest(store, run(1, sluid="s2"), run(2), run(3), run(4, started=False, start=None))
        take()
        assert [one(store, "lease", job_id_raw=job).run_id for job in (1, 2, 3)] == [None] * 3

    def test_a_run_that_goes_on_takes_the_lease_until_it_is_known_better(self, store, outbox, take):
        spool(outbox, begin=500, end=600)
        ingest(store, running(1, queried_at=T0 + 50))
        take()
        assert one(store, "lease").joined_by == "overlap"
        ingest(
            store,
            run(1, state="REQUEUED"),
            run(1, submit=T0 + 400, run_key=T0 + 400, start=T0 + 499, end=T0 + 600),
        )
        runs = load_runs(store).set_index("run_key")
        assert runs.lease_end.isna()[T0]
        assert runs.lease_end[T0 + 400] == T0 + 600 + CLOCK_S
        assert runs["flags"][T0] == ""

    def test_a_run_that_was_known_by_its_steps(self, store, outbox, take):
        from slurm_trace.accounting.records import block_of

        spool(outbox)
        ingest(store, block_of([], steps=[step(1, T0 + 12, T0 + 100)], steps_skipped=1))
        take()
        assert one(store, "lease").run_id is not None
        ingest(store, run(1))
        (row,) = load_runs(store).to_dict("records")
        assert (row["source"], row["lease_end"]) == ("text", T0 + 110 + CLOCK_S)

    def test_an_epilog_without_a_prolog(self, store, outbox, take):
        spool(outbox, 1, begin=110, end=110, devices=[], closed="orphan", attribution="none",
              meta={"end.node": "n1", "end.start_time": str(T0 + 10)})  # fmt: skip
        assert take() == (0, 0, 1), "no cluster is known yet"
        ingest(store, run(1, node_list="n1"))
        assert take() == (1, 0, 0)
        lease = one(store, "lease")
        assert (lease.opened_at, lease.closed_at, lease.node, lease.joined_by) == (
            None,
            T0 + 110,
            "n1",
            "start",
        )
        assert bool(load_runs(store)["release_proven"][0])
        assert count_samples(store).rejected_files == 0

    def test_files_that_name_no_cluster(self, store, outbox):
        spool(outbox, cluster=None)
        found = import_spools(store, outbox, cluster="hill")
        assert found.inserted == 1
        assert [entry.cluster for entry in count_leases(store)] == ["hill"]

    # What it proves, and where it disagrees

    def nodes(self, outbox, *names, **changes):
        for name in names:
            spool(outbox, node=name, **changes)

    @pytest.mark.parametrize(
        ("change", "proven"),
        [
            ({}, True),
            ({"closed": "boot"}, True),
            ({"closed": "superseded"}, False),
            ({"closed": "boot", "end": None}, False),
            ({"closed": "lost"}, False),
            ({"closed": "stop"}, False),
            ({"end": 105}, False),
            ({"begin": 5}, False),
            ({"uid": "7"}, False),
        ],
    )
    def test_every_node_has_to_close_its_lease(self, store, outbox, take, change, proven):
        self.nodes(outbox, "n1", "n2")
        self.nodes(outbox, "n3", **({"end": 130} | change))
        ingest(store, run(1, node_list="n[1-3]", node_count=3, uid=1000, alloc_tres="gres/gpu=6"))
        take()
        (row,) = load_runs(store).to_dict("records")
        assert bool(row["release_proven"]) is proven
        assert row["lease_end"] >= T0 + 110 + CLOCK_S

    @pytest.mark.parametrize(
        ("recorded", "proven"),
        [
            ({"node_list": "n[1-2]", "node_count": 2}, True),
            ({"node_list": "n[1-2]", "node_count": None}, True),
            ({"node_list": "n1", "node_count": 1}, True),
            ({"node_list": "n[1-3]", "node_count": 3}, False),
            ({"node_list": "n[1-2]", "node_count": 3}, False),
            ({"node_list": None, "node_count": None}, False),
            ({"node_list": "n[1-", "node_count": 2}, False),
            ({"node_list": "n[1-2]", "node_count": 2, "end": T0 + 111}, False),
        ],
    )
    def test_every_node_of_the_record_counts(self, store, outbox, take, recorded, proven):
        self.nodes(outbox, "n1", "n2")
        ingest(store, run(1, **recorded))
        take()
        assert bool(load_runs(store)["release_proven"][0]) is proven

    @pytest.mark.parametrize(
        ("files", "record", "told"),
        [
            ([{}], {}, set()),
            ([{}], {"alloc_tres": "gres/gpu=1"}, {("gpus_more", "", 1, 2)}),
            ([{}], {"alloc_tres": "gres/gpu=0"}, {("gpus_more", "", 0, 2)}),
            ([{}], {"alloc_tres": "cpu=1,node=1"}, {("gpus_more", "", None, 2)}),
            ([{}], {"alloc_tres": "gres/gpu:a=1,gres/gpu:b=1,gres/gpu=2"}, set()),
            ([{}], {"alloc_tres": "gres/shard=1"}, set()),
            ([{}], {"alloc_tres": None}, set()),
            ([{}], {"alloc_tres": None, "alloc_gres": "gpu:1", "node_count": 1}, {("gpus_more", "", 1, 2)}),
            ([{}], {"alloc_tres": "gres/gpu=8", "node_list": "n1"}, {("gpus_fewer", "", 8, 2)}),
            ([{}], {"alloc_tres": "gres/gpu=8", "node_list": "n[1-4]"}, {("nodes_missing", "", 4, 1)}),
            ([{"devices": [], "attribution": "none"}], {"alloc_tres": "cpu=1", "node_list": "n1"}, set()),
            ([{"attribution": "ambiguous"}], {"alloc_tres": "gres/gpu=1"}, {("gpus_unknown", "", 1, None)}),
            ([{}], {"node_list": "n2"}, {("node_not_recorded", "n1", None, None), ("nodes_missing", "", 1, 0)}),
            ([{}], {"uid": 5}, {("uid", "n1", 5, 1000)}),
            ([{"begin": 5}], {}, {("opened_early", "n1", T0 + 10, T0 + 5)}),
            ([{"begin": 8}], {}, set()),
            ([{"end": 100}], {}, {("closed_early", "n1", T0 + 110, T0 + 100)}),
            ([{"end": 200}], {}, set()),
            ([{"end": 201}], {}, {("closed_late", "n1", T0 + 110, T0 + 201)}),
            ([{"closed": "lost", "end": 9000}], {}, {("lost", "n1", T0 + 110, T0 + 9000)}),
            ([{}, {"begin": 50, "end": 120, "moment": "1"}], {}, set()),
        ],
    )  # fmt: skip
    def test_disagreement_is_a_row_and_a_flag(self, store, outbox, take, files, record, told):
        for file in files:
            spool(outbox, **file)
        ingest(store, run(1, **record))
        take()
        assert kinds(store) == told
        (row,) = load_runs(store).to_dict("records")
        assert row["flags"].split() == sorted({f"lease_{kind}" for kind, *_ in told})

    def test_flags_of_accounting_stay(self, store, outbox, take):
        spool(outbox, uid="5")
        ingest(store, run(1, flags="dst_fold", uid=6), run(2, flags="dst_fold"), run(3))
        take()
        assert list(load_runs(store)["flags"]) == ["dst_fold lease_uid", "dst_fold", ""]
        assert list(load_runs(store, columns=["flags"])["flags"]) == ["dst_fold lease_uid", "dst_fold", ""]

    def test_disagreement_goes_when_the_record_is_put_right(self, store, outbox, take):
        spool(outbox)
        ingest(store, running(1, queried_at=T0 + 50, alloc_tres="gres/gpu=1"))
        take()
        assert kinds(store) == {("gpus_more", "", 1, 2)}
        ingest(store, run(1))
        assert kinds(store) == set()

    def test_more_gpus_than_recorded_raise_and_fewer_lower_nothing(self, store, outbox, take):
        spool(outbox, 1)
        spool(outbox, 2)
        spool(outbox, 3, attribution="ambiguous")
        ingest(
            store,
            *(run(job, alloc_tres=f"gres/gpu={gpus}") for job, gpus in ((1, 1), (2, 8), (3, 1), (4, 1))),
        )
        take()
        assert [None if value != value else value for value in load_runs(store)["lease_gpus"].astype(float)] == [
            2, 2, None, None,
        ]  # fmt: skip

    def test_summary_of_a_job_is_small(self, store, outbox, take):
        eight = [card(f"GPU-{n}") for n in range(8)]
        spool(outbox, devices=eight)
        ingest(store, run(1))
        take()
        with store.reading() as connection:
            row = connection.execute(select(models.job_summary)).one()
        assert len(repr(tuple(row))) < 1000
        assert (row.utilization_ms, row.utilization_pct_ms) == (800_000, 40_000_000)
        assert (row.energy_mj, row.energy_from) == (8 * 30_000_000, "power")

    # In any order

    def files(self, outbox):
        """Files of three jobs, one of them in parts, one by several nodes."""
        spool(outbox, 1, begin=10, end=50, closed="part")
        spool(outbox, 1, begin=50, end=112, opened=10, part=1, counters=[counter(60, energy_mj=3)])
        spool(outbox, 2, node="n1", start_time=str(T0 + 10))
        spool(outbox, 2, node="n2", start_time=str(T0 + 10), gaps=[gap(20, 30)])
        spool(outbox, 1, begin=260, end=300, uid="5")
        return sorted(outbox.iterdir())

    def accounts(self):
        return [
            (running(1, queried_at=T0 + 40),),
            (run(1), run(2, node_list="n[1-2]", node_count=2)),
            (run(1, submit=T0 + 200, run_key=T0 + 200, start=T0 + 255, end=T0 + 310, uid=1000),),
        ]

    @pytest.mark.parametrize("seed", range(12))
    def test_order_and_repetition_do_not_matter(self, store, outbox, tmp_path, location, seed):
        import random

        files, accounts = self.files(outbox), self.accounts()
        ingest(store, run(99))
        for account in accounts:
            ingest(store, *account)
        import_spools(store, outbox)
        expected = whole(store)
        assert len(expected["lease"]) == 4
        with store.writing() as connection:
            for table in reversed(models.metadata.sorted_tables):
                connection.execute(delete(table))
        things = [*files, *files[:2], *accounts, accounts[0]]
        random.Random(seed).shuffle(things)
        for thing in things:
            if isinstance(thing, Path):
                import_spools(store, thing)
            else:
                ingest(store, *thing)
        ingest(store, run(99))
        assert whole(store) == expected

    def test_several_processes(self, store, location, outbox):
        self.files(outbox)
        for job in range(10, 40):
            spool(outbox, job, devices=[card()])
        context = multiprocessing.get_context("spawn")
        errors = context.Queue()
        environment = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        try:
            workers = [context.Process(target=work, args=(location, str(outbox), errors)) for _ in range(3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(120)
        finally:
            if environment is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = environment
        assert errors.empty(), errors.get()
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        assert count_samples(store).files == 35

    # Damaged files

    def test_a_damaged_file_is_kept_aside_until_a_whole_one_comes(self, store, outbox, take):
        path = spool(outbox)
        good = path.read_bytes()
        path.write_bytes(good[:-100])
        os.utime(path, (1, 1))
        spool(outbox, 2)
        assert take() == (1, 0, 1)
        reject = one(store, "spool_reject")
        assert (reject.name, reject.kept) == (path.name, str(outbox / "damaged" / path.name))
        assert "SHA-256" in reject.reason
        assert count_samples(store).rejected_files == 1
        assert take() == (0, 1, 0)
        path.write_bytes(good)
        assert take() == (1, 1, 0)
        assert count_samples(store).rejected_files == 0
        assert [entry.rejected for entry in load_imports(store)] == [1, 0]

    def test_a_damaged_file_that_is_seen_again_is_one_row(self, store, outbox, take):
        spool(outbox).write_bytes(b"x")
        assert take() == (0, 0, 1)
        assert take() == (0, 0, 1)
        assert one(store, "spool_reject").resolved_by is None

    # Pruning

    def test_prune_takes_raw_chunks_until_none_is_left(self, store, outbox, take, monkeypatch):
        from slurm_trace.store import samples as module

        for job, begin in itertools.product(range(1, 4), (0, 86_400)):
            spool(outbox, job, begin=begin, end=begin + 100)
        ingest(store, run(1))
        take()
        before = whole(store)
        size = sum(len(row[6]) for row in before["sample_chunk"])
        monkeypatch.setattr(module, "BATCH", 2)
        pruned = prune_chunks(store, T0 + 50_000)
        assert (pruned.chunks, pruned.left.chunks) == (3, 3)
        assert pruned.bytes + pruned.left.bytes == size
        assert prune_chunks(store, T0 + 50_000).chunks == 0
        assert prune_chunks(store, T0 + 500_000).left.bytes == 0
        after = whole(store)
        assert after.pop("sample_chunk") == []
        del before["sample_chunk"]
        assert after == before
        assert take() == (0, 6, 0)
        assert count_samples(store).chunks == 0
