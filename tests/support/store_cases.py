"""What every store must do, whatever database it is in. A subclass brings the fixture `location`."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pandas as pd
import pytest
from sqlalchemy import func, inspect, select, text

from slurm_trace.accounting.events import Event
from slurm_trace.accounting.records import RejectedRow, block_of
from slurm_trace.errors import EnvironmentProblem, UsageProblem
from slurm_trace.store import frame, models
from slurm_trace.store.engine import connect, open_store, upgrade_store
from slurm_trace.store.ingest import ImportInfo, Watermark, begin_import
from slurm_trace.store.load import (
    RUN_COLUMNS,
    count_rejected,
    count_runs,
    load_allocations,
    load_events,
    load_imports,
    load_raw,
    load_runs,
    load_unsettled,
    load_watermark,
)
from slurm_trace.store.migrate import upgrade_schema
from slurm_trace.store.verdicts import StoredVerdict, save_verdicts
from support.runs import T0, counts, ingest, run, running, step

WRITER = """
import itertools, os, sys, time
from support.runs import run
from slurm_trace.accounting.records import block_of
from slurm_trace.store.engine import open_store
from slurm_trace.store.ingest import ImportInfo, begin_import
store = open_store(sys.argv[1], create=True)
with begin_import(store, ImportInfo("file", "big")) as importing:
    for first in itertools.count(0, 500):
        importing.add(block_of([run(job) for job in range(first, first + 500)]))
        print(first + 500, flush=True)
