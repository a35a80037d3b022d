"""Measured runs of one H100 PCIe whose executed operations are known: no rung falls below, and the estimate is near.

The fixture names its source. It tells tensor cycles; of the vector pipes it tells nothing, so all that is left of the
active cycles is taken for theirs.
"""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from slurm_trace.analysis.ladder import RUNGS
from slurm_trace.assess import Request, assess
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.engine import open_store
from slurm_trace.store.spool_ingest import import_spools
from slurm_trace.store.telemetry import load_stretches
from support.runs import T0, ingest, run
from support.spools import card, counter, samples, spool

RUNS = json.loads((Path(__file__).parents[1] / "fixtures" / "h100_known_flop.json").read_text())["runs"]
LIMIT_MW = 350_000
BEFORE_S, AFTER_S = 2, 2


def spool_of(folder, measured):
    """What a sampler would have written: counters at both ends, a sample a second."""
    clock, length = measured["sm_clock_mhz_mean"], measured["elapsed_s"]
    elapsed = round(clock * 1e6 * length)
    active, tensor = (round(elapsed * measured[name]) for name in ("sm_active", "tensor_active"))
    moved = dict.fromkeys(
        (n for n in COUNTER_NAMES if n.startswith("gpm_") and n.endswith("cycles_active")), 0
    )
    moved |= {
        "gpm_sm_cycles_elapsed": elapsed,
        "gpm_sm_cycles_active": active,
        "gpm_mma_cycles_active": tensor,
        "gpm_hmma_cycles_active": tensor,
        "gpm_integer_cycles_active": active - tensor,
        "energy_mj": round(measured["energy_j"] * 1000),
    }
    begin = 10 + BEFORE_S
    reads = [
        counter(begin, moment="start", **dict.fromkeys(moved, 0)),
        counter(begin + length, moment="end", **moved),
    ]
    seen = samples(
        [begin + n for n in range(int(length) + 2)],
        sm_clock_mhz=round(clock),
        utilization_pct=100,
        power_mw=round(measured["power_w_mean"] * 1000),
    )
    h100 = card(name="NVIDIA H100 PCIe", max_sm_mhz=1755, power_limit_mw=LIMIT_MW)
    spool(
        folder,
        begin=10,
        end=begin + length + AFTER_S,
        devices=[h100],
        columns={"GPU-0": seen},
        counters=reads,
        meta={"driver_version": "550.54.15"},
    )
    return begin + length + AFTER_S


@pytest.fixture(params=RUNS, ids=lambda measured: measured["run"])
def measured(request, tmp_path):
    """A measured run as the store has it."""
    (tmp_path / "outbox").mkdir()
    end = int(spool_of(tmp_path / "outbox", request.param)) + 1
    store = open_store(str(tmp_path / "store.db"), create=True)
    tres = "billing=1,cpu=1,gres/gpu:h100_pcie=1,gres/gpu=1,node=1"
    ingest(
        store,
        run(end=T0 + end, elapsed_s=end - 10, alloc_tres=tres, node_list="n1", node_count=1, cpu_count=1),
    )
    import_spools(store, tmp_path / "outbox")
    yield request.param, store
    store.close()


def ask(store, trust, basis):
    return assess(store, Request("eu-gpai", basis, Fraction(5, 100), trust=trust))


def gpu_bound(store, trust, basis):
    (entry,) = ask(store, trust, basis).jobs()
    return entry["bound_gpu_flop"]


@pytest.mark.parametrize("basis", ["max_any_op", "max_fp_sparse", "max_fp_dense"])
def test_no_rung_is_below_what_was_executed(measured, basis):
    told, store = measured
    bounds = [gpu_bound(store, trust, basis) for trust in RUNGS]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] >= told["executed_flop"]
    assert bounds[RUNGS.index("pipe_cycles")] < bounds[0] * 6 // 10


def test_the_estimate_is_as_near_as_is_stated(measured):
    """-2 to +6 %, in whole percent, over the time between the reads; the seconds at both ends are `allocation`.

    The long sequences come out low: what is counted as executed there has the half that a causal mask leaves out.
    """
    told, store = measured
    found = ask(store, "pipe_cycles", "bf16_dense")
    stretches = load_stretches(store, int(found.envelope.runs["run_id"].iat[0]))
    terms = found.envelope.terms(0, stretches=stretches)
    estimate = sum(t.flop for t in terms if t.rung == "pipe_cycles")
    assert 0.98 <= round(estimate / told["executed_flop"], 2) <= 1.06
