"""What every store must do with a provider's feed, whatever database it is in. A subclass brings `location`."""

from __future__ import annotations

import io

import pytest
from sqlalchemy import select

from slurm_trace.accounting.feed import read_feed
from slurm_trace.store import models
from slurm_trace.store.engine import open_store
from slurm_trace.store.feed import KIND, FeedImport
from slurm_trace.store.feed_load import CHARGE_COLUMNS, count_rejected_charges, load_charges
from slurm_trace.store.ingest import ImportInfo
from slurm_trace.store.load import count_rejected, load_imports
from support.runs import ingest, run

HEADER = "provider,account,resource,sku,meter,service_category,hours,cost,currency,start,end"
DAY = 86_400
T0 = 1_767_225_600
"""2026-01-01"""


def row(**changes):
    """One line of a feed."""
    cells = {
        "provider": "aws",
        "account": "acme",
        "resource": "i-1",
        "sku": "p5.48xlarge",
        "meter": "",
        "service_category": "Compute",
        "hours": "10",
        "cost": "98.32",
        "currency": "USD",
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-02T00:00:00Z",
    }
    return ",".join(str(v) for v in (cells | changes).values())


def take(store, *rows, header=HEADER, name="feed.csv", digest=None, **options):
    """Import lines; inserted, updated, unchanged, rejected."""
    data = "".join(line + "\n" for line in (header, *rows)).encode()
    with FeedImport(store, ImportInfo(KIND, name)) as running:
        for block in read_feed(io.BytesIO(data), **options):
            running.add_charges(block.charges, block.rejected)
        found = running.finish(digest=digest or str(hash(data)))
    assert found.read == found.jobs + len(found.rejected) == len(rows)
    return found.inserted, found.updated, found.unchanged, len(found.rejected)


def whole(store, name="feed_charge"):
    """All rows of a table, without the number of the import that told them last."""
    table = models.metadata.tables[name]
    columns = [column for column in table.columns if column.name != "import_id"]
    with store.reading() as connection:
        found = connection.execute(select(*columns).order_by(table.c.id)).all()
    return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in line) for line in found]


