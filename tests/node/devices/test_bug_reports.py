"""Faults that users of other samplers met in the field, each with the value that is right."""

from __future__ import annotations

import statistics

import pynvml
import pytest
from fake_nvml.harness import FakeNvml

from slurm_trace.node import fields
from slurm_trace.node.config import NodeConfig
from slurm_trace.node.devices.nvml import NvmlSource
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone
from slurm_trace.node.main import make_source

BUSY = "work 0 0 1000 clock=1755 busy=0.98 hmma=0.5 memory=60e9\n"


def _opened(fake: FakeNvml, text: str, at: float = 5, **options: bool) -> NvmlSource:
    fake.load(text, at=at)
    source = fake.source(**options)
    source.open()
    return source


def test_mig_and_whole_cards_together_and_one_sick_card_stops_no_other(fake: FakeNvml) -> None:
    # slurm-job-exporter pull 50.
    source = _opened(
        fake,
        "gpu A100 GPU-0\ngpu A100 GPU-1\ngpu A100 GPU-2\ngpu A100 GPU-3\n"
        "mig 0 MIG-0 3g.40gb gi=1 ci=0 sms=42 memory=42949672960\n"
        "mig 1 MIG-1 1g.10gb gi=7 ci=0 sms=14 memory=10737418240\n"
        "work 0.0 0 100 memory=7e9\nwork 3 0 100 busy=0.5\nfault 2 * start end unknown_error\n",
    )
    assert [info.uuid for info in source.devices()] == ["GPU-0", "MIG-0", "GPU-1", "MIG-1", "GPU-3"]
    assert source.info.failed == ((2, "unknown_error"),)
    assert source.read("MIG-0").get("memory_used_bytes") == 7_030_000_000
    assert source.read("GPU-3").get("utilization_pct") == 50
    assert source.read("GPU-0").get("utilization_pct") is None


def test_power_of_a_card_is_never_power_of_its_slices(fake: FakeNvml) -> None:
    # slurm-job-exporter pull 55, dcgm-exporter issue 317.
    slices = "".join(
        f"mig 0 MIG-{i} 1g.10gb gi={7 + i} ci=0 sms=14 memory=10737418240\nwork 0.{i} 0 100 power=61.25\n"
        for i in range(4)
    )
    source = _opened(fake, "gpu A100 GPU-0\n" + slices)
    card, *parts = (source.read(info.uuid) for info in source.devices())
    assert card.get("power_mw") == 300_000
    for part in parts:
        for name in ("power_mw", "power_instant_mw", "energy_mj", "utilization_pct"):
            assert part.get(name) is None
            assert part.reasons[name] == "whole_card"
        # What holds for the whole card holds for its parts.
        assert part.get("sm_clock_mhz") == 1410


def test_utilisation_above_a_hundred_is_no_value(fake: FakeNvml) -> None:
    # DCGM issue 199: about one sample in millions.
    source = _opened(
        fake,
        "gpu H100 GPU-0\nset 0 utilization 1 2 37\nset 0 utilization 2 3 808334905\nset 0 utilization 3 4 41\n"
        "set 0 utilization 4 5 4294967295\nset 0 utilization 5 6 1980\n",
        at=0,
    )
    seen = []
    for second in (1, 2, 3, 4, 5):
        fake.set(second)
        seen.append(source.read("GPU-0").get("utilization_pct"))
    assert seen == [37, None, 41, None, None]
    assert statistics.mean(value for value in seen if value is not None) == 39
    assert source.faults["GPU-0", "utilization_pct", "out_of_range"] == 2
    assert source.faults["GPU-0", "utilization_pct", "sentinel"] == 1


def test_in_mig_mode_utilisation_does_not_exist(fake: FakeNvml) -> None:
    # gpu-monitoring-tools 152, distributed 8739, nvtop 256: shown as 9223372036854776000 %, or as 0.
    source = _opened(fake, "gpu A100 GPU-0\nmig 0 MIG-0 1g.10gb gi=7 ci=0 sms=14 memory=10737418240\n")
    reading = source.read("GPU-0")
    assert reading.get("utilization_pct") is None
    assert reading.reasons["utilization_pct"] == "not_supported"
    assert source.devices()[0].mig_enabled
    with pytest.raises(NotSupported):
        source.ring("GPU-0", "utilization_pct", 0)
    assert fields.invalid(fields.UTILIZATION, 9_223_372_036_854_775_808) == "sentinel"


