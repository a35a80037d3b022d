"""A spool file of a node at work, an hour long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from slurm_trace.node.spool import SAMPLE
from slurm_trace.node.spool_writer import ChunkRows
from support.spools import UP_S, S, card, counter, samples, spool

GIB = 2**30


def busy_spool(folder: Path, job: int = 1, *, begin: int = 10, end: int = 3610, **changes: Any) -> Path:
    """Two GPUs, one chunk a minute, their counters read at both ends."""
    devices = [card(f"GPU-{i}", memory_total_bytes=80 * GIB, power_limit_mw=700_000) for i in range(2)]
    chunks = []
    for first in range(begin, end, 60):
        times = range(first + 1, first + 61)
        at = np.array(times)
        columns = {
            device.uuid: samples(
                times,
                utilization_pct=(95 + 2 * (-1) ** at).tolist(),
                memory_utilization_pct=40,
                memory_used_bytes=np.clip((at - 40) * GIB, 0, 12 * GIB).tolist(),
                power_mw=(600_000 + 20_000 * np.sin(at / 5)).astype(int).tolist(),
                process_count=1,
            )
            for device in devices
        }
        chunks.append(ChunkRows(SAMPLE, (UP_S + first) * S, (UP_S + first + 60) * S, columns))
    reads = [
        counter(
            at, device.uuid, moment,
            gpm_sm_cycles_elapsed=1000 * at, gpm_sm_cycles_active=900 * at, gpm_mma_cycles_active=360 * at,
            gpm_fp64_cycles_active=0, gpm_dmma_cycles_active=0, gpm_dfma_cycles_active=0,
            pcie_tx_bytes=10**9 * at, pcie_rx_bytes=2 * 10**9 * at,
        )
        for at, moment in ((begin, "start"), (end, "end"))
        for device in devices
    ]  # fmt: skip
    return spool(folder, job, begin=begin, end=end, devices=devices, chunks=chunks, counters=reads, **changes)