class FeedCases:
    """Run against SQLite, PostgreSQL and MariaDB."""

    @pytest.fixture
    def store(self, location):
        store = open_store(location, create=True)
        yield store
        store.close()

    def one(self, store):
        """The only charge, as a plain record."""
        (found,) = load_charges(store).astype(object).to_dict("records")
        return {
            name: None if value is not value or str(value) == "<NA>" else value
            for name, value in found.items()
        }

    def test_the_same_file_again_changes_nothing(self, store):
        rows = [row(), row(resource="i-2", hours=""), row(account="b'; DROP TABLE feed_charge --"), "1,2"]
        assert take(store, *rows) == (3, 0, 0, 1)
        before = whole(store)
        assert take(store, *rows) == (0, 0, 3, 1)
        assert whole(store) == before
        assert [entry.kind for entry in load_imports(store)] == [KIND, KIND]
        assert len(whole(store, "feed_reject")) == 1

    def test_what_is_stored(self, store):
        line = row(hours="0.0001", account="Käse 🧀", meter="BoxUsage:p5.48xlarge")
        take(store, line)
        assert self.one(store) == {
            "provider": "aws", "account": "Käse 🧀", "resource": "i-1", "sku": "p5.48xlarge",
            "meter": "BoxUsage:p5.48xlarge", "service_category": "Compute", "charge_category": None, "start": T0,
            "end": T0 + DAY, "used_s": 1, "quantity": None, "flags": "",
        }  # fmt: skip
        assert whole(store)[0][-1] == (line + "\n").encode()

    def test_columns_that_nobody_asked_for_are_kept_as_received(self, store):
        take(store, row() + ',"{""team"": ""x""}"', header=HEADER + ",x_Tags")
        assert b'""team""' in whole(store)[0][-1]

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_correction_never_shortens(self, store, first):
        rows = [row(hours=10, cost=1), row(hours=8, cost=2)]
        take(store, rows[first])
        assert take(store, rows[1 - first])[1] == 1
        assert self.one(store)["used_s"] == 36_000
        assert self.one(store)["flags"] == ("" if first else "shortened")
        assert take(store, rows[1 - first]) == (0, 0, 1, 0)

    def test_a_credit_lowers_nothing(self, store):
        take(store, row())
        take(store, row(hours=-10, cost=-98.32))
        found = self.one(store)
        assert (found["used_s"], found["flags"]) == (36_000, "credit hours_negative shortened")

    def test_hours_that_come_later_are_taken(self, store):
        take(store, row(hours="n/a"))
        assert self.one(store)["used_s"] is None
        assert take(store, row(hours=3))[1] == 1
        assert self.one(store)["used_s"] == 3 * 3600
        assert take(store, row(hours=""))[1] == 1, "its flag"
        assert self.one(store)["used_s"] == 3 * 3600

    def test_parts_of_one_period_are_charges_of_their_own(self, store):
        parts = [row(hours=4), row(hours=6), row(hours=4)]
        assert take(store, *parts) == (3, 0, 0, 0)
        assert take(store, *parts) == (0, 0, 3, 0)
        assert load_charges(store)["used_s"].sum() == 14 * 3600
        take(store, *reversed(parts[:2]))
        assert load_charges(store)["used_s"].sum() >= 14 * 3600

    def test_keys_that_differ_in_little_are_different(self, store):
        rows = [
            row(),
            row(account="Acme"),
            row(account="acme ", resource="i-1 "),
            row(resource=""),
            row(provider=""),
        ]
        assert take(store, *rows[:2], rows[3], rows[4]) == (4, 0, 0, 0)
        assert take(store, rows[2]) == (0, 0, 1, 0), "blanks around a cell say nothing"

    def test_a_label_that_is_disputed_is_none(self, store):
        take(store, row(service_category="Storage"))
        take(store, row(service_category="Compute"))
        assert self.one(store)["service_category"] is None
        take(store, row(service_category="Storage"))
        assert self.one(store)["service_category"] is None
        assert "service_category_disputed" in self.one(store)["flags"]

    def test_a_label_that_only_one_import_gives_is_disputed(self, store):
        take(store, row())
        take(store, row(service_category="Storage"))
        assert self.one(store)["service_category"] is None
        assert "service_category_disputed" in self.one(store)["flags"]

    def test_rejected_rows_are_told_apart_from_those_of_accounting(self, store):
        ingest(store, run(1))
        take(store, row(end="never"), row(account=""), "a,b", row(hours="1e99"), digest="d")
        assert count_rejected_charges(store) == {"acme": 2, None: 2}
        assert count_rejected(store) == {}

    def test_a_better_reader_settles_rejected_rows_of_the_same_input(self, store):
        take(store, row(end="never"), digest="d")
        take(store, row(), digest="d")
        assert count_rejected_charges(store) == {}

    def test_large_blocks_and_windows(self, store):
        rows = [
            row(resource=f"i-{n}", start=T0 + n * DAY, end=T0 + (n + 1) * DAY, hours=n % 7 - 1)
            for n in range(2500)
        ]
        assert take(store, *rows) == (2500, 0, 0, 0)
        assert take(store, *rows) == (0, 0, 2500, 0)
        found = load_charges(store, T0 + 10 * DAY, T0 + 12 * DAY)
        assert list(found["resource"]) == ["i-10", "i-11"]
        assert list(found.columns) == list(CHARGE_COLUMNS)
        assert len(load_charges(store, None, T0)) == 0
        assert len(load_charges(store)) == 2500

    def test_an_import_that_breaks_off_is_told(self, store):
        class Stop(Exception):
            pass

        with pytest.raises(Stop), FeedImport(store, ImportInfo(KIND, "f")):
            raise Stop
        (entry,) = load_imports(store)
        assert (entry.complete, entry.problem) == (False, "interrupted")
