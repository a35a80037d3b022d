"""Energy of a run: what was read, by which source, and the alarm where its allocation cannot explain it."""

from fractions import Fraction

import pytest
from click.testing import CliRunner

from slurm_trace.assess import Request, assess
from slurm_trace.cli.main import app
from slurm_trace.store.engine import open_store
from slurm_trace.store.job_summary import CLOCK_S
from slurm_trace.store.spool_ingest import import_spools
from support.runs import ingest, run
from support.spools import card, counter, samples, spool

HELD_S, GPUS, BOARD_W = 101 + CLOCK_S, 2, 700


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "store.db")


def told(location, tmp_path, joules, **lease):
    """A run with two cards, of which each drew this much by its counter."""
    store = open_store(location, create=True)
    tres = "cpu=4,gres/gpu:h100_sxm5=2,gres/gpu=2,node=1"
    ingest(store, run(1, alloc_tres=tres, node_list="n1", node_count=1, cpu_count=4))
    devices = [card("GPU-0"), card("GPU-1")]
    reads = [
        counter(at, one.uuid, energy_mj=energy)
        for one in devices
        for at, energy in ((11, 0), (110, joules * 1000))
    ]
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    quiet = samples(range(11, 112), sm_clock_mhz=1900)
    spool(outbox, devices=devices, counters=reads, columns={one.uuid: quiet for one in devices}, **lease)
    import_spools(store, outbox)
    found = assess(store, Request("eu-gpai", None, Fraction(5, 100)))
    (entry,) = found.jobs()
    energy = found.energy(0)
    store.close()
    return entry, energy


def test_energy_has_source_scope_and_a_figure_by_operation(location, tmp_path):
    entry, energy = told(location, tmp_path, 20_000)
    assert (energy["energy_mj"], energy["source"], energy["scope"]) == (40_000_000, "counter", "gpu")
    assert energy["joule_per_flop"] == pytest.approx(40_000 / entry["bound_gpu_flop"])
    assert energy["most_mj"] == HELD_S * GPUS * BOARD_W * 1050
    assert not energy["unexplained"]
    assert entry["flags"] == []
    shown = CliRunner().invoke(app, ["--store", location, "explain", "1"]).stdout
    assert "energy of its GPUs by their counters: 40,000 J" in shown
    assert "more than its allocation explains" not in shown


def test_more_energy_than_the_allocation_explains_is_a_flag_and_lowers_nothing(location, tmp_path):
    (tmp_path / "usual").mkdir()
    usual, _ = told(str(tmp_path / "usual.db"), tmp_path / "usual", 20_000)
    entry, energy = told(location, tmp_path, 80_000)
    assert energy["unexplained"]
    assert entry["flags"] == ["lease_energy_unexplained"]
    assert entry["bound_flop"] == usual["bound_flop"]
    shown = CliRunner().invoke(app, ["--store", location, "explain", "1"]).stdout
    assert "more than its allocation explains, 151,410 J" in shown


def test_without_devices_that_are_known_there_is_none(location, tmp_path):
    _, energy = told(location, tmp_path, 20_000, attribution="ambiguous")
    assert energy is None
