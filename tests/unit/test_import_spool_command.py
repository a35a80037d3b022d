"""`import spool`, and what `store` shows and prunes of it, as a user calls them."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.cli.main import app
from slurm_trace.errors import EnvironmentProblem, UsageProblem
from slurm_trace.store.engine import open_store
from support.runs import T0, ingest, run
from support.spools import spool


@pytest.fixture
def call(tmp_path):
    """Runs a command on a store of its own; returns exit code, stdout and stderr."""

    def command(*arguments):
        done = CliRunner().invoke(
            app, ["--store", str(tmp_path / "store"), *map(str, arguments)], standalone_mode=False
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.return_value or 0, done.stdout, done.stderr

    return command


@pytest.fixture
def outbox(tmp_path):
    folder = tmp_path / "outbox"
    folder.mkdir()
    return folder


def test_json_of_an_import(call, outbox):
    spool(outbox, 1)
    spool(outbox, 2)
    code, out, err = call("import", "spool", outbox, "--json")
    told = json.loads(out)
    assert told == {
        "schema": "slurm-trace/import-spool/1",
        "read": 2,
        "inserted": 2,
        "unchanged": 0,
        "bytes": sum(path.stat().st_size for path in outbox.iterdir()),
        "leases": 2,
        "joined": 0,
        "rejected": [],
        "warnings": [],
    }
    assert (code, err) == (0, "")
    assert json.loads(call("import", "spool", outbox, "--json")[1])["unchanged"] == 2


def test_json_is_what_its_schema_says(call, outbox):
    schema = json.loads(
        files("slurm_trace.schema.json").joinpath("import-spool.schema.json").read_text("utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    spool(outbox, 1).write_bytes(b"")
    spool(outbox, 2)
    jsonschema.validate(json.loads(call("import", "spool", outbox, "--json")[1]), schema)


def test_damaged_files_are_exit_3_and_all_else_is_kept(call, outbox):
    bad = spool(outbox, 1)
    bad.write_bytes(b"nothing")
    os.utime(bad, (1, 1))
    spool(outbox, 2)
    code, out, err = call("import", "spool", outbox, "--json")
    told = json.loads(out)
    assert code == 3
    assert (told["read"], told["inserted"], len(told["rejected"])) == (2, 1, 1)
    assert told["rejected"][0]["file"] == bad.name
    assert told["rejected"][0]["kept"] == str(outbox / "damaged" / bad.name)
    assert bad.name in err
    assert call("import", "spool", outbox, "--json")[0] == 0


def test_one_file_table_and_csv(call, outbox):
    path = spool(outbox)
    code, out, _ = call("import", "spool", path)
    assert code == 0
    assert "files read" in out
    out = call("import", "spool", path, "--format", "csv")[1]
    assert out.splitlines() == ["read,inserted,unchanged,bytes,leases,joined,rejected", "1,0,1,0,0,0,0"]


def test_what_is_not_there_makes_no_store(call, outbox, tmp_path):
    with pytest.raises(UsageProblem, match="outbox"):
        call("import", "spool", outbox / "x")
    assert not (tmp_path / "store").exists()
    with pytest.raises(EnvironmentProblem, match="no store"):
        call("store", "prune", "--older-than", "1")


def test_a_whole_outbox_joined_with_accounting(call, outbox, tmp_path):
    for job in range(1, 6):
        spool(outbox, job)
    (outbox / ".x.spool").write_text("on its way")
    (outbox / "notes.txt").write_text("")
    store = open_store(str(tmp_path / "store"), create=True)
    ingest(store, run(1), run(2))
    store.close()
    told = json.loads(call("import", "spool", outbox, "--json")[1])
    assert (told["read"], told["leases"], told["joined"]) == (5, 5, 2)
    info = json.loads(call("store", "info", "--json")[1])
    assert info["leases"] == [{"cluster": "c", "leases": 5, "joined": 2, "open": 0}]
    assert (info["samples"]["files"], info["samples"]["chunks"], info["samples"]["rejected_files"]) == (
        5,
        5,
        0,
    )
    assert "raw chunks" in call("store", "info")[1]


def test_prune(call, outbox):
    spool(outbox)
    call("import", "spool", outbox)
    size = json.loads(call("store", "info", "--json")[1])["samples"]["bytes"]
    assert size > 0
    told = json.loads(call("store", "prune", "--older-than", "36500", "--json")[1])
    assert (told["chunks"], told["bytes_left"]) == (0, size)
    told = json.loads(call("store", "prune", "--older-than", "1", "--json")[1])
    assert (told["schema"], told["chunks"], told["bytes"], told["bytes_left"]) == (
        "slurm-trace/store-prune/1",
        1,
        size,
        0,
    )
    assert told["before"] > T0
    assert "removed" in call("store", "prune", "--older-than", "1")[1]
    assert call("store", "prune", "--older-than", "1", "--format", "csv")[1].startswith("before,chunks,bytes")


def test_spool_files_make_no_records_complete_nor_incomplete(call, outbox, tmp_path):
    """Accounting alone says which runs there were."""
    bad = spool(outbox, 9)
    bad.write_bytes(b"")
    spool(outbox, 1)
    export = Path(tmp_path / "a.txt")
    export.write_text(
        "JobIDRaw|JobID|Cluster|User|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES|NodeList\n"
        "1|1|c|ada|CANCELLED|1700000000|1700000010|1700000110|100|1|cpu=4,gres/gpu=1,node=1|n1\n"
    )
    covers = ("--tz", "UTC", "--covers", "2023-01-01..2024-01-01")
    call("import", "sacct", export, *covers)
    before = json.loads(call("rank", "--json")[1])
    call("import", "spool", outbox)
    after = json.loads(call("rank", "--json")[1])
    assert after["records_complete"] == before["records_complete"]
    (was,), (now,) = before["jobs"], after["jobs"]
    assert was["held_s"] == 191, "killed, and nothing tells when it was gone"
    assert now["held_s"] == 103, "its one node closed the lease, by a clock that may be 2 s behind"
    assert "lease_gpus_more" in now["flags"]
    assert now["bound_gpu_flop"] * 191 > was["bound_gpu_flop"] * 103, "two GPUs were seen, one was recorded"
