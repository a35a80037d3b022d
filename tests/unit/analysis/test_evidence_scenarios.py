"""What the evidence comes to for runs of a known make, and what it must never come to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_trace.analysis.evidence.channels import load
from slurm_trace.analysis.evidence.features import FEATURES, observe
from slurm_trace.analysis.evidence.finding import find
from slurm_trace.analysis.evidence.inputs import Run
from support import evidence as make

REGISTRY = load(FEATURES)
GRADES = [grade.id for grade in REGISTRY.grades]


def found(run):
    return find(REGISTRY, run)


def values(run):
    return {name: reading.value for name, reading in observe(REGISTRY, run).items()}


def level(finding, purpose, rival):
    """Place of the grade of a purpose against one rival; 0 where they are not told apart."""
    (pair,) = (p for p in finding.pairs if set(p.pair) == {purpose, rival})
    if not pair.identifiable or pair.pair[0] != purpose:
        return 0
    return GRADES.index(REGISTRY.grade(pair.total).id)


@pytest.mark.parametrize("counted", [True, False])
def test_a_training_run_leads_as_training_and_no_grade_is_higher_than_assumptions_allow(counted):
    leads = found(make.training(counted)).leads
    assert leads.purpose == "training"
    assert leads.grade.id == "moderate"
    assert REGISTRY.limits.unverified_grade == "moderate"


def test_verified_tables_lift_the_limit():
    verified = replace(
        REGISTRY, channels=tuple(replace(channel, verified=True) for channel in REGISTRY.channels)
    )
    run = make.training()
    assert find(REGISTRY, run).leads.weight >= 200
    assert find(verified, run).leads.grade.id == "strong"
    assert find(REGISTRY, run).leads.grade.id == "moderate"


def test_serving_leads_as_inference_but_never_more_than_weakly_against_training():
    finding = found(make.serving(counted=False))
    assert finding.leads.purpose == "inference"
    assert finding.leads.grade.id in ("none", "weak")
    with_counters = found(make.serving())
    assert with_counters.leads.purpose == "inference"
    assert with_counters.leads.weight > finding.leads.weight, "what cannot be staged counts in full"


def test_idle():
    finding = found(make.idle())
    assert finding.leads.purpose == "idle"
    assert finding.leads.grade.id == "moderate"
    silent = {
        "hourly_swing",
        "utilisation_jitter",
        "synchrony",
        "memory_traffic",
        "tensor_share",
        "memory_plateau",
    }
    assert all(finding.readings[name].value is None for name in silent), "how it works cannot be seen"


def test_cpu_only():
    """Accounting that counts GPUs and has none for this run: a little for work other than machine learning."""
    finding = found(Run(gpu_count=0, elapsed_s=5 * 3600, chain_length=1))
    assert finding.leads.purpose == "non_ml"
    assert finding.leads.grade.id == "weak"
    with_leases = found(Run(gpu_count=0, elapsed_s=5 * 3600, chain_length=1, leases=1))
    assert with_leases.leads.weight == finding.leads.weight
    assert with_leases.readings["utilisation_level"].reason == "its leases held no device"


@pytest.mark.parametrize("counted", [True, False])
def test_training_dressed_as_serving_is_at_most_weakly_inference(counted):
    finding = found(make.disguised(counted))
    assert level(finding, "inference", "training") <= GRADES.index("weak")
    assert finding.leads.grade.id in ("none", "weak")
    groups = finding.sums["inference", "training"].groups
    staged = sum(w for name, w in groups.items() if REGISTRY.groups[name].staged)
    assert staged > REGISTRY.limits.staged_cap_centibans, "or this shows nothing"


def test_full_load_is_not_called_training():
    """Benign inference in large batches reads like training in all but the counters: that must be said."""
    finding = found(make.batch_inference())
    assert level(finding, "training", "inference") == 0
    assert finding.leads is None or finding.leads.grade.id == "none"


def test_nothing_known_is_no_evidence():
    finding = found(Run(gpu_count=None, elapsed_s=None, chain_length=None))
    assert finding.leads is None
    assert {found.total for found in finding.sums.values()} == {0}
    assert all(reading.value is None and reading.reason for reading in finding.readings.values())
    assert not any(pair.identifiable for pair in finding.pairs)
    assert {w.channel for w in finding.wanted} == {c.id for c in REGISTRY.channels}


def test_accounting_alone_is_never_more_than_weak():
    for gpus in (0, 1, 4, 32, 512):
        for elapsed_s in (60, 3600, 20_000, 100_000, 10**6):
            for chain in (1, 3, 20):
                grade = found(Run(gpus, elapsed_s, chain)).leads
                assert grade is None or grade.grade.id in ("none", "weak")


def test_samples_say_more_than_accounting_alone():
    with_samples = make.training()
    without = replace(with_samples, devices=(), leases=0)
    assert found(without).leads.weight < found(with_samples).leads.weight


def test_measurements_of_little_of_the_time_are_no_reading():
    measured = make.training()
    thin = [
        replace(device, covered_ms=device.covered_ms // 3, gap_ms=device.covered_ms * 2 // 3)
        for device in measured.devices
    ]
    reasons = {r.reason for r in found(replace(measured, devices=tuple(thin))).readings.values() if r.reason}
    assert reasons == {"samples cover 33 % of the time of its GPUs; 50 % are needed"}
    # Half of its GPUs have no lease at all.
    half = replace(measured, gpu_count=20)
    assert half.coverage == pytest.approx(0.4)
    assert found(half).readings["power_level"].value is None
    shared = found(replace(measured, devices_shared=True)).readings
    assert shared["power_level"].reason.startswith("another run held one of its GPUs at the same time")
    assert shared["accelerators"].value is not None
    unknown = replace(measured, devices_known=False, devices=())
    assert found(unknown).readings["power_level"].reason == "which devices its leases held is not known"


# Single readings


def test_readings_of_a_training_run():
    assert values(make.training()) == {
        "accelerators": 8,
        "duration": 48,
        "continuation": 5,
        "utilisation_level": 97,
        "hourly_swing": 0,
        "utilisation_jitter": pytest.approx(0.34, abs=0.05),
        "power_level": 85,
        "memory_ramp": 70,
        "memory_level": 87.5,
        "memory_plateau": pytest.approx(88.5, abs=1),
        "sm_activity": 90,
        "tensor_share": 45,
        "fp64_share": 0,
        "memory_traffic": pytest.approx(46.4, abs=0.3),
        "pcie": 500,
        "synchrony": pytest.approx(1, abs=0.01),
        "evenness": 0,
        "processes": 1,
    }


def read(run, channel):
    reading = observe(REGISTRY, run)[channel]
    return reading.reason if reading.value is None else reading.value


def test_memory_ramp():
    def of(step_s=1.0, begin_ms=0, seconds=600, **fields):
        one = make.device(
            hourly_pct=(50.0,), begin_ms=begin_ms, series=make.series(seconds, step_s, **fields)
        )
        return read(make.run(one, hours=1), "memory_ramp")

    assert of(memory_used_bytes=make.ramp(6, 600, after_s=300)) == 6
    assert of(memory_used_bytes=make.GIB // 4) == 0
    slow = np.arange(1, 601) * make.GIB / 10
    assert 3 <= of(memory_used_bytes=slow) <= 3.4, "only what was taken in 30 s"
    assert (
        of(step_s=20.0, memory_used_bytes=make.ramp(6, 600, after_s=5))
        == "sampled too rarely to see memory rise"
    )
    assert of(begin_ms=None, memory_used_bytes=0) == "the beginning of its lease is missing"
    assert of(begin_ms=-(10**6), memory_used_bytes=0) == "no raw samples of memory from the beginning"
    assert of() == "no raw samples of memory from the beginning"


def test_synchrony():
    def of(*phases, nodes=("n1",), **fields):
        devices = [
            make.device(
                f"GPU-{i}", (50.0,), node=nodes[i % len(nodes)],
                series=make.series(power_mw=300_000 + 100_000 * make.beat(600, phase), **fields),
            )
            for i, phase in enumerate(phases)
        ]  # fmt: skip
        return read(make.run(*devices, hours=1), "synchrony")

    assert of(0, 0) == pytest.approx(1)
    assert of(0, 0.25) == pytest.approx(0, abs=0.01)
    assert of(0, 0.5) == pytest.approx(-1)
    apart = "no two GPUs of a node whose power changes and was sampled together"
    assert of(0) == apart
    assert of(0, 0, nodes=("n1", "n2")) == apart, "nodes do not share a clock"


def test_power_that_stands_still_has_no_synchrony():
    devices = [make.device(f"GPU-{i}", (50.0,), series=make.series(power_mw=300_000)) for i in range(2)]
    assert "power changes" in read(make.run(*devices, hours=1), "synchrony")


def test_jitter_looks_at_neighbours_alone():
    times = np.concatenate([np.arange(100), np.arange(100) + 10**4]) * 1000
    fields = {name: np.full(200, np.nan) for name in make.FIELDS}
    fields["utilization_pct"] = np.repeat([20.0, 80.0], 100)
    one = make.device(hourly_pct=(50.0,), series=type(make.series())(times, fields))
    assert read(make.run(one, hours=1), "utilisation_jitter") == 0


def test_counters():
    def of(channel, **moved):
        return read(make.run(make.device(hourly_pct=(50.0,), moved=moved), hours=1), channel)

    assert of("sm_activity", gpm_sm_cycles_active=5, gpm_sm_cycles_elapsed=10) == 50
    assert of("sm_activity", gpm_sm_cycles_active=0, gpm_sm_cycles_elapsed=0).endswith("stood still")
    assert "contradict" in of("sm_activity", gpm_sm_cycles_active=11, gpm_sm_cycles_elapsed=10)
    assert "not read twice" in of("sm_activity", gpm_sm_cycles_active=11)
    still = {"gpm_sm_cycles_active": 1, "gpm_sm_cycles_elapsed": 10**6, "gpm_mma_cycles_active": 1}
    assert of("tensor_share", **still).startswith("hardly any active cycles")


def test_pcie_prefers_counters():
    sampled = make.series(pcie_tx_kb_s=1000, pcie_rx_kb_s=3000)
    one = make.device(hourly_pct=(50.0,), series=sampled)
    assert read(make.run(one, hours=1), "pcie") == 4
    counted = replace(one, moved={"pcie_tx_bytes": 10**9, "pcie_rx_bytes": 10**9}, moved_ms=10_000)
    assert read(make.run(counted, hours=1), "pcie") == 200


def test_a_gpu_of_which_nothing_is_known_leaves_no_reading():
    known = make.training()
    lost = make.device("GPU-9", (), covered_ms=0, gap_ms=48 * make.HOUR_MS, memory_total_bytes=None)
    readings = observe(REGISTRY, replace(known, devices=(*known.devices, lost), gpu_count=9))
    assert readings["power_level"].value is None
    assert readings["memory_level"].value is None
    assert readings["sm_activity"].value is None
    assert readings["evenness"].value is None


def test_mig_has_no_utilisation():
    slice_ = make.device(covered_ms=make.HOUR_MS)
    assert "MIG" in read(make.run(slice_, hours=1), "utilisation_level")


@pytest.mark.parametrize(
    "make_run", [make.training, make.serving, make.idle, make.disguised, make.batch_inference]
)
def test_the_order_of_devices_does_not_matter(make_run):
    run = make_run()
    assert values(replace(run, devices=run.devices[::-1])) == pytest.approx(values(run), nan_ok=True)
