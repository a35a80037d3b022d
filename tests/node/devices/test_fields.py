"""The table of fields, and the document that is printed from it."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest

from slurm_trace.node import fields
from slurm_trace.node.errors import REASONS

ROOT = Path(__file__).parents[3]


def test_the_document_is_what_the_table_prints() -> None:
    printed = (ROOT / "docs" / "FIELDS.md").read_text(encoding="utf-8")
    assert printed == fields.document(), "run: python -m slurm_trace.node.fields > docs/FIELDS.md"


def test_names_are_unique_and_end_with_their_unit() -> None:
    suffixes = {
        "percent": "_pct", "bytes": "_bytes", "milliwatts": "_mw", "millijoules": "_mj", "MHz": "_mhz",
        "degrees Celsius": "_c", "1,000 bytes a second": "_kb_s", "bits": "_reasons", "processes": "_count",
        "cycles": ("_elapsed", "_active"),
    }  # fmt: skip
    for group in (fields.SAMPLE_FIELDS, fields.COUNTER_FIELDS):
        names = [field.name for field in group]
        assert len(set(names)) == len(names)
        for field in group:
            assert field.name.endswith(suffixes[field.unit]), field.name
    assert set(fields.RINGS) <= set(fields.SAMPLE_NAMES)


def test_gpm_numbers_are_those_of_nvidia() -> None:
    named = {
        "SM_CYCLES_ELAPSED": "gpm_sm_cycles_elapsed", "SM_CYCLES_ACTIVE": "gpm_sm_cycles_active",
        "MMA_CYCLES_ACTIVE": "gpm_mma_cycles_active", "DMMA_CYCLES_ACTIVE": "gpm_dmma_cycles_active",
        "HMMA_CYCLES_ACTIVE": "gpm_hmma_cycles_active", "IMMA_CYCLES_ACTIVE": "gpm_imma_cycles_active",
        "DFMA_CYCLES_ACTIVE": "gpm_dfma_cycles_active", "PCIE_TX": "gpm_pcie_tx_bytes", "PCIE_RX": "gpm_pcie_rx_bytes",
        "INTEGER_CYCLES_ACTIVE": "gpm_integer_cycles_active", "FP64_CYCLES_ACTIVE": "gpm_fp64_cycles_active",
        "FP32_CYCLES_ACTIVE": "gpm_fp32_cycles_active", "FP16_CYCLES_ACTIVE": "gpm_fp16_cycles_active",
    }  # fmt: skip
    numbers = {getattr(pynvml, f"NVML_GPM_METRIC_{name}"): field for name, field in named.items()}
    assert numbers == {number: field.name for number, field in fields.GPM_FIELDS.items()}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (fields.UTILIZATION, 0, None),
        (fields.UTILIZATION, 100, None),
        (fields.UTILIZATION, 101, "out_of_range"),
        (fields.UTILIZATION, -1, "out_of_range"),
        (fields.UTILIZATION, 2**63, "sentinel"),
        (fields.TEMPERATURE, 65_535, "sentinel"),
        (fields.POWER, 65_535, None),
        (fields.POWER, 2**32 - 1, "sentinel"),
        (fields.MEMORY_USED, 2**32 - 1, "sentinel"),
        (fields.MEMORY_USED, 2**32, None),
        (fields.ENERGY, 2**64 - 1, "sentinel"),
        (fields.ENERGY, 2**63 - 2, None),
    ],
)
def test_what_is_a_value(field: fields.Field, value: int, reason: str | None) -> None:
    assert fields.invalid(field, value) == reason


def test_reasons_that_the_sources_use_are_explained() -> None:
    folder = Path(fields.__file__).parent / "devices"
    from slurm_trace.node.devices import codes

    assert set(codes._REASONS.values()) | codes.LASTING | codes.DEAD <= set(REASONS)
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    for reason in ("first_read", "counter_restarted", "out_of_range", "sentinel", "other_error", "no_data"):
        assert reason in REASONS
        assert re.search(rf'"{reason}"', text) or reason in ("sentinel",)
