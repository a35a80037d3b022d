"""`classify` as a user calls it, over accounting alone and over spool files."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from sqlalchemy import update

from slurm_trace.classify import channels
from slurm_trace.cli.classify import CHANNEL_COLUMNS
from slurm_trace.cli.main import app
from slurm_trace.errors import CheckFailed, EnvironmentProblem, InputProblem, UsageProblem
from slurm_trace.store.engine import open_store
from slurm_trace.store.models import sample_chunk
from slurm_trace.store.samples import prune_chunks
from slurm_trace.store.spool_ingest import import_spools
from support.purpose import busy_spool
from support.runs import T0, ingest, run
from support.spools import card, spool


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    yield store
    store.close()


@pytest.fixture
def call(tmp_path):
    """Runs a command on the store; stdout."""

    def command(*arguments):
        done = CliRunner().invoke(
            app, ["--store", str(tmp_path / "store"), *map(str, arguments)], standalone_mode=False
        )
        command.stdout = done.stdout
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return command


@pytest.fixture
def told(call):
    """The JSON on a job, held against its schema; channels by their id."""
    schema = json.loads(files("slurm_trace.schema.json").joinpath("classify.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)

    def command(*arguments):
        document = json.loads(call("classify", *arguments, "--json"))
        jsonschema.validate(document, schema)
        assert set(schema["$defs"]["purpose"]["enum"]) == set(channels().purposes)
        assert set(schema["$defs"]["grade"]["enum"]) == {grade.id for grade in channels().grades}
        return document | {"channels": {entry["channel"]: entry for entry in document["channels"]}}

    return command


@pytest.fixture
def outbox(tmp_path):
    folder = tmp_path / "outbox"
    folder.mkdir()
    return folder


def read(document):
    """Channels with a reading."""
    return {
        name: entry["value"] for name, entry in document["channels"].items() if entry["value"] is not None
    }


def test_accounting_alone(store, told):
    ingest(store, run(1, name="x"))
    document = told("1")
    assert read(document) == {"accelerators": 2, "duration": 0.028, "continuation": 1}
    silent = [e for e in document["channels"].values() if e["value"] is None]
    assert {e["reason"] for e in silent} == {"no lease: nothing was measured on its nodes"}
    assert all(set(e["weights_centibans"].values()) == {0} for e in silent)
    assert document["inputs"]["coverage"] is None
    assert document["inputs"]["channels"] == channels().digest
    assert document["finding"]["grade"] == "none"
    assert document["recomputed"] == {"agrees": True, "sums": 12}
    assert document["notice"].startswith("purpose evidence, never a verdict")
    assert len(document["wanted"]) > 5


def test_samples_of_the_run(store, told, outbox):
    ingest(store, run(1, name="x", end=T0 + 3610, elapsed_s=3600))
    busy_spool(outbox)
    import_spools(store, outbox)
    document = told("c:1")
    readings = read(document)
    assert readings == {
        "accelerators": 2,
        "duration": 1,
        "continuation": 1,
        "utilisation_level": pytest.approx(95, abs=1),
        "utilisation_jitter": pytest.approx(4, abs=0.2),
        "power_level": pytest.approx(85.7, abs=1),
        "memory_ramp": pytest.approx(12, abs=0.1),
        "memory_level": 15,
        "memory_plateau": pytest.approx(98, abs=1),
        "sm_activity": 90,
        "tensor_share": 40,
        "fp64_share": 0,
        "memory_traffic": pytest.approx(42, abs=1),
        "pcie": pytest.approx(3000, rel=0.01),
        "synchrony": pytest.approx(1, abs=0.01),
        "evenness": pytest.approx(0, abs=0.1),
        "processes": 1,
    }
    assert document["inputs"]["coverage"] > 0.99
    assert document["inputs"]["chunks_read"] == document["inputs"]["chunks"] > 1
    assert document["channels"]["hourly_swing"]["reason"].endswith("6 are needed")
    assert document["finding"]["standing"]["purpose"] == "training"


def test_pruned_samples_leave_what_is_summed_up(store, told, outbox):
    ingest(store, run(1, name="x", end=T0 + 3610, elapsed_s=3600))
    busy_spool(outbox)
    import_spools(store, outbox)
    whole = told("1")
    prune_chunks(store, T0 + 10**6)
    document = told("1")
    assert document["inputs"]["chunks"] == 0
    gone = set(read(whole)) - set(read(document))
    assert gone == {
        "utilisation_jitter",
        "memory_ramp",
        "memory_plateau",
        "memory_traffic",
        "synchrony",
        "processes",
    }
    assert {document["channels"][name]["reason"] for name in gone} == {"no raw samples are left"}


def test_table(store, call, outbox):
    ingest(store, run(1, name="x", end=T0 + 3610, elapsed_s=3600))
    busy_spool(outbox)
    import_spools(store, outbox)
    text = call("classify", "1")
    assert "purpose evidence, never a verdict" in text
    assert "no reading" in text
    assert "would distinguish" in text
    assert "computed twice" in text
    assert "assumption" in text
    for word in ("compliant", "is training", "guilty", "violat"):
        assert word not in text


def test_csv(store, call):
    ingest(store, run(1, name="x"))
    rows = list(csv.DictReader(io.StringIO(call("classify", "1", "--format", "csv"))))
    assert tuple(rows[0]) == CHANNEL_COLUMNS
    assert [row["channel"] for row in rows] == [channel.id for channel in channels().channels]


def test_an_account_from_elsewhere_stays_text(store, call):
    ingest(store, run(1, name="x", user="\x1b[31m=cmd", account=None))
    assert "\x1b" not in call("classify", "1")


def test_which_run(store, call, told):
    later = {"submit": T0 + 500, "run_key": T0 + 500, "start": T0 + 510, "end": T0 + 610}
    ingest(store, run(1, state="REQUEUED"), run(1, **later), run(1, cluster="d"))
    with pytest.raises(UsageProblem, match="several runs"):
        call("classify", "1")
    with pytest.raises(UsageProblem, match="no run 7"):
        call("classify", "7")
    document = told(f"c:1@{T0 + 500}")
    assert document["job"]["submit"] == T0 + 500
    assert read(document)["continuation"] == 2


def test_no_store(tmp_path, call):
    with pytest.raises(EnvironmentProblem):
        call("classify", "1")
    assert not (tmp_path / "store").exists()


def test_a_run_that_never_started(store, told):
    waiting = {
        "started": False,
        "start": None,
        "end": None,
        "elapsed_s": 0,
        "alloc_tres": "",
        "state": "CANCELLED",
    }
    ingest(store, run(1, **waiting))
    document = told("1")
    assert read(document) == {}
    assert document["finding"]["standing"] is None


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=4,node=1", 0),
        ("cpu=4,gres/gpu=4,gres/gpu:a100=4,node=1", 4),
        ("cpu=4,gres/gpu:a100=4,gres/gpu:v100=2,node=1", 6),
        ("cpu=4,gres/shard=3,node=1", None),
        ("", None),
        ("cpu=4,gres/gpu=many,node=1", None),
    ],
)
def test_gpus_of_the_run(store, told, tres, gpus):
    ingest(store, run(1, alloc_tres=tres), run(2))
    assert told("1")["job"]["gpu_count"] == gpus


def test_no_gpu_recorded_says_nothing_where_none_ever_is(store, told):
    ingest(store, run(1, alloc_tres="cpu=4,node=1"), run(2, alloc_tres="cpu=8,node=1"))
    document = told("1")
    assert document["job"]["gpu_count"] is None
    assert document["channels"]["accelerators"]["reason"] == "accounting does not tell how many GPUs it had"


def test_leases_that_held_more_than_accounting_says(store, told, outbox):
    ingest(store, run(1, alloc_tres="cpu=4,gres/gpu=1,node=1"))
    spool(outbox)
    import_spools(store, outbox)
    assert told("1")["job"]["gpu_count"] == 2


def test_devices_that_may_be_another_job_s_are_not_read(store, told, outbox):
    ingest(store, run(1))
    spool(outbox, attribution="ambiguous")
    import_spools(store, outbox)
    document = told("1")
    assert document["inputs"]["devices"] == 0
    assert document["channels"]["utilisation_level"]["reason"] == "which devices its leases held is not known"


def test_a_lease_without_devices(store, told, outbox):
    ingest(store, run(1, alloc_tres="cpu=4,node=1"), run(2))
    spool(outbox, devices=(), attribution="none")
    import_spools(store, outbox)
    document = told("1")
    assert document["job"]["gpu_count"] == 0
    assert document["channels"]["utilisation_level"]["reason"] == "its leases held no device"


def test_parts_of_a_lease_are_one_series(store, told, outbox):
    ingest(store, run(1, name="x", end=T0 + 3610, elapsed_s=3600))
    busy_spool(outbox, end=1810, closed="part")
    busy_spool(outbox, begin=1810, opened=10, part=1)
    import_spools(store, outbox)
    document = told("1")
    assert document["inputs"]["devices"] == 2
    assert document["channels"]["memory_ramp"]["value"] == pytest.approx(12, abs=0.1)
    assert document["channels"]["tensor_share"]["value"] == 40
    assert document["channels"]["power_level"]["value"] == pytest.approx(85.7, abs=1)


def test_without_the_first_part_there_is_no_ramp(store, told, outbox):
    ingest(store, run(1, name="x", end=T0 + 3610, elapsed_s=3600))
    busy_spool(outbox, begin=1010, opened=10, part=1)
    import_spools(store, outbox)
    assert told("1")["channels"]["memory_ramp"]["reason"] == "the beginning of its lease is missing"


def test_values_that_cannot_be_true_are_none(store, told, outbox):
    from support.spools import samples

    ingest(store, run(1, name="x"))
    columns = samples(range(11, 112), utilization_pct=50, process_count=200_000, memory_used_bytes=2**60)
    spool(outbox, devices=[card()], columns={"GPU-0": columns})
    import_spools(store, outbox)
    document = told("1")
    assert document["channels"]["processes"]["value"] is None
    assert document["channels"]["memory_plateau"]["value"] is None


def test_chunks_that_cannot_be_unpacked_are_told(store, call, outbox):
    ingest(store, run(1, name="x"))
    spool(outbox)
    import_spools(store, outbox)
    with store.writing() as connection:
        connection.execute(update(sample_chunk).values(data=b"nothing"))
    with pytest.raises(InputProblem, match="1 of 1 chunks"):
        call("classify", "1")
    assert "purpose evidence" in call.stdout


def test_a_sum_that_does_not_hold_is_no_result(store, call, monkeypatch):
    from slurm_trace.analysis.evidence import finding

    ingest(store, run(1, name="x"))
    honest = finding.recompute
    monkeypatch.setattr(
        finding, "recompute", lambda *given: {pair: n + 1 for pair, n in honest(*given).items()}
    )
    with pytest.raises(CheckFailed, match="differ"):
        call("classify", "1")
    assert call.stdout == ""


def test_of_a_long_run_some_chunks_are_read(store, told, outbox, monkeypatch):
    from slurm_trace.store import purpose_samples

    monkeypatch.setattr(purpose_samples, "FIRST_CHUNKS", 3)
    monkeypatch.setattr(purpose_samples, "MORE_CHUNKS", 4)
    ingest(store, run(1, name="x", end=T0 + 3610, elapsed_s=3600))
    busy_spool(outbox)
    import_spools(store, outbox)
    document = told("1")
    assert (document["inputs"]["chunks_read"], document["inputs"]["chunks"]) == (7, 60)
    assert document["channels"]["memory_ramp"]["value"] == pytest.approx(12, abs=0.1)
    assert np.isclose(document["channels"]["utilisation_jitter"]["value"], 4, atol=0.5)


def test_of_many_nodes_some_are_read(store, told, outbox, monkeypatch):
    from slurm_trace.store import purpose_samples

    monkeypatch.setattr(purpose_samples, "MOST_NODES", 1)
    ingest(store, run(1, name="x", node_list="n[1-2]", node_count=2))
    for node in ("n1", "n2"):
        spool(outbox, node=node, devices=[card(f"GPU-{node}")])
    import_spools(store, outbox)
    document = told("1")
    assert (
        document["inputs"]["devices"],
        document["inputs"]["chunks"],
        document["inputs"]["chunks_read"],
    ) == (2, 2, 1)
    assert document["channels"]["utilisation_jitter"]["value"] == 0