def test_one_field_of_one_card_that_is_not_supported_spoils_nothing(fake: FakeNvml) -> None:
    # nvidia_gpu_exporter 68, nvidia-co2 pull 1, nviwatch pull 28.
    source = _opened(
        fake,
        "gpu A100 GPU-0\ngpu A100 GPU-1\nwork 0 0 100 busy=0.5\n"
        "fault 0 DeviceGetPowerUsage start end not_supported\nfault 0 field:186 start end not_supported\n",
    )
    first, second = source.read("GPU-0"), source.read("GPU-1")
    assert (first.get("power_mw"), first.reasons["power_mw"]) == (None, "not_supported")
    assert first.get("utilization_pct") == 50
    assert second.get("power_mw") == 55_000
    # A capability, not a fault that is counted at every poll.
    assert source.devices()[0].capability["power_mw"] == "not_supported"
    assert not source.faults


def test_unknown_errors_and_nonsense_beside_true_values(fake: FakeNvml) -> None:
    # dcgm-exporter 319, nvidia_gpu_exporter 393, gpu-fryer pull 11: a card that wants a reset.
    source = _opened(
        fake,
        "gpu H100 GPU-0\n" + BUSY + "fault 0 DeviceGetUtilizationRates 10 20 unknown_error\n"
        "set 0 temperature 10 20 65535\nset 0 energy 10 20 18446744073709551615\n",
    )
    source.read("GPU-0")
    fake.set(10)
    reading = source.read("GPU-0")
    assert reading.get("sm_clock_mhz") == 1755
    assert reading.get("memory_used_bytes") == 60_560_000_000
    for name, reason in (
        ("utilization_pct", "unknown_error"),
        ("temperature_c", "sentinel"),
        ("energy_mj", "sentinel"),
    ):
        assert reading.get(name) is None
        assert reading.reasons[name] == reason
        assert source.faults["GPU-0", name, reason] == 1
    fake.set(20)
    assert source.read("GPU-0").get("temperature_c") == 69


def test_a_library_that_does_not_match_the_driver_is_named_once_and_with_its_remedy(fake: FakeNvml) -> None:
    # shine-cluster 30: an unattended upgrade under running jobs.
    fake.load(
        "gpu H100 GPU-0\ninit start 10 driver_mismatch\ninit 10 20 no_permission\ninit 20 30 driver_not_loaded\n"
    )
    source = fake.source()
    for at, reason in ((5, "driver_mismatch"), (15, "no_permission"), (25, "driver_not_loaded")):
        fake.set(at)
        with pytest.raises(SourceGone) as caught:
            source.open()
        assert caught.value.reason == reason
        assert "\n" not in str(caught.value)
    fake.set(30)
    source.open()
    assert len(source.devices()) == 1


def test_profiling_figures_that_are_kept_from_users_leave_the_rest(fake: FakeNvml) -> None:
    # pynvml 19: RmProfilingAdminOnly.
    source = _opened(fake, "gpu H100 GPU-0\n" + BUSY + "fault 0 GpmSampleGet start end no_permission\n")
    assert source.read("GPU-0").get("utilization_pct") == 98
    counters = source.counters("GPU-0")
    assert counters.get("energy_mj") is not None
    assert counters.get("gpm_sm_cycles_elapsed") is None
    assert counters.reasons["gpm_sm_cycles_elapsed"] == "no_permission"


def test_one_initialisation_and_one_search_serve_all_reads(fake: FakeNvml) -> None:
    # A driver without persistence mode takes seconds to start: never once a poll.
    before = [fake.calls(name) for name in ("nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID")]
    source = _opened(fake, "gpu H100 GPU-0\n")
    opened = [fake.calls(name) for name in ("nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID")]
    assert opened[0] == before[0] + 1
    for _ in range(50):
        source.read("GPU-0")
    assert [fake.calls(name) for name in ("nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID")] == opened


def test_old_and_impossible_entries_of_a_ring_buffer(fake: FakeNvml) -> None:
    # nvtop 110: stale stamps, values above 100.
    source = _opened(fake, "gpu H100 GPU-0\n" + BUSY + "set 0 utilization 10 10.25 255\n", at=9)
    first = source.ring("GPU-0", "utilization_pct", 0)
    fake.set(11)
    second = source.ring("GPU-0", "utilization_pct", first[-1][0])
    assert all(stamp > first[-1][0] for stamp, _ in second)
    assert [value for _, value in second] == [98, 98, 98, None, 98, 98, 98, 98]
    assert source.faults["GPU-0", "ring:utilization_pct", "out_of_range"] == 1
    # The entry stays in its place: that stretch is not known, and not skipped either.
    assert len({stamp for stamp, _ in second}) == 8


