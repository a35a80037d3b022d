"""The benchmark's store: its rows are those that the import of the spool files leaves, and reports read them alike."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from sqlalchemy import select

from slurm_trace import assess as assessing
from slurm_trace.analysis import unattributed
from slurm_trace.cli.main import app
from slurm_trace.examples.generate import write
from slurm_trace.store import models
from slurm_trace.store.engine import open_store
from slurm_trace.store.frame import load_runs
from slurm_trace.store.spool_ingest import import_spools

SCRIPT = Path(__file__).parents[2] / "bench" / "telemetry_store.py"
RANK = ("rank", "--json", "--trust", "pipe_cycles")
GROUPS = ("groups", "--json", *(f"--by={by}" for by in ("all", "user", "lineage")), "--within", "90d",
          "--trust", "pipe_cycles")  # fmt: skip
OF_FILE = {"digest", "name", "size", "facts"}
"""What no file can share with another one."""


@pytest.fixture(scope="module")
def year(tmp_path_factory):
    """Accounting of a few runs, once filled and once with the spool files imported."""
    folder = tmp_path_factory.mktemp("year")
    write(folder, 120, seed=3)
    run("--store", folder / "filled.db", "import", "sacct", folder / "sacct.txt", "--tz", "UTC")
    shutil.copy(folder / "filled.db", folder / "imported.db")
    spools = folder / "spools"
    spools.mkdir()
    for arguments in ((folder / "imported.db", spools), (folder / "filled.db",)):
        subprocess.run([sys.executable, "-P", SCRIPT, *arguments], check=True)
    store = open_store(str(folder / "imported.db"))
    assert import_spools(store, spools).rejected == []
    store.close()
    return folder


def run(*arguments):
    found = CliRunner().invoke(app, list(map(str, arguments)))
    assert found.exit_code in (0, 3), found.output
    return found.stdout


def report(year, name, command):
    told = json.loads(run("--config", year / "site.toml", "--store", year / f"{name}.db", *command))
    del told["generated_at"]
    return told


def rows(path, name):
    """Of a table, with what they refer to in place of numbers that depend on the order of things."""
    store, table = open_store(str(path)), models.metadata.tables[name]
    own = OF_FILE if name in ("lease", "spool_file") else set()
    columns = [
        c
        for c in table.c
        if c.name not in own and (c.name in ("run_id", "boot_id") or not c.name.endswith(("id", "_in")))
    ]
    source = table
    if "spool_id" in table.c:
        source = source.join(models.spool_file).join(
            models.lease, models.lease.c.id == models.spool_file.c.lease_id
        )
        columns += [models.lease.c.node, models.lease.c.job_id_raw]
    for key in (c for c in table.c if c.name in ("card_id", "facts_id", "kind_id", "columns_id")):
        text = models.interned.alias()
        source = source.join(text, text.c.id == key)
        columns.append(text.c.text)
    with store.reading() as connection:
        found = sorted(map(tuple, connection.execute(select(*columns).select_from(source))), key=repr)
    store.close()
    return found


@pytest.mark.parametrize(
    "name",
    ["lease", "spool_file", "lease_device", "counter_read", "device_ends", "run_cycles", "job_summary"],
)  # fmt: skip
def test_its_rows_are_those_of_the_import(year, name):
    filled, imported = (rows(year / f"{store}.db", name) for store in ("filled", "imported"))
    assert filled
    assert filled == imported


@pytest.mark.parametrize("command", [RANK, GROUPS])
def test_reports_are_equal_read_at_once_and_in_the_background(year, command, monkeypatch):
    expected = report(year, "imported", command)
    assert report(year, "filled", command) == expected
    monkeypatch.setattr(assessing, "LARGE", 1)
    monkeypatch.setattr(unattributed, "_AT_ONCE", 20)
    assert report(year, "filled", command) == expected
    if command is RANK:
        assert {job["rung"] for job in expected["jobs"]} == {"allocation", "pipe_cycles"}
    else:
        assert {group["unattributed_flop"] > 0 for group in expected["groups"] if group["by"] == "all"} == {
            True
        }


def test_runs_of_a_store_without_leases_have_the_same_columns(year, tmp_path):
    write(tmp_path, 120, seed=3)
    run("--store", tmp_path / "bare.db", "import", "sacct", tmp_path / "sacct.txt", "--tz", "UTC")
    bare = load_runs(open_store(str(tmp_path / "bare.db")))
    runs = load_runs(open_store(str(year / "imported.db")))
    assert [(name, dtype.name) for name, dtype in bare.dtypes.items()] == [
        (name, dtype.name) for name, dtype in runs.dtypes.items()
    ]
    of_leases = [name for name in runs if name.startswith("lease_")]
    assert bare[of_leases].isna().all(axis=None)
    assert not bare["release_proven"].any()
    without = runs[runs["lease_end"].isna()]
    assert 0 < len(without) < len(runs)
    pd.testing.assert_frame_equal(
        bare.loc[without.index].astype(object), without.astype(object), check_like=False
    )
    only = load_runs(open_store(str(tmp_path / "bare.db")), columns=["lease_end"])
    assert list(only) == ["lease_end"]
    assert len(only) == len(bare)
