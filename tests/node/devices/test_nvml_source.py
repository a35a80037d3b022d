"""The NVML source: old drivers, counters, rates, hanging calls; that it never writes."""

from __future__ import annotations

import ast
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from fake_nvml.harness import FakeNvml
from fake_nvml.truth import operations

import slurm_trace.node.devices
from slurm_trace.node.devices import nvml_batch
from slurm_trace.node.devices.base import Reading
from slurm_trace.node.devices.nvml import NvmlSource
from slurm_trace.node.devices.scenario import load
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone

BUSY = "gpu H100 GPU-0\nwork 0 0 1000 clock=1755 busy=0.98 hmma=0.5 memory=60e9 tx=120000 rx=80\n"


def _opened(fake: FakeNvml, text: str, at: float = 5, **options: bool) -> NvmlSource:
    fake.load(text, at=at)
    source = fake.source(**options)
    source.open()
    return source


def test_an_old_driver_gives_what_it_has(old: FakeNvml) -> None:
    source = _opened(old, BUSY + "process 0 0 100 4242 1000\n")
    reading, counters = source.read("GPU-0"), source.counters("GPU-0")
    assert reading.get("power_mw") == 475_720
    assert reading.get("memory_used_bytes") == 60_560_000_000
    assert (reading.get("pcie_tx_kb_s"), reading.get("pcie_rx_kb_s")) == (120_000, 80)
    assert (reading.get("temperature_c"), reading.get("throttle_reasons"), reading.get("process_count")) == (
        69,
        4,
        1,
    )
    assert reading.reasons == {"power_instant_mw": "missing_symbol", "module_power_mw": "missing_symbol"}
    assert reading.get("energy_mj") == counters.get("energy_mj") > 0
    assert counters.reasons["gpm_mma_cycles_active"] == counters.reasons["pcie_tx_bytes"] == "missing_symbol"
    assert not source.faults


def test_a_rate_is_the_mean_between_two_readings_that_are_near(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY + "reset 0 20.5\n")
    rates = []
    for at in (5, 6, 6, 20, 20.75, 21, 200):
        fake.set(at)
        reading = source.read("GPU-0")
        rates.append(reading.get("pcie_tx_kb_s") or reading.reasons["pcie_tx_kb_s"])
    assert rates == ["first_read", 120_000, "no_data", 120_000, "counter_restarted", 120_000, "first_read"]


def test_byte_counters_of_32_bits_are_not_used() -> None:
    row = (197, 0, 0, 0, 1, 0, 4_000_000_000)
    assert nvml_batch._status((197, 0), row) == "not_supported"
    assert nvml_batch._status((197, 0), (197, 0, 0, 0, 3, 0, 4_000_000_000)) == "ok"


def test_without_a_byte_counter_a_snapshot_or_nothing(fake: FakeNvml) -> None:
    text = "gpu A100 GPU-0\nwork 0 0 100 tx=7\n"
    source = _opened(fake, text)
    assert source.read("GPU-0").get("pcie_tx_kb_s") == 7
    source.close()
    before = fake.calls("nvmlDeviceGetPcieThroughput")
    source = _opened(fake, text, pcie_snapshot=False)
    assert source.read("GPU-0").reasons["pcie_tx_kb_s"] == "switched_off"
    assert fake.calls("nvmlDeviceGetPcieThroughput") == before


def test_counters_that_begin_again_are_shown_as_they_are(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY + "reset 0 50\n")
    before = source.counters("GPU-0")
    fake.set(60)
    after = source.counters("GPU-0")
    for name in ("energy_mj", "gpm_sm_cycles_elapsed"):
        assert after.get(name) < before.get(name)
    assert after.get("energy_mj") == 4_757_199
    assert after.get("pcie_tx_bytes") == 1_200_000_000


@pytest.mark.parametrize(("cycles", "sms"), [("mean", 132), ("sum", 1)])
def test_cycle_counters_lead_back_to_the_truth(fake: FakeNvml, cycles: str, sms: int) -> None:
    text = (
        f"cycles {cycles}\ngpu H100 GPU-0\nwork 0 10 60 clock=1500 busy=0.9 hmma=0.5 fp32=0.25 int=0.125\n"
        "work 0 70 90 clock=1980 hmma=0.75\nfault 0 DeviceGetUtilizationRates 15 80 unknown_error\n"
    )
    source = _opened(fake, text)
    first = source.counters("GPU-0")
    start, scenario = fake.now, load(fake.load(text, at=fake.now))
    fake.set(100)
    second = source.counters("GPU-0")
    rates = {"hmma": 4096, "fp32": 256, "integer": 1024}
    done = sum(
        (second.get(f"gpm_{pipe}_cycles_active") - first.get(f"gpm_{pipe}_cycles_active")) * rate * sms
        for pipe, rate in rates.items()
    )
    assert done == pytest.approx(float(operations(scenario, start, 100)["GPU-0"]), rel=1e-9)