def test_watching_uses_no_profiling_figures(fake: FakeNvml) -> None:
    # dcgm-exporter 464: idle power of A100s doubled by being watched.
    names = ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc")
    before = [fake.calls(name) for name in names]
    fake.load("gpu A100 GPU-0\ngpu H100 GPU-1\n", at=5)
    source = make_source(NodeConfig(gpm="no"))
    source.open()
    for uuid in ("GPU-0", "GPU-1"):
        source.read(uuid)
        assert source.counters(uuid).reasons["gpm_sm_cycles_elapsed"] == "switched_off"
    source.close()
    assert [fake.calls(name) for name in names] == before
    source = _opened(fake, "gpu A100 GPU-0\ngpu H100 GPU-1\n")
    after_open = [fake.calls(name) for name in names]
    for _ in range(5):
        source.read("GPU-0")
        source.read("GPU-1")
    source.counters("GPU-0")
    assert [fake.calls(name) for name in names] == after_open


def test_full_utilisation_near_idle_power_is_shown_as_it_is(fake: FakeNvml) -> None:
    # One resident kernel on one SM: 100 % and 70 W of 700 W.
    source = _opened(fake, "gpu H100 GPU-0\nwork 0 0 100 busy=1 active=0.008 power=70\n")
    reading = source.read("GPU-0")
    assert (reading.get("utilization_pct"), reading.get("power_mw")) == (100, 70_000)
    assert "says nothing about the work" in fields.UTILIZATION.note


def test_energy_by_the_counter_and_by_power_are_two_figures(fake: FakeNvml) -> None:
    # zeus 181, kokkos-tools pull 295: 187 J by the one, 327 J by the other.
    source = _opened(
        fake,
        "gpu A100 GPU-0\nset 0 power 0 end 65400\nset 0 power_instant 0 end 65400\n"
        "set 0 energy 0 5 1000000\nset 0 energy 5 end 1187000\n",
        at=0,
    )
    first = source.read("GPU-0")
    fake.set(5)
    second = source.read("GPU-0")
    assert second.get("energy_mj") - first.get("energy_mj") == 187_000
    assert second.get("power_mw") * 5 == 327_000


def test_no_energy_counter_is_no_energy_not_zero(fake: FakeNvml) -> None:
    # codecarbon 1316: vGPU and cards before Volta.
    source = _opened(
        fake,
        "gpu VGPU GPU-0\ngpu A100 GPU-1\nwork 1 0 100 power=200\nfault 1 field:83 start end not_supported\n"
        "fault 1 DeviceGetTotalEnergyConsumption start end not_supported\n",
    )
    for uuid in ("GPU-0", "GPU-1"):
        reading, counters = source.read(uuid), source.counters(uuid)
        assert reading.get("energy_mj") is None
        assert counters.get("energy_mj") is None
        assert reading.reasons["energy_mj"] == counters.reasons["energy_mj"] == "not_supported"
    assert source.read("GPU-1").get("power_mw") == 200_000


def test_energy_is_in_millijoules_and_may_stand_still(fake: FakeNvml) -> None:
    # pyJoules 17 and pull 20: two reads 1 ms apart, 15,000 mJ are 15 J.
    source = _opened(fake, "gpu H100 GPU-0\nwork 0 0 100 power=15\nset 0 energy 10 10.01 777\n", at=1)
    first = source.read("GPU-0").get("energy_mj")
    fake.set(2)
    assert source.read("GPU-0").get("energy_mj") - first == 15_000
    fake.set(10)
    standing = source.read("GPU-0")
    fake.set(10.001)
    assert source.read("GPU-0").get("energy_mj") == standing.get("energy_mj") == 777


def test_power_carries_its_window(fake: FakeNvml) -> None:
    # arXiv 2312.02741, DCGM 157: under a load that switches each 100 ms a mean and a momentary reading differ.
    waves = "".join(f"work 0 {i / 5} {i / 5 + 0.1} power=700\n" for i in range(25))
    source = _opened(fake, "gpu H100 GPU-0\n" + waves, at=4.05)
    reading = source.read("GPU-0")
    assert reading.get("power_instant_mw") == 700_000
    assert reading.get("power_mw") == pytest.approx(385_000, abs=35_000)
    assert "mean of the last second" in fields.POWER.note
    assert "of the moment" in fields.POWER_INSTANT.note


