"""Runs with made-up readings, for tests of purpose evidence."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurm_trace.analysis.evidence.inputs import Device, Hour, Run, Series

HOUR_MS = 3_600_000
GIB = 2**30
CARD_BYTES = 80 * GIB
LIMIT_MW = 700_000

FIELDS = (
    "utilization_pct", "memory_utilization_pct", "memory_used_bytes", "power_mw", "pcie_tx_kb_s", "pcie_rx_kb_s",
    "process_count",
)  # fmt: skip


def series(seconds: int = 600, step_s: float = 1.0, **fields: Any) -> Series:
    """Samples from 1 s after the lease opened; a field is one value or one a sample, and missing where not given."""
    times = np.arange(1, seconds + 1) * step_s * 1000
    given = {name: np.broadcast_to(np.float64(fields.get(name, np.nan)), times.shape) for name in FIELDS}
    return Series(times.astype(np.int64), given)


def device(uuid: str = "GPU-0", hourly_pct: tuple[float, ...] = (), **changes: Any) -> Device:
    """A GPU whose hours have these utilisations, fully covered."""
    hours = tuple(
        Hour(i * 3600, HOUR_MS, 0, HOUR_MS, round(pct * HOUR_MS)) for i, pct in enumerate(hourly_pct)
    )
    values: dict[str, Any] = {
        "uuid": uuid, "node": "n1", "begin_ms": 0, "memory_total_bytes": CARD_BYTES, "memory_used_max_bytes": None,
        "power_limit_mw": LIMIT_MW, "covered_ms": len(hours) * HOUR_MS, "gap_ms": 0, "energy_mj": None,
        "energy_ms": len(hours) * HOUR_MS, "hours": hours,
    }  # fmt: skip
    return Device(**(values | changes))


def energy(share: float, hours: int) -> int:
    """Millijoules of so many hours at a share of the limit."""
    return round(LIMIT_MW * share * hours * 3600)


def counters(sm: float, tensor: float, fp64: float = 0.0) -> dict[str, int]:
    """Counters of which so large a share of SM cycles was active, and of the active ones tensor and FP64."""
    elapsed = 10**12
    active = round(elapsed * sm)
    return {
        "gpm_sm_cycles_elapsed": elapsed,
        "gpm_sm_cycles_active": active,
        "gpm_mma_cycles_active": round(active * tensor),
        "gpm_fp64_cycles_active": round(active * fp64),
        "gpm_dmma_cycles_active": 0,
        "gpm_dfma_cycles_active": 0,
    }


def run(*devices: Device, hours: float, gpus: int | None = None, chain: int = 1) -> Run:
    """A run of these devices, all measured."""
    return Run(
        gpu_count=len(devices) if gpus is None else gpus,
        elapsed_s=round(hours * 3600),
        chain_length=chain,
        leases=1,
        devices=devices,
    )


def ramp(top_gib: float, seconds: int, after_s: int = 60) -> np.ndarray:
    """Memory that rises within ten seconds and then stands."""
    at = np.arange(1, seconds + 1)
    return np.clip((at - after_s) / 10, 0, 1) * top_gib * GIB


def beat(seconds: int, phase: float = 0.0, period_s: float = 20.0) -> np.ndarray:
    """A wave between -1 and 1."""
    return np.sin(2 * np.pi * (np.arange(seconds) / period_s + phase))


def training(counted: bool = True) -> Run:
    """A node that works flat out and in step, the fifth of a chain."""
    rng = np.random.default_rng(1)
    wave = beat(600)
    devices = [
        device(
            f"GPU-{i}",
            (97.0,) * 48,
            memory_used_max_bytes=70 * GIB,
            energy_mj=energy(0.85, 48),
            moved=counters(0.9, 0.45) if counted else {},
            series=series(
                utilization_pct=np.clip(97 + rng.normal(0, 0.3, 600), 0, 100),
                memory_utilization_pct=45,
                memory_used_bytes=ramp(70, 600),
                power_mw=600_000 + 50_000 * wave + rng.normal(0, 1000, 600),
                pcie_tx_kb_s=200_000,
                pcie_rx_kb_s=300_000,
                process_count=1,
            ),
        )
        for i in range(8)
    ]
    return run(*devices, hours=48, chain=5)


def serving(counted: bool = True) -> Run:
    """Four replicas that follow the demand of the day."""
    rng = np.random.default_rng(2)
    day = [max(0.0, 25 + 30 * float(np.sin(2 * np.pi * h / 24))) for h in range(48)]
    devices = [
        device(
            f"GPU-{i}",
            tuple(min(100.0, pct * (0.5 + 0.4 * i)) for pct in day),
            memory_used_max_bytes=76 * GIB,
            energy_mj=energy(0.38, 48),
            moved=counters(0.15, 0.04) if counted else {},
            series=series(
                utilization_pct=np.clip(rng.normal(30, 25, 600), 0, 100),
                memory_utilization_pct=np.full(600, 27.0),
                memory_used_bytes=ramp(3, 600),
                power_mw=250_000 + rng.normal(0, 60_000, 600),
                pcie_tx_kb_s=5_000,
                pcie_rx_kb_s=8_000,
                process_count=2,
            ),
        )
        for i in range(4)
    ]
    return run(*devices, hours=48)


def idle() -> Run:
    """A GPU that somebody holds and hardly uses."""
    held = device(
        hourly_pct=(0.0,) * 10,
        memory_used_max_bytes=GIB // 2,
        energy_mj=energy(0.1, 10),
        moved=counters(0.0001, 0.0),
        series=series(
            utilization_pct=0, memory_utilization_pct=0, memory_used_bytes=0, power_mw=70_000, pcie_tx_kb_s=100,
            pcie_rx_kb_s=100, process_count=0,
        ),
    )  # fmt: skip
    return run(held, hours=10)


def disguised(counted: bool = True) -> Run:
    """Training that paces its load, staggers its GPUs and takes its memory in small steps, to look like serving."""
    shown = serving(counted=False)
    devices = [
        Device(**{
            **{name: getattr(one, name) for name in Device.__slots__},
            "energy_mj": energy(0.5, 48),
            "moved": counters(0.35, 0.35) if counted else {},
        })
        for one in shown.devices
    ]  # fmt: skip
    return run(*devices, hours=48)


def batch_inference() -> Run:
    """Benign inference in large batches: full, steady, in step, and its memory taken at once."""
    rng = np.random.default_rng(3)
    wave = beat(600)
    devices = [
        device(
            f"GPU-{i}",
            (99.0,) * 7,
            memory_used_max_bytes=30 * GIB,
            energy_mj=energy(0.87, 7),
            series=series(
                utilization_pct=np.clip(99.7 + rng.normal(0, 0.2, 600), 0, 100),
                memory_utilization_pct=15,
                memory_used_bytes=ramp(10.5, 600, after_s=5),
                power_mw=610_000 + 20_000 * wave + rng.normal(0, 500, 600),
                pcie_tx_kb_s=2_000,
                pcie_rx_kb_s=5_500,
                process_count=1,
            ),
        )
        for i in range(3)
    ]
    return run(*devices, hours=7)
