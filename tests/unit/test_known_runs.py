"""Public training runs, written down as accounting would have: no bound is below the compute that was published."""

import csv
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from slurm_trace.assess import assess
from slurm_trace.store.engine import open_store
from tests.support.world import T0, Job, judge, sacct_text

FIXTURE = Path(__file__).parents[1] / "fixtures" / "known_runs.csv"
RUNS = list(csv.DictReader(FIXTURE.read_text(encoding="utf-8").splitlines()))


def record(number, run):
    """One job on all GPUs of the run; a run that does not tell how many gets 512."""
    gpus = int(run["gpus"] or 512)
    held_s = ceil(int(run["device_hours"]) * 3600 / gpus)
    return Job(
        number=number, submit=T0, start=T0, end=T0 + held_s, stopped_s=held_s, suspended_s=0, state="COMPLETED",
        nodes=ceil(gpus / 8), gpus=gpus, gpu_type=run["gpu_type"], cpus=gpus, flop=int(float(run["flop"])),
    ).row()  # fmt: skip


@pytest.fixture(scope="module")
def bounds(tmp_path_factory):
    """By basis and run, the bound on the GPUs alone."""
    folder = tmp_path_factory.mktemp("known")
    rows = [record(n, run) for n, run in enumerate(RUNS, start=1)]
    _, found = judge(folder, sacct_text(rows))
    store = open_store(str(folder / "store.db"), create=False)
    answers = {
        basis: assess(store, replace(found.request, basis=basis)).jobs()
        for basis in ("max_any_op", "max_fp_sparse")
    }
    store.close()
    return {basis: {e["job_id_raw"]: e for e in entries} for basis, entries in answers.items()}


@pytest.mark.parametrize("basis", ["max_any_op", "max_fp_sparse"])
@pytest.mark.parametrize(("number", "run"), list(enumerate(RUNS, start=1)), ids=[run["run"] for run in RUNS])
def test_the_bound_exceeds_what_was_published(bounds, number, run, basis):
    entry = bounds[basis][number]
    assert entry["bound_gpu_flop"] > float(run["flop"])
    assert entry["bound_gpu_flop"] < 1000 * float(run["flop"]), "a bound this far off would clear nothing"


def test_there_are_runs_on_either_side_of_1e23():
    assert len(RUNS) >= 12
    assert any(float(r["flop"]) < 1e23 for r in RUNS)