def test_power_of_a_module_is_not_power_of_its_gpu(fake: FakeNvml, old: FakeNvml) -> None:
    # hardware_sampling pull 5: Grace Hopper.
    text = "gpu GH200 GPU-0\nwork 0 0 100 power=500\n"
    source = _opened(fake, text)
    reading = source.read("GPU-0")
    assert (reading.get("power_mw"), reading.get("module_power_mw")) == (500_000, 650_000)
    assert source.devices()[0].power_scope == "module"
    source.close()
    fake.end()
    # Where only the plain call exists, it is the module's, and the GPU's own is not known.
    source = _opened(old, text)
    reading = source.read("GPU-0")
    assert (reading.get("power_mw"), reading.get("module_power_mw")) == (None, 650_000)


def test_memory_that_a_card_does_not_tell_is_null(fake: FakeNvml) -> None:
    # nvtop 426: GB10.
    source = _opened(
        fake,
        "gpu H100 GPU-0\nfault 0 DeviceGetMemoryInfo start end not_supported\n"
        "fault 0 DeviceGetMemoryInfo_v2 start end not_supported\n",
    )
    assert source.read("GPU-0").get("memory_used_bytes") is None
    assert source.devices()[0].memory_total_bytes is None


def test_xid_is_an_event_with_its_moment_and_comes_once(fake: FakeNvml) -> None:
    # dcgm-exporter 500 and 190: a gauge kept the last error for ever.
    source = _opened(
        fake,
        "gpu H100 GPU-0\ngpu H100 GPU-1\nmig 1 MIG-0 1g.10gb gi=7 ci=0 sms=16 memory=10737418240\n"
        "xid 0 2 13\nxid 0 10 79\nxid 1 11 31 gi=7 ci=0\n",
    )
    assert source.xid_events() == []
    fake.set(20)
    events = source.xid_events()
    assert [(event.uuid, event.code, event.gpu_instance) for event in events] == [
        ("GPU-0", 79, None),
        ("GPU-1", 31, 7),
    ]
    assert source.xid_events() == []


def test_closing_lets_go_so_that_a_reset_is_not_refused(fake: FakeNvml) -> None:
    # NVSentinel 1690, dra-driver-nvidia-gpu 1076.
    names = ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlInitWithFlags", "nvmlShutdown")
    before = [fake.calls(name) for name in names]
    source = _opened(fake, "gpu H100 GPU-0\n")
    source.read("GPU-0")
    source.close()
    source.close()
    assert [fake.calls(name) - count for name, count in zip(names, before, strict=True)] == [2, 2, 1, 1]
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    with pytest.raises(SourceGone):
        source.read("GPU-0")


def test_a_lost_card_is_found_again_by_its_uuid(fake: FakeNvml) -> None:
    # nvitop 139, LibreHardwareMonitor 2523: handles kept over a loss crash the reader.
    source = _opened(
        fake, "gpu H100 GPU-0\ngpu H100 GPU-1\nwork 1 0 100 busy=0.5\nfault 0 * 10 20 lost\ngone 0 10 20\n"
    )
    fake.set(12)
    with pytest.raises(DeviceLost) as caught:
        source.read("GPU-0")
    assert (caught.value.uuid, caught.value.reason) == ("GPU-0", "lost")
    assert source.read("GPU-1").get("utilization_pct") == 50
    source.close()
    source.open()
    assert [(info.uuid, info.index) for info in source.devices()] == [("GPU-1", 0)]
    assert source.read("GPU-1").get("utilization_pct") == 50
    with pytest.raises(DeviceLost) as caught:
        source.read("GPU-0")
    assert caught.value.reason == "not_found"
    fake.set(30)
    source.close()
    source.open()
    assert source.read("GPU-0").get("utilization_pct") == 0


def test_index_minor_and_bus_are_told_apart(fake: FakeNvml) -> None:
    # jobstats 34: minor number and NVML index.
    source = _opened(
        fake, "gpu H100 GPU-0 minor=2 pci=0001:0a:00.0\ngpu H100 GPU-1 minor=0\ngpu H100 GPU-2 minor=1\n"
    )
    assert [(info.index, info.minor, info.pci) for info in source.devices()] == [
        (0, 2, "00000001:0a:00.0"),
        (1, 0, "00000000:11:00.0"),
        (2, 1, "00000000:12:00.0"),
    ]