"""


def table(store, columns=RUN_COLUMNS):
    """The runs as plain rows, without what says where they came from."""
    frame = load_runs(store, columns=[c for c in columns if c not in ("run_id", "allocation")])
    frame = frame.astype(object).where(frame.notna(), None)
    return sorted(frame.itertuples(index=False, name=None), key=repr)


def migrate_empty(location):
    """Make a store as one that began with the first revision."""
    store = connect(location, create=True)
    with store.writing() as connection:
        upgrade_schema(connection)
    store.close()


class StoreCases:
    """Run against SQLite, PostgreSQL and MariaDB."""

    @pytest.fixture
    def store(self, location):
        store = open_store(location, create=True)
        yield store
        store.close()

    @pytest.mark.parametrize("made", ["at once", "by every migration in turn"])
    def test_schema_is_what_the_code_declares(self, location, made):
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext

        if made != "at once":
            migrate_empty(location)
        store = open_store(location, create=True)
        with store.reading() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            differences = [
                d for d in compare_metadata(context, models.metadata) if "alembic_version" not in repr(d)
            ]
            version = inspect(connection).get_columns("alembic_version")
            assert [(c["name"], c["type"].length, c["nullable"]) for c in version] == [
                ("version_num", 32, False)
            ]
        assert differences == []
        ingest(store, run(1))
        assert count_runs(store) == {"c": 1}
        store.close()

    def test_opening_again_finds_what_was_stored(self, store, location):
        ingest(store, run(1))
        again = open_store(location)
        assert count_runs(again) == {"c": 1}
        again.close()

    def test_missing_store_is_not_created_by_a_reader(self, location):
        with pytest.raises(EnvironmentProblem, match="store init") as caught:
            open_store(location)
        assert "\n" not in str(caught.value)
        with pytest.raises(EnvironmentProblem, match="store init"):
            upgrade_store(location)

    def test_older_and_newer_schemas_are_refused(self, store, location, monkeypatch):
        monkeypatch.setattr(models, "REVISIONS", (*models.REVISIONS, "9999"))
        with pytest.raises(EnvironmentProblem, match="store upgrade"):
            open_store(location)
        monkeypatch.setattr(models, "REVISIONS", ("0000",))
        for opening in (open_store, upgrade_store):
            with pytest.raises(EnvironmentProblem, match="newer slurm-trace"):
                opening(location)

    def test_upgrade_of_a_current_store_changes_nothing(self, store, location):
        ingest(store, run(1))
        upgrade_store(location).close()
        assert count_runs(store) == {"c": 1}

    def test_what_went_in_comes_out(self, store):
        full = run(
            7, run_key=T0 - 5, submit=T0 - 5, array_job_id=5, het_job_id=6, sluid="s0123456789abc",
            db_index="9223372036854775999", name="trän \N{GRINNING FACE} |'\"\\%s", uid=1000,
            partition="gpu", cancelled_by=3, suspended_s=1, limit_s=60,
            node_count=2, cpu_count=8, node_list="n[1-2]", work_dir="/home/ada ", step_end=T0 + 120, step_count=2,
            queried_at=T0 + 200, flags="dst_fold line_joined", raw=b"\xff\x00raw|\x1f\n",
        )  # fmt: skip
        bare = run(
            8, start=None, end=None, elapsed_s=None, user=None, account=None, alloc_tres=None, started=False
        )
        assert counts(ingest(store, block_of([full, bare]))) == (2, 0, 0)
        runs = load_runs(store)
        assert tuple(runs.columns) == RUN_COLUMNS
        first, second = runs.to_dict("records")
        allocations = load_allocations(store)
        for name in set(RUN_COLUMNS) - {
            "run_id",
            "allocation",
            "lease_end",
            "lease_gpus",
            "release_proven",
            "lease_covered_ms",
            "lease_energy_mj",
            "lease_energy_from",
            "lease_clock_top_mhz",
            "lease_clock_max_mhz",
        }:
            assert first[name] == getattr(full, name), name
        assert runs["start"].isna()[1]
        assert not second["started"]
        assert allocations[first["allocation"]] == (full.alloc_tres, None)
        assert runs["allocation"].isna()[1]
        raw = load_raw(store, first["run_id"])
        assert (raw.raw, raw.line) == (full.raw, full.line)
        assert load_raw(store, 999) is None

    def test_columns_and_clusters_can_be_chosen(self, store):
        ingest(store, run(1, cluster="a"), run(2, cluster="b"), run(3, cluster="a"))
        runs = load_runs(store, clusters=["a"], columns=["job_id_raw", "cluster"])
        assert list(runs["job_id_raw"]) == [1, 3]
        assert list(runs["cluster"]) == ["a", "a"]
        with pytest.raises(UsageProblem, match="no cluster"):
            load_runs(store, clusters=["z"])

    def test_two_processes_read_the_same(self, store, monkeypatch):
        ingest(
            store,
            block_of(
                [run(i, user=f"u{i % 3}", name=None if i % 2 else "ü", start=T0 + i) for i in range(10)]
            ),
        )
        ingest(
            store, block_of([run(i, user=f"v{i}", uid=i, submit=None, run_key=-1 - i) for i in range(10, 15)])
        )
        whole = load_runs(store)
        assert list(whole["job_id_raw"]) == list(range(15))
        monkeypatch.setattr(frame, "LARGE", 2)
        for size in (3, 4, 50_000):
            monkeypatch.setattr(frame, "CHUNK", size)
            again = load_runs(store)
            pd.testing.assert_frame_equal(again, whole, check_categorical=False)
            assert len(load_runs(store, clusters=["c"], columns=["user", "flags"])) == 15

    def test_empty_store_loads(self, store):
        assert len(load_runs(store)) == 0
        assert load_imports(store) == []
        assert count_rejected(store) == {}

    def test_gres_of_an_allocation(self, store):
        ingest(store, run(1))
        with store.reading() as connection:
            rows = connection.execute(
                select(models.allocation_gres).order_by(models.allocation_gres.c.position)
            ).all()
        assert [(r.name, r.type, r.count) for r in rows] == [("gpu", "a100", 2), ("gpu", None, 2)]

    def test_names_differ_by_case_and_trailing_blank(self, store):
        ingest(
            store, *(run(1, cluster=name, user=name, alloc_tres=name) for name in ("a", "A", "a ", "ä", "Ä"))
        )
        assert len(count_runs(store)) == 5
        assert set(load_runs(store)["user"]) == {"a", "A", "a ", "ä", "Ä"}
        assert len(load_allocations(store)) == 5

    def test_same_import_changes_nothing(self, store):
        block = block_of(
            [run(1), run(2), running(3)], rejected=[RejectedRow(9, "odd", b"x"), RejectedRow(10, "odd", b"x")]
        )
        assert counts(ingest(store, block)) == (3, 0, 0)
        before = table(store)
        assert counts(ingest(store, block)) == (0, 0, 3)
        assert counts(ingest(store, block_of(block.records()))) == (0, 0, 3)
        assert table(store) == before
        assert count_rejected(store) == {"c": 2}

    def test_duplicates_within_an_import_are_unchanged(self, store):
        assert counts(ingest(store, block_of([run(1), run(1), run(2)]), run(1))) == (2, 0, 2)

    def test_running_gives_way_to_final_and_never_back(self, store):
        assert counts(ingest(store, running(1))) == (1, 0, 0)
        assert counts(ingest(store, run(1))) == (0, 1, 0)
        assert counts(ingest(store, running(1, queried_at=T0 + 5000))) == (0, 0, 1)
        assert list(load_runs(store)["state"]) == ["COMPLETED"]

    @pytest.mark.parametrize(
        "order", list(itertools.permutations(range(5)))[::7], ids=lambda o: "".join(map(str, o))
    )
    def test_order_of_accounts_does_not_matter(self, store, order):
        accounts = [
            run(
                1,
                state="PENDING",
                final=False,
                started=False,
                start=None,
                end=None,
                elapsed_s=0,
                queried_at=T0 + 5,
                alloc_tres="",
            ),
            running(1, queried_at=T0 + 50, step_end=T0 + 40, step_count=1),
            running(1, queried_at=T0 + 70, step_end=T0 + 30, step_count=2),
            run(1, final=False, flags="settling", queried_at=T0 + 112),
            run(1),
        ]
        ingest(store, *(accounts[i] for i in order), *(accounts[i] for i in order[:2]))
        (row,) = load_runs(store).to_dict("records")
        assert (row["state"], row["final"], row["flags"]) == ("COMPLETED", True, "")
        assert (row["elapsed_s"], row["step_end"], row["step_count"]) == (100, T0 + 40, 2)

    def test_later_question_wins_while_not_final(self, store):
        ingest(store, running(1, queried_at=T0 + 70), running(1, queried_at=T0 + 50))
        assert list(load_runs(store)["elapsed_s"]) == [60]

    @pytest.mark.parametrize("longer_first", [True, False])
    def test_shortened_final_row_keeps_the_longer_times(self, store, longer_first):
        longer, shorter = run(1), run(1, end=T0 + 60, elapsed_s=50, alloc_tres="cpu=1")
        ingest(store, *((longer, shorter) if longer_first else (shorter, longer)))
        (row,) = load_runs(store).to_dict("records")
        assert (row["end"], row["elapsed_s"], row["flags"]) == (T0 + 110, 100, "alloc_changed shortened")
        parts = {*longer.alloc_tres.split(","), *shorter.alloc_tres.split(",")}
        assert {*load_allocations(store)[row["allocation"]][0].split(",")} == parts
        assert counts(ingest(store, longer, shorter)) == (0, 0, 2)

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_a_longer_final_row_takes_no_card_away(self, store, order):
        """Whoever writes rows into the names of his jobs must not make an earlier one small."""
        accounts = [
            run(1, alloc_tres="cpu=8,gres/gpu=8,node=2", node_count=2, cpu_count=8, node_list="n[1-2]"),
            run(
                1, end=T0 + 111, elapsed_s=101, alloc_tres="cpu=1,gres/gpu=0,node=1",
                node_count=1, cpu_count=1, node_list="n9",
            ),
        ]  # fmt: skip
        ingest(store, *(accounts[i] for i in order))
        (row,) = load_runs(store).to_dict("records")
        assert (row["elapsed_s"], row["node_count"], row["cpu_count"], row["node_list"]) == (
            101,
            2,
            8,
            "n[1-2]",
        )
        assert {"cpu=8", "gres/gpu=8", "gres/gpu=0"} <= {
            *load_allocations(store)[row["allocation"]][0].split(",")
        }
        assert "alloc_changed" in row["flags"]
        assert ingest(store, *accounts, *accounts).unchanged == len(accounts) * 2

    def test_narrower_export_takes_nothing_away(self, store):
        ingest(store, run(1, work_dir="/x"))
        assert counts(ingest(store, run(1, work_dir=None, alloc_tres=None, user=None))) == (0, 0, 1)

    def test_wider_export_fills_in(self, store):
        ingest(store, run(1, alloc_tres=None))
        assert counts(ingest(store, run(1, work_dir="/x"))) == (0, 1, 0)
        (row,) = load_runs(store).to_dict("records")
        assert row["work_dir"] == "/x"
        assert load_raw(store, row["run_id"]).raw == run(1, work_dir="/x").raw

    @pytest.mark.parametrize("incomplete_first", [True, False])
    def test_row_without_submit_is_the_run_of_equal_start(self, store, incomplete_first):
        incomplete = run(1, submit=None, run_key=T0 + 10, flags="identity_incomplete")
        rows = [incomplete, run(1), run(1, submit=T0 + 500, start=T0 + 510, end=T0 + 600)]
        ingest(store, *(rows if incomplete_first else rows[::-1]))
        runs = load_runs(store)
        assert sorted(runs["run_key"]) == [T0, T0 + 500]
        assert set(runs["flags"]) == {""}
        assert counts(ingest(store, incomplete)) == (0, 0, 1)

    def test_row_without_submit_joins_when_the_start_becomes_known(self, store):
        pending = run(1, state="PENDING", final=False, started=False, start=None, end=None, elapsed_s=0)
        ingest(store, pending, run(1, submit=None, run_key=T0 + 10, flags="identity_incomplete"))
        assert count_runs(store) == {"c": 2}
        ingest(store, running(1))
        (row,) = load_runs(store).to_dict("records")
        assert (row["state"], row["run_key"], row["flags"]) == ("COMPLETED", T0, "")

    def test_rows_without_any_time_stay_apart(self, store):
        rows = [run(1, submit=None, start=None, run_key=-key, flags="identity_incomplete") for key in (5, 6)]
        assert counts(ingest(store, *rows)) == (2, 0, 0)
        assert counts(ingest(store, *rows)) == (0, 0, 2)

    def test_requeued_runs_are_runs_of_their_own(self, store):
        rows = [
            run(1, submit=T0 + i * 1000, start=T0 + i * 1000 + 5, end=T0 + i * 1000 + 9) for i in range(4)
        ]
        assert counts(ingest(store, block_of(rows))) == (4, 0, 0)

    def test_steps_go_to_the_run_under_way(self, store):
        first, second = run(1, end=T0 + 20), run(1, submit=T0 + 50, start=T0 + 60)
        steps = [
            step(1, T0 + 11, T0 + 25),
            step(1, T0 + 61, T0 + 300),
            step(1, T0 + 61, None, "extern", finished=False),
        ]
        ingest(store, block_of([], steps=steps, steps_skipped=3), block_of([first, second]))
        runs = load_runs(store).set_index("submit")
        assert list(runs["step_end"]) == [T0 + 25, T0 + 300]
        assert list(runs["step_count"]) == [1, 1]
        before = table(store)
        ingest(store, block_of([first, second], steps=steps, steps_skipped=3))
        assert table(store) == before

    def test_steps_alone_stand_in_for_their_run_until_it_comes(self, store):
        steps = block_of(
            [], steps=[step(1, T0 + 10, T0 + 95), step(1, T0 + 12, T0 + 99, "0")], steps_skipped=2
        )
        summary = ingest(store, steps)
        assert any("steps alone" in warning for warning in summary.warnings)
        assert summary.jobs == 0
        (row,) = load_runs(store).to_dict("records")
        assert (row["source"], row["final"], row["start"], row["step_end"], row["step_count"]) == (
            "step",
            False,
            T0 + 10,
            T0 + 99,
            2,
        )
        assert b"1.batch" in load_raw(store, row["run_id"]).raw
        number = row["run_id"]
        ingest(store, steps)
        assert list(load_runs(store)["run_id"]) == [number]
        ingest(store, run(1, start=T0 + 9))
        (row,) = load_runs(store).to_dict("records")
        assert (row["source"], row["state"], row["step_end"], row["step_count"]) == (
            "text",
            "COMPLETED",
            T0 + 99,
            2,
        )

    @pytest.mark.parametrize("job_row_first", [True, False])
    def test_step_that_began_when_another_run_of_its_job_was_submitted(self, store, job_row_first):
        steps = block_of([], steps=[step(1, T0, T0 + 5)], steps_skipped=1)
        requeued = run(1, submit=T0, run_key=T0, start=T0 + 60)
        for block in (requeued, steps) if job_row_first else (steps, requeued):
            ingest(store, block)
        rows = {row["source"]: row for row in load_runs(store).to_dict("records")}
        assert {source: row["start"] for source, row in rows.items()} == {"text": T0 + 60, "step": T0}
        assert rows["text"]["run_key"] == T0 > rows["step"]["run_key"]
        ingest(store, steps)
        assert len(load_runs(store)) == 2

    @pytest.mark.parametrize(
        "bad",
        [
            {"name": "a\0b"}, {"name": "\ud800"}, {"uid": 2**63}, {"job_id_raw": 2**63}, {"start": -(2**64)},
            {"alloc_tres": "cpu=\udfff"}, {"cluster": "x" * 256}, {"cluster": "\0"},
            {"node_list": "\ud800", "submit": None, "run_key": -1}, {"state": None}, {"final": None},
        ],
        ids=repr,
    )  # fmt: skip
    def test_value_that_cannot_be_stored_costs_its_row_alone(self, store, bad):
        summary = ingest(store, block_of([run(1), run(2, **bad), run(3)]), run(4))
        assert counts(summary) == (3, 0, 0)
        assert len(summary.rejected) == 1
        assert sorted(load_runs(store)["job_id_raw"]) == [1, 3, 4]
        assert sum(count_rejected(store).values()) == 1

    def test_bad_value_in_a_row_that_is_compared(self, store):
        ingest(store, run(1), run(2))
        assert counts(ingest(store, block_of([run(1, name="\ud800"), run(2, name="x")]))) == (0, 1, 0)

    def test_huge_row_and_huge_block(self, store):
        rows = [run(i, raw=bytes([i]) * (1 << 20), name="n" * 70_000) for i in range(6)]
        ingest(store, block_of(rows))
        for i, number in enumerate(load_runs(store)["run_id"]):
            assert load_raw(store, number).raw == rows[i].raw

    def test_rejected_rows_are_kept_once_and_settled_when_readable(self, store):
        bad = [RejectedRow(4, "odd \0", b"\xffbad"), RejectedRow(5, "odd", b"\xffbad")]
        ingest(store, block_of([run(1)], rejected=bad), digest="d" * 64)
        ingest(store, block_of([], rejected=bad[:1]), name="another", cluster="c")
        assert count_rejected(store) == {"c": 2}
        ingest(store, block_of([run(1), run(2)]), digest="e" * 64)
        assert count_rejected(store) == {"c": 2}
        ingest(store, block_of([run(1)], rejected=bad), digest="d" * 64)
        assert count_rejected(store) == {"c": 2}
        ingest(store, block_of([run(1), run(2)]), digest="d" * 64)
        assert count_rejected(store) == {}

    def test_rows_without_cluster(self, store):
        with pytest.raises(UsageProblem, match="--cluster"):
            ingest(store, run(1, cluster=None))
        ingest(store, run(1, cluster=None), run(2, cluster="named"), cluster="given")
        assert count_runs(store) == {"given": 1, "named": 1}
        with pytest.raises(UsageProblem, match="--cluster"):
            ingest(store, run(3, cluster=None))

    def test_the_only_cluster_is_taken(self, store):
        ingest(store, run(1))
        assert counts(ingest(store, run(1, cluster=None), run(2, cluster=""))) == (1, 0, 1)

    def test_failed_import_is_noted_and_completed_by_the_next(self, store):
        with pytest.raises(UsageProblem):
            ingest(store, run(1), run(2, cluster=None), name="f")
        (failed,) = load_imports(store)
        assert (failed.complete, failed.inserted, failed.clusters) == (False, 1, ("c",))
        assert "--cluster" in failed.problem
        ingest(store, run(1), run(2), name="f", covers=(1, 2), digest="a" * 64, header=b"JobID|State")
        failed, done = load_imports(store)
        assert failed.completed_by == done.id
        assert (done.complete, done.covers_from, done.covers_to, done.digest) == (True, 1, 2, "a" * 64)
        assert (done.cluster, done.inserted, done.unchanged) == ("c", 1, 1)
        assert load_raw(store, int(load_runs(store)["run_id"].max())).header == b"JobID|State"

    def test_broken_window_is_made_good_when_its_time_is_covered(self, store):
        def live(cluster, asked, covers, broken=False):
            flags = {"cluster": cluster, "asked": asked}
            with begin_import(
                store, ImportInfo("sacct", f"sacct {asked}", cluster=cluster, flags=flags)
            ) as importing:
                importing.add(block_of([run(1, cluster=cluster)]))
                if not broken:
                    importing.finish(covers=covers)

        live("a", [100, 300], None, broken=True)
        live("a", [50, 200], (50, 200))
        live("b", [50, 400], (50, 400))
        live("a", [250, 400], (250, 400))
        broken = load_imports(store)[0]
        assert (broken.completed_by, broken.jobs, broken.clusters) == (None, 1, ("a",))
        live("a", [200, 260], (200, 260))
        assert load_imports(store)[0].completed_by == 5

    def test_steps_with_nothing_but_times(self, store):
        bare = [step(1, T0 + 20, T0 + 30, name, raw=b"") for name in ("0", "1")]
        ingest(store, run(1), block_of([], steps=bare, steps_skipped=2))
        assert list(load_runs(store)["step_count"]) == [2]

    def test_watermark_moves_on_success_and_never_back(self, store):
        self.interrupted(store, run(1))
        assert load_watermark(store, "c", "sacct") is None
        for until in (500, 400):
            ingest(store, run(1), watermark=Watermark("c", "sacct", until))
            assert load_watermark(store, "c", "sacct") == 500
        assert load_watermark(store, "c", "pyslurm") is None

    def test_unsettled_runs(self, store):
        ingest(store, run(1), running(2), running(3, submit=T0 + 5), cluster="c")
        assert load_unsettled(store, "c") == [2, 3]
        assert load_unsettled(store, "c", before=T0 + 5) == [2]

    def test_events(self, store):
        def event(node="n1", start=T0, end=None, **changes):
            return Event(
                **(
                    {
                        "cluster": "c",
                        "node": node,
                        "start": start,
                        "end": end,
                        "state": "DOWN",
                        "reason": "",
                        "tres": None,
                        "user": "",
                    }
                    | changes
                )
            )

        def add(*events, rejected=()):
            with begin_import(store, ImportInfo("events", "e")) as importing:
                importing.add_events(events, rejected)
                return counts(importing.finish())

        assert add(event(), event("n1", T0 + 5), event("", tres="cpu=1"), event()) == (3, 0, 1)
        assert add(event(), event("n1", T0 + 5), event("", tres="cpu=1")) == (0, 0, 3)
        assert add(
            event(end=T0 + 9), event(node="x" * 300, reason="a\0\ud800"), rejected=[RejectedRow(1, "r", b"")]
        ) == (1, 1, 0)
        assert add(event()) == (0, 0, 1)
        assert add(event(end=T0 + 7)) == (0, 0, 1)
        stored = {(e.node, e.start): e for e in load_events(store)}
        assert stored["n1", T0].end == T0 + 9
        assert stored["", T0].tres == "cpu=1"
        assert load_events(store, ["other"]) == []

    def test_verdicts_replace_each_other(self, store):
        ingest(store, run(1), run(2))
        number = int(load_runs(store)["run_id"].min())

        def verdict(**changes):
            values = {
                "run_id": number, "threshold": "eu-gpai", "basis": "max_any_op", "trust": "allocation",
                "rates": "r", "evaluator": "1",
                "bound": str(10**30), "verdict": "NOT_RULED_OUT", "verdict_strict": "INSUFFICIENT", "generated_at": T0,
            }  # fmt: skip
            return StoredVerdict(**(values | changes))

        assert save_verdicts(store, [verdict(), verdict(run_id=number + 1), verdict(threshold="x")]) == 3
        save_verdicts(store, [verdict(bound=None, verdict="INSUFFICIENT")])
        with store.reading() as connection:
            rows = connection.execute(select(models.verdict)).all()
        assert len(rows) == 3
        assert sorted(row.bound or "" for row in rows) == ["", str(10**30), str(10**30)]

    def test_second_import_waits_then_gives_up(self, store, location):
        other = open_store(location)
        with begin_import(store, ImportInfo("file", "first")) as first:
            first.add(block_of([run(1)]))
            began = time.monotonic()
            with (
                pytest.raises(EnvironmentProblem, match="another import"),
                begin_import(other, ImportInfo("file", "second"), wait_s=0.3),
            ):
                pass
            assert 0.3 <= time.monotonic() - began < 5
            assert count_runs(other) == {"c": 1}
            first.finish()
        assert counts(ingest(other, run(1))) == (0, 0, 1)
        other.close()

    def test_concurrent_imports_do_not_interleave(self, store, location):
        summaries, failures = [], []

        def work(first):
            mine = open_store(location)
            try:
                with begin_import(mine, ImportInfo("file", str(first)), wait_s=60) as importing:
                    for block in range(5):
                        importing.add(
                            block_of([run(job) for job in range(first + block * 20, first + block * 20 + 40)])
                        )
                    summaries.append(importing.finish())
            except Exception as error:  # noqa: BLE001 (shown below)
                failures.append(error)
            finally:
                mine.close()

        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 50, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        jobs = load_runs(store)["job_id_raw"]
        assert sorted(jobs) == list(range(170))
        assert sum(summary.inserted for summary in summaries) == 170

    def test_killed_import_leaves_whole_blocks_and_the_next_completes_it(self, location):
        open_store(location, create=True).close()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for blocks in (1, 2, 4):
            child = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(WRITER), location],
                stdout=subprocess.PIPE,
                env=environment,
            )
            try:
                for _ in range(blocks):
                    assert child.stdout.readline()
                time.sleep(0.01 * blocks)
            finally:
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
                child.stdout.close()
        store = open_store(location)
        stored = count_runs(store)["c"]
        assert stored >= 2000
        assert stored % 500 == 0
        self.check(store)
        with store.reading() as connection:
            raws = connection.execute(select(func.count()).select_from(models.raw_block)).scalar()
        assert raws == stored // 500
        assert sum(entry.inserted for entry in load_imports(store)) == stored
        assert [entry.complete for entry in load_imports(store)] == [False] * 3
        with begin_import(store, ImportInfo("file", "big"), wait_s=30) as importing:
            importing.add(block_of([run(job) for job in range(stored + 100)]))
            assert counts(importing.finish()) == (100, 0, stored)
        assert [entry.completed_by for entry in load_imports(store)] == [4, 4, 4, None]
        store.close()

    def test_database_failure_is_one_line(self, store, location):
        with store.writing() as connection:
            connection.execute(text("DROP TABLE verdict"))
        number = StoredVerdict(1, "t", "b", "a", "r", "e", None, "v", "v", 1)
        with pytest.raises(EnvironmentProblem) as caught:
            save_verdicts(store, [number])
        assert "\n" not in str(caught.value)

    def test_crash_between_a_job_row_and_its_steps(self, store):
        """The stand-in goes at the end of the next import, even if that one finds nothing new."""
        ingest(store, block_of([], steps=[step(1, T0 + 20, T0 + 99)], steps_skipped=1))
        self.interrupted(store, run(1))
        assert sorted(load_runs(store)["source"]) == ["step", "text"]
        assert counts(ingest(store, run(1))) == (0, 0, 1)
        (row,) = load_runs(store).to_dict("records")
        assert (row["source"], row["step_end"]) == ("text", T0 + 99)

    def test_references_hold(self, store):
        ingest(
            store,
            block_of(
                [run(1), running(2)],
                steps=[step(3, T0, T0 + 1)],
                steps_skipped=1,
                rejected=[RejectedRow(1, "r", b"")],
            ),
        )
        ingest(store, run(3, start=T0), run(2))
        self.check(store)

    def interrupted(self, store, *runs):
        """An import that ends after its blocks and before its end."""
        importing = begin_import(store, ImportInfo("sacct", "q"))
        with importing:
            for one in runs:
                importing.add(block_of([one]))

    def check(self, store):
        """Every reference of every table points at a row."""
        with store.reading() as connection:
            for one in models.metadata.sorted_tables:
                for key in one.foreign_keys:
                    orphans = (
                        select(func.count())
                        .select_from(one.outerjoin(key.column.table, key.parent == key.column))
                        .where(key.parent.is_not(None), key.column.is_(None))
                    )
                    assert connection.execute(orphans).scalar() == 0, key
