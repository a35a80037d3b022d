"""Unmodified nvidia-ml-py on the fake library."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pynvml
import pytest
from fake_nvml.build import build
from fake_nvml.harness import EPOCH, FakeNvml
from fake_nvml.truth import operations

from slurm_trace.node.devices.scenario import load

TWO = "gpu H100 GPU-a minor=1\ngpu A100 GPU-b minor=0\n"


@pytest.fixture
def nvml(fake: FakeNvml) -> FakeNvml:
    fake.load(
        TWO + "work 0 10 60 clock=1755 busy=0.98 hmma=0.5 memory=60e9\nprocess 0 10 60 4242 59000000000\n",
        at=20,
    )
    return fake


def _session(fake: FakeNvml) -> list[object]:
    pynvml.nvmlInit()
    return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]


def test_the_wrappers_of_nvidia_ml_py_read_what_the_scenario_says(nvml: FakeNvml) -> None:
    first, second = _session(nvml)
    assert pynvml.nvmlSystemGetDriverVersion() == "550.54.15"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert pynvml.nvmlDeviceGetName(first) == "NVIDIA H100 80GB HBM3"
    assert [pynvml.nvmlDeviceGetMinorNumber(h) for h in (first, second)] == [1, 0]
    assert pynvml.nvmlDeviceGetUtilizationRates(first).gpu == 98
    assert pynvml.nvmlDeviceGetMemoryInfo(first).used == 60_560_000_000
    assert pynvml.nvmlDeviceGetMemoryInfo(first, pynvml.nvmlMemory_v2).used == 60_560_000_000
    assert pynvml.nvmlDeviceGetClockInfo(first, pynvml.NVML_CLOCK_SM) == 1755
    assert pynvml.nvmlDeviceGetMaxClockInfo(first, pynvml.NVML_CLOCK_SM) == 1980
    assert pynvml.nvmlDeviceGetTemperature(first, pynvml.NVML_TEMPERATURE_GPU) == 69
    assert pynvml.nvmlDeviceGetTemperatureV(first, pynvml.NVML_TEMPERATURE_GPU) == 69
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(first) == 4
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(first)] == [4242]
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(second) == []
    fields = pynvml.nvmlDeviceGetFieldValues(first, [83, (186, 0), (186, 1), 250])
    assert [f.nvmlReturn for f in fields] == [0, 0, pynvml.NVML_ERROR_NOT_SUPPORTED, 0]
    assert fields[0].value.ullVal == pynvml.nvmlDeviceGetTotalEnergyConsumption(first)
    kind, samples = pynvml.nvmlDeviceGetSamples(first, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert [s.timeStamp for s in samples][-1] == (EPOCH + 20) * 10**6
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_gpm_metrics_by_two_samples(nvml: FakeNvml) -> None:
    first, second = _session(nvml)
    assert pynvml.nvmlGpmQueryDeviceSupport(first).isSupportedDevice == 1
    assert pynvml.nvmlGpmQueryDeviceSupport(second).isSupportedDevice == 0
    get = pynvml.c_nvmlGpmMetricsGet_t()
    get.version, get.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 3
    get.sample1, get.sample2 = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    for place, metric in enumerate((pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 248, 250)):
        get.metrics[place].metricId = metric
    pynvml.nvmlGpmSampleGet(first, get.sample1)
    nvml.wait(1)
    pynvml.nvmlGpmSampleGet(first, get.sample2)
    pynvml.nvmlGpmMetricsGet(get)
    assert [m.nvmlReturn for m in get.metrics[:3]] == [0, 0, 0]
    assert get.metrics[0].value == pytest.approx(50)
    # 3610 s idle since boot, then 11 s of work of which half in the tensor pipe.
    assert get.metrics[1].value == pytest.approx(3610 * 345e6 + 11 * 1755e6)
    assert get.metrics[2].value == pytest.approx(11 * 1755e6 / 2)
    pynvml.nvmlShutdown()


def test_mig_instances_are_found_and_keep_their_own_figures(fake: FakeNvml) -> None:
    fake.load(
        "gpu A100 GPU-a\nmig 0 MIG-x 1g.10gb gi=7 ci=0 sms=14 memory=10737418240\n"
        "mig 0 MIG-y 3g.40gb gi=1 ci=0 sms=42 memory=42949672960\nwork 0.1 0 60 memory=5e9\n",
        at=5,
    )
    (card,) = _session(fake)
    assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
    parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, i) for i in range(2)]
    assert [pynvml.nvmlDeviceGetUUID(p) for p in parts] == ["MIG-x", "MIG-y"]
    assert [pynvml.nvmlDeviceGetName(p).split(" MIG ")[1] for p in parts] == ["1g.10gb", "3g.40gb"]
    assert [pynvml.nvmlDeviceGetAttributes(p).multiprocessorCount for p in parts] == [14, 42]
    assert [pynvml.nvmlDeviceGetMemoryInfo(p).used for p in parts] == [30_000_000, 5_030_000_000]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetUtilizationRates(card)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)
    pynvml.nvmlShutdown()


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("not_supported", pynvml.NVMLError_NotSupported),
        ("no_permission", pynvml.NVMLError_NoPermission),
        ("lost", pynvml.NVMLError_GpuIsLost),
        ("unknown_error", pynvml.NVMLError_Unknown),
        ("missing_symbol", pynvml.NVMLError_FunctionNotFound),
        ("24", pynvml.NVMLError_FreqNotSupported),
    ],
)
def test_a_fault_is_of_one_call_of_one_card_in_one_time(
    fake: FakeNvml, how: str, error: type[pynvml.NVMLError]
) -> None:
    fake.load(f"{TWO}fault 0 DeviceGetPowerUsage 10 20 {how}\n")
    first, second = _session(fake)
    assert pynvml.nvmlDeviceGetPowerUsage(first) == 70_000
    fake.set(10)
    with pytest.raises(error):
        pynvml.nvmlDeviceGetPowerUsage(first)
    assert pynvml.nvmlDeviceGetPowerUsage(second) == 55_000
    pynvml.nvmlShutdown()


def test_a_lost_card_stays_lost_until_the_library_starts_anew(fake: FakeNvml) -> None:
    fake.load(f"{TWO}fault 0 * 10 20 lost\ngone 0 10 20\n")
    first, second = _session(fake)
    fake.set(15)
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetUUID(first)
        fake.set(30)
    pynvml.nvmlShutdown()
    fake.set(15)
    (only,) = _session(fake)
    assert pynvml.nvmlDeviceGetUUID(only) == "GPU-b"
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetUUID(second)
    pynvml.nvmlShutdown()


def test_an_old_driver_lacks_calls(old: FakeNvml) -> None:
    old.load(TWO)
    (first, _) = _session(old)
    for call in (
        lambda: pynvml.nvmlDeviceGetFieldValues(first, [83]),
        lambda: pynvml.nvmlGpmQueryDeviceSupport(first),
        lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(first),
    ):
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            call()
    assert pynvml.nvmlDeviceGetPowerUsage(first) == 70_000
    pynvml.nvmlShutdown()


def test_a_process_of_its_own_finds_it_by_the_library_path_and_real_time(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("gpu H100 GPU-a\nwork 0 0 1000 hmma=1\n")
    code = (
        "import pynvml; pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByUUID('GPU-a');"
        "print(pynvml.nvmlDeviceGetPowerUsage(h) > 70000, pynvml.nvmlDeviceGetClockInfo(h, 1))"
    )
    environment = {"LD_LIBRARY_PATH": str(build()), "FAKE_NVML": str(scenario), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1980"]


def test_a_wrong_line_is_named(fake: FakeNvml, capfd: pytest.CaptureFixture[str]) -> None:
    fake.load("gpu H100 GPU-a\nbanana 0 1 2\n")
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    assert "line 3: banana" in capfd.readouterr().err


def test_the_truth_is_exact(fake: FakeNvml) -> None:
    path = fake.load(
        "gpu H100 GPU-a\nwork 0 10 20 clock=1000 hmma=0.1 fp32=0.3\nwork 0 20 30 hmma=1 precision=fp8 sparse=1\n"
        "gpu A100 GPU-b\nmig 1 MIG-x 1g.10gb gi=7 ci=0 sms=14 memory=10737418240\n"
        "work 1.0 0 10 imma=0.7 precision=int8\n"
    )
    first = 132 * 10**9 * (Fraction("0.1") * 4096 + Fraction("0.3") * 256)
    second = 132 * 1980 * 10**6 * 16384
    third = 14 * 1410 * 10**6 * Fraction("0.7") * 4096
    assert operations(load(path), 0, 100) == {
        "GPU-a": first * 10 + second * 10, "MIG-x": third * 10, "GPU-b": third * 10,
    }  # fmt: skip
    assert operations(load(path), Fraction("12.5"), 13)["GPU-a"] == first / 2


def test_a_scenario_may_be_edited_under_a_running_reader(fake: FakeNvml) -> None:
    path = fake.load("gpu H100 GPU-a\n", at=5)
    source = fake.source()
    source.open()
    before = source.counters("GPU-a")
    path.write_text(path.read_text() + "work 0 0 100 busy=0.5 hmma=0.5\nprocess 0 0 100 1 2\n")
    deadline = time.monotonic() + 5
    while source.read("GPU-a").get("process_count") == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert source.read("GPU-a").get("process_count") == 1
    after = source.counters("GPU-a")
    assert after.get("gpm_mma_cycles_active") > before.get("gpm_mma_cycles_active") == 0