def test_the_first_counters_wait_until_two_samples_are_far_enough_apart(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY)
    assert source.counters("GPU-0").get("gpm_sm_cycles_elapsed") is not None
    assert fake.now == pytest.approx(5.11)
    source.counters("GPU-0")
    assert fake.now == pytest.approx(5.11)


def test_a_raised_maximum_clock_is_seen(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY + "set 0 sm_clock_max 10 end 2100\n")
    assert source.counters("GPU-0").get("sm_clock_max_mhz") == 1980
    fake.set(10)
    assert source.counters("GPU-0").get("sm_clock_max_mhz") == 2100
    assert source.devices()[0].max_sm_mhz == 1980


def test_a_card_that_answers_nothing_is_lost(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY + "fault 0 * 10 20 unknown_error\nfault 0 * 30 40 reset_required\n")
    for at, reason in ((10, "unknown_error"), (30, "reset_required")):
        fake.set(at)
        for method in (source.read, source.counters):
            with pytest.raises(DeviceLost) as caught:
                method("GPU-0")
            assert caught.value.reason == reason
        fake.set(at + 10)
        # An error for a while is over when it is over.
        assert source.read("GPU-0").get("utilization_pct") == 98


def test_a_field_that_fails_at_the_start_for_a_while_is_asked_again(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY + "fault 0 DeviceGetUtilizationRates 0 10 unknown_error\n")
    assert source.devices()[0].capability["utilization_pct"] == "unknown_error"
    fake.set(10)
    assert source.read("GPU-0").get("utilization_pct") == 98


def test_when_the_library_was_shut_down_by_another_the_source_is_gone(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY)
    fake.end()
    for method in (source.read, source.counters):
        with pytest.raises(SourceGone):
            method("GPU-0")
    source.close()
    source.open()
    assert source.read("GPU-0").get("utilization_pct") == 98


def test_ring_buffers_tile_and_show_their_holes(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY + "hole 0 50 60\n", at=40)
    seen = [stamp for stamp, _ in source.ring("GPU-0", "utilization_pct", 0)]
    for at in (45, 52, 61, 62.1):
        fake.set(at)
        seen += [stamp for stamp, _ in source.ring("GPU-0", "utilization_pct", seen[-1])]
    steps = [after - before for before, after in pairwise(seen)]
    assert set(steps) == {250_000, 10_250_000}
    assert steps.count(10_250_000) == 1
    assert source.ring("GPU-0", "utilization_pct", seen[-1]) == []
    assert {value for _, value in source.ring("GPU-0", "sm_clock_mhz", 0)} == {1755}


def test_a_ring_buffer_that_fails_for_now_says_why(fake: FakeNvml) -> None:
    source = _opened(
        fake, BUSY + "fault 0 samples:0 10 20 unknown_error\nfault 0 samples:6 0 10 unknown_error\n"
    )
    fake.set(10)
    with pytest.raises(NotSupported) as caught:
        source.ring("GPU-0", "power_mw", 0)
    assert caught.value.reason == "unknown_error"
    assert source.faults["GPU-0", "ring:power_mw", "unknown_error"] == 1
    fake.set(20)
    assert source.ring("GPU-0", "power_mw", 0)
    assert source.ring("GPU-0", "memory_clock_mhz", 0)
    with pytest.raises(NotSupported):
        source.ring("GPU-0", "module_power_mw", 0)


def test_while_one_call_hangs_other_devices_are_read_and_the_late_answer_harms_nothing(
    fake: FakeNvml,
) -> None:
    source = _opened(fake, BUSY + "gpu H100 GPU-1\nfault 0 DeviceGetClockInfo 10 20 hang:0.6\n")
    fake.set(10)
    late: list[Reading] = []
    worker = threading.Thread(target=lambda: late.append(source.read("GPU-0")), daemon=True)
    began = time.monotonic()
    worker.start()
    worker.join(0.1)
    assert worker.is_alive()
    for _ in range(20):
        assert source.read("GPU-1").get("sm_clock_mhz") == 345
    assert time.monotonic() - began < 0.6
    fake.set(30)
    worker.join(5)
    assert late[0].get("sm_clock_mhz") == 1755
    assert source.read("GPU-0").get("sm_clock_mhz") == 1755


def test_nothing_is_ever_set(fake: FakeNvml) -> None:
    source = _opened(fake, BUSY)
    source.read("GPU-0")
    source.counters("GPU-0")
    for name in ("SetApplicationsClocks", "ResetApplicationsClocks", "SetPersistenceMode"):
        assert fake.calls(f"nvmlDevice{name}") == 0
    # Nor is any call named in the source that changes a device or takes a lock.
    allowed = {"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents"}
    words = ("Set", "Reset", "Enable", "Clear", "Create", "Lock", "Freeze", "Modify", "Remove", "Drain")
    folder = Path(slurm_trace.node.devices.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
            if isinstance(name, str) and name.startswith("nvml") and " " not in name and name not in allowed:
                assert not any(word in name for word in words), (path.name, name)
