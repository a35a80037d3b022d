"""The same scenario, through the driver library and without it: the same figures, reasons and capabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_nvml.harness import EPOCH, FakeNvml

from slurm_trace.node.devices.replay import replay
from slurm_trace.node.errors import DeviceProblem, SourceGone
from slurm_trace.node.fields import RINGS

EVERY_KIND = """
gpu H100 GPU-h minor=5
gpu A100 GPU-a minor=4 pci=0000:0a:00.0
gpu B200 GPU-b
gpu GH200 GPU-g
gpu VGPU GPU-v
gpu H100 GPU-m
mig 5 MIG-1 1g.10gb gi=7 ci=0 sms=16 memory=10737418240
mig 5 MIG-2 3g.40gb gi=1 ci=0 sms=60 memory=42949672960
"""
WORK = """
work 0 10 20.5 clock=1755 busy=0.98 active=0.9 hmma=0.5 fp32=0.1 int=0.05 memory=60e9 tx=120000 rx=90000.5
work 0 20.5 22 busy=0.3 imma=0.3 precision=int8 power=333.3
work 1 3 100 clock=1275 busy=0.7 hmma=0.66 tx=5000
work 2 0 100 hmma=0.9 precision=fp4 membusy=0.77
work 3 5 9 busy=0.5 dmma=0.1 precision=fp64
work 4 1 2 busy=0.5
work 5.0 0 50 busy=0.9 hmma=0.2 memory=1e9 tx=100
work 5.1 10 50 busy=0.4 fp16=0.3 memory=2.5e9
process 0 10 20 4242 59000000000
process 5.1 10 50 77 2500000000
"""
FAULTS = """
set 0 utilization 12 13 4294967295
set 0 memory_used 12 13 18446744073709551615
set 1 temperature 4 6 65535
set 2 gpm:248 15 16 -1
set 3 power_instant 11 12 4294967294
fault 0 DeviceGetPowerUsage 0 end not_supported
fault 0 field:185 14 15 unknown_error
fault 0 DeviceGetClockInfo start end no_permission
fault 1 DeviceGetTemperatureV start end missing_symbol
fault 1 field:83 start end not_supported
fault 2 gpm:252 start end no_permission
fault 2 DeviceGetFieldValues 16 17 unknown_error
fault 3 DeviceGetMemoryInfo_v2 start end not_supported
fault 3 samples:1 11 13 unknown_error
reset 0 15
reset 5 12.25
hole 0 11 11.6
xid 0 12.1 79
xid 5 3.5 13 gi=7 ci=0
xid 2 3.5 999
"""
LOST = """
fault 1 * 12 14 lost
gone 1 12 14
fault 2 DeviceGetHandleByIndex_v2 start end unknown_error
fault 3 * 13 14 unknown_error
"""


def _ask(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except DeviceProblem as problem:
        return type(problem), problem.reason


@pytest.mark.parametrize("cycles", ["mean", "sum"])
@pytest.mark.parametrize(
    "more", ["", WORK, WORK + FAULTS, WORK + LOST], ids=["idle", "work", "faults", "lost"]
)
def test_both_ways_see_the_same(fake: FakeNvml, more: str, cycles: str) -> None:
    path = fake.load(f"cycles {cycles}\n{EVERY_KIND}{more}", at=2)
    ours, theirs = fake.source(), replay(path, lambda: EPOCH + fake.now)
    ours.open()
    theirs.open()
    infos = ours.devices()
    for info in infos:
        # Which GPM metrics there are shows at the first read.
        ours.counters(info.uuid)
    assert infos == theirs.devices()
    assert replace(ours.info, kind="replay") == theirs.info
    seen_us = dict.fromkeys((info.uuid for info in infos), 0)
    for at in (3, 3.3, 5.5, 9, 10, 10.2, 11.75, 12.5, 13.5, 14, 15, 15.5, 16, 19, 20.5, 21, 30, 200):
        fake.set(at)
        for uuid, since in seen_us.items():
            for kind in RINGS:
                assert _ask(ours.ring, uuid, kind, since) == _ask(theirs.ring, uuid, kind, since), (
                    uuid,
                    kind,
                    at,
                )
            assert _ask(ours.read, uuid) == _ask(theirs.read, uuid), (uuid, at)
            # The first counters wait for 110 ms: the clock is the same for both afterwards.
            assert _ask(ours.counters, uuid) == _ask(theirs.counters, uuid), (uuid, at)
        seen_us = dict.fromkeys(seen_us, int((EPOCH + at) * 1e6))
        assert ours.xid_events() == theirs.xid_events(), at
    assert ours.faults == theirs.faults
    ours.close()
    theirs.close()


def test_after_close_and_open_both_find_what_is_there_by_its_uuid(fake: FakeNvml) -> None:
    path = fake.load(EVERY_KIND + WORK + LOST, at=12)
    for source in (fake.source(), replay(path, lambda: EPOCH + fake.now)):
        fake.set(12.5)
        source.open()
        # The second card is gone, the third (now the second) does not even give a handle.
        assert [info.uuid for info in source.devices()] == [
            "GPU-h",
            "GPU-g",
            "GPU-v",
            "GPU-m",
            "MIG-1",
            "MIG-2",
        ]
        assert [info.index for info in source.devices()] == [0, 2, 3, 4, 0, 1]
        assert source.info.failed == ((1, "unknown_error"),)
        assert _ask(source.read, "GPU-a")[1] == "not_found"
        source.close()
        fake.set(20)
        source.open()
        assert [info.index for info in source.devices() if info.uuid == "GPU-a"] == [1]
        assert source.read("GPU-a").get("sm_clock_mhz") == 1275
        source.close()
        with pytest.raises(SourceGone):
            source.read("GPU-a")
