"""All sampled fields in one table. Samplers, spools, the store and docs/FIELDS.md follow it, by name and by order.

A reading is a tuple in the order of `SAMPLE_FIELDS`, a counter read one in the order of `COUNTER_FIELDS`.
Values are whole numbers in the unit that the name ends with; None is "no value", never 0.

`python -m slurm_trace.node.fields` prints docs/FIELDS.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_trace.node.errors import REASONS

GAUGE, COUNTER = "gauge", "counter"

# What a value speaks of. "gpu" and "module" cannot be derived from each other; "card" holds for every part of
# the card at once (a clock, a temperature), so that a MIG instance may show its card's value.
GPU, MODULE, CARD, INSTANCE = "gpu", "module", "card", "instance"


@dataclass(frozen=True)
class Field:
    """One sampled quantity.

    Attributes:
        name: Column name; ends with the unit.
        unit: Unit in words.
        kind: `gauge` (a value of the moment) or `counter` (grows until the driver or the card restarts).
        scope: What the value speaks of: `gpu`, `module`, `card`, or `instance` (the card or the MIG instance).
        maximum: Largest possible value, both ends included from 0; above it the value is None and counted.
        calls: NVML calls that can give it, the preferred one first.
        note: What a reader of the figure must know.
    """

    name: str
    unit: str
    kind: str
    scope: str
    maximum: int
    calls: tuple[str, ...]
    note: str = ""


_U63 = 2**63 - 1
_POWER_MAX_MW = 20_000_000
_CLOCK_MAX_MHZ = 10_000
_LINK_MAX_KB_S = 1_000_000_000

UTILIZATION = Field(
    "utilization_pct", "percent", GAUGE, GPU, 100, ("nvmlDeviceGetUtilizationRates",),
    "share of the driver's last sample period (1/6 to 1 s) with any kernel resident: says nothing about the work "
    "done in it, nor about the rest of the interval; does not exist in MIG mode",
)  # fmt: skip
MEMORY_UTILIZATION = Field(
    "memory_utilization_pct", "percent", GAUGE, GPU, 100, ("nvmlDeviceGetUtilizationRates",),
    "share of the last sample period with device memory being read or written",
)  # fmt: skip
MEMORY_USED = Field(
    "memory_used_bytes", "bytes", GAUGE, INSTANCE, 2**50,
    ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
    "without what the driver reserves, except where only the older call exists",
)  # fmt: skip
POWER = Field(
    "power_mw", "milliwatts", GAUGE, GPU, _POWER_MAX_MW,
    ("nvmlDeviceGetFieldValues 185, scope GPU", "nvmlDeviceGetPowerUsage"),
    "mean of the last second where field 185 answers; else the driver's own reading, a mean of 1 s on Ampere and "
    "later except GA100, of the moment on others. The sensors of A100 and H100 see a quarter of the time",
)  # fmt: skip
POWER_INSTANT = Field(
    "power_instant_mw", "milliwatts", GAUGE, GPU, _POWER_MAX_MW, ("nvmlDeviceGetFieldValues 186, scope GPU",),
    "of the moment",
)  # fmt: skip
MODULE_POWER = Field(
    "module_power_mw", "milliwatts", GAUGE, MODULE, _POWER_MAX_MW,
    ("nvmlDeviceGetFieldValues 186, scope module", "nvmlDeviceGetPowerUsage on Grace Hopper"),
    "GPU, CPU and memory of a superchip together",
)  # fmt: skip
ENERGY = Field(
    "energy_mj", "millijoules", COUNTER, GPU, _U63,
    ("nvmlDeviceGetFieldValues 83", "nvmlDeviceGetTotalEnergyConsumption"),
    "since the driver was loaded; may stand still for 10 to 100 ms; not on vGPU nor before Volta",
)  # fmt: skip
SM_CLOCK = Field(
    "sm_clock_mhz", "MHz", GAUGE, CARD, _CLOCK_MAX_MHZ, ("nvmlDeviceGetClockInfo SM",), "of the moment"
)
MEMORY_CLOCK = Field(
    "memory_clock_mhz",
    "MHz",
    GAUGE,
    CARD,
    _CLOCK_MAX_MHZ * 2,
    ("nvmlDeviceGetClockInfo MEM",),
    "of the moment",
)
TEMPERATURE = Field(
    "temperature_c", "degrees Celsius", GAUGE, CARD, 150,
    ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
)  # fmt: skip
PCIE_TX = Field(
    "pcie_tx_kb_s", "1,000 bytes a second", GAUGE, GPU, _LINK_MAX_KB_S,
    ("nvmlDeviceGetFieldValues 197, difference of two readings", "nvmlDeviceGetPcieThroughput"),
    "mean since the last reading; where the byte counter is missing, a snapshot of 20 ms",
)  # fmt: skip
PCIE_RX = Field(
    "pcie_rx_kb_s", "1,000 bytes a second", GAUGE, GPU, _LINK_MAX_KB_S,
    ("nvmlDeviceGetFieldValues 198, difference of two readings", "nvmlDeviceGetPcieThroughput"),
    "mean since the last reading; where the byte counter is missing, a snapshot of 20 ms",
)  # fmt: skip
THROTTLE = Field(
    "throttle_reasons", "bits", GAUGE, CARD, _U63,
    ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    "nvmlClocksEventReason… of nvml.h: 1 idle, 4 power cap, 8 hardware slowdown, 32 and 64 heat, 128 power brake",
)  # fmt: skip
PROCESSES = Field(
    "process_count", "processes", GAUGE, INSTANCE, 100_000, ("nvmlDeviceGetComputeRunningProcesses_v3",),
    "compute processes with a context",
)  # fmt: skip
PCIE_TX_BYTES = Field(
    "pcie_tx_bytes", "bytes", COUNTER, GPU, _U63, ("nvmlDeviceGetFieldValues 197",),
    "only where the driver gives 64 bits: a counter of 32 wraps unseen",
)  # fmt: skip
PCIE_RX_BYTES = Field(
    "pcie_rx_bytes", "bytes", COUNTER, GPU, _U63, ("nvmlDeviceGetFieldValues 198",),
    "only where the driver gives 64 bits: a counter of 32 wraps unseen",
)  # fmt: skip
SM_CLOCK_MAX = Field(
    "sm_clock_max_mhz", "MHz", GAUGE, CARD, _CLOCK_MAX_MHZ, ("nvmlDeviceGetMaxClockInfo SM",),
    "a clock offset raises it; above the registry's it raises bounds",
)  # fmt: skip
MEMORY_CLOCK_MAX = Field(
    "memory_clock_max_mhz", "MHz", GAUGE, CARD, _CLOCK_MAX_MHZ * 2, ("nvmlDeviceGetMaxClockInfo MEM",)
)


def _cycles(name: str, metric: int, what: str) -> Field:
    return Field(
        name, "cycles", COUNTER, INSTANCE, _U63, (f"nvmlGpmMetricsGet {metric}",),
        f"{what}, since reboot; Hopper and later",
    )  # fmt: skip


# Metric number → field. The numbers are metrics of nvmlGpmMetricsGet; as *field values* the same numbers mean
# something else (248 to 250 are NVLink error bins there).
GPM_FIELDS: dict[int, Field] = {
    248: _cycles("gpm_sm_cycles_elapsed", 248, "SM cycles"),
    249: _cycles("gpm_sm_cycles_active", 249, "SM cycles with a warp resident"),
    250: _cycles("gpm_mma_cycles_active", 250, "cycles of any tensor pipe"),
    251: _cycles("gpm_dmma_cycles_active", 251, "tensor pipe, DMMA"),
    252: _cycles("gpm_hmma_cycles_active", 252, "tensor pipe, HMMA"),
    253: _cycles("gpm_imma_cycles_active", 253, "tensor pipe, IMMA"),
    254: _cycles("gpm_dfma_cycles_active", 254, "tensor pipe, DFMA"),
    255: Field(
        "gpm_pcie_tx_bytes", "bytes", COUNTER, INSTANCE, _U63, ("nvmlGpmMetricsGet 255",), "since reboot"
    ),
    256: Field(
        "gpm_pcie_rx_bytes", "bytes", COUNTER, INSTANCE, _U63, ("nvmlGpmMetricsGet 256",), "since reboot"
    ),
    257: _cycles("gpm_integer_cycles_active", 257, "integer pipe"),
    258: _cycles("gpm_fp64_cycles_active", 258, "FP64 pipe"),
    259: _cycles("gpm_fp32_cycles_active", 259, "FP32 pipe"),
    260: _cycles("gpm_fp16_cycles_active", 260, "FP16 pipe, without tensor"),
}

SAMPLE_FIELDS: tuple[Field, ...] = (
    UTILIZATION, MEMORY_UTILIZATION, MEMORY_USED, POWER, POWER_INSTANT, MODULE_POWER, ENERGY, SM_CLOCK,
    MEMORY_CLOCK, TEMPERATURE, PCIE_TX, PCIE_RX, THROTTLE, PROCESSES,
)  # fmt: skip
COUNTER_FIELDS: tuple[Field, ...] = (
    ENERGY, PCIE_TX_BYTES, PCIE_RX_BYTES, SM_CLOCK_MAX, MEMORY_CLOCK_MAX, *GPM_FIELDS.values(),
)  # fmt: skip

# Field name → nvmlSamplingType: what the driver keeps in a ring buffer, with its own time stamps.
RINGS: dict[str, int] = {
    "utilization_pct": 1,
    "memory_utilization_pct": 2,
    "power_mw": 0,
    "module_power_mw": 7,
    "sm_clock_mhz": 5,
    "memory_clock_mhz": 6,
}

SAMPLE_NAMES: tuple[str, ...] = tuple(field.name for field in SAMPLE_FIELDS)
COUNTER_NAMES: tuple[str, ...] = tuple(field.name for field in COUNTER_FIELDS)
FIELDS: dict[str, Field] = {field.name: field for field in (*SAMPLE_FIELDS, *COUNTER_FIELDS)}

# Numbers that drivers use for "no value", in 16, 32 and 64 bits, and the double 2^63 that a tool made of one.
SENTINELS = frozenset({0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1})

# Up to here no value is one of those, in a field of more than 16 bits.
PLAIN = 0x7FFF_FFFE

# 16 bits hold true values of wide fields: 65,535 mW is a power.
WIDE_SENTINELS = SENTINELS - {0xFFFF}


def invalid(field: Field, value: int) -> str | None:
    """The reason why `value` is none for `field`, or None where it is a value."""
    if 0 <= value <= field.maximum and value not in WIDE_SENTINELS:
        return None
    return "sentinel" if value in SENTINELS else "out_of_range"


def _table(fields: tuple[Field, ...]) -> list[str]:
    lines = ["| field | unit | kind | of | range | from | to know |", "|---|---|---|---|---|---|---|"]
    for field in fields:
        top = "2^63 - 1" if field.maximum == _U63 else f"{field.maximum:,}"
        calls = "; ".join(f"`{call}`" for call in field.calls)
        cells = (f"`{field.name}`", field.unit, field.kind, field.scope, f"0 … {top}", calls, field.note)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def document() -> str:
    """docs/FIELDS.md as it has to be."""
    rings = [f"| `{name}` | {number} |" for name, number in RINGS.items()]
    reasons = [f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
    lines = [
        "# Fields",
        "",
        "Printed by `python -m slurm_trace.node.fields`; change the table there. Values are whole numbers.",
        "A value that was not measured, does not exist or cannot be true is NULL, with a reason; it is never 0.",
        "",
        "`of`: `gpu` the whole GPU · `module` GPU and CPU of a superchip · `card` true for every part of the card ·",
        "`instance` the card, or the MIG instance where the device is one. What is of `gpu` or `module` has no value",
        "on a MIG instance.",
        "",
        "## Read at every interval",
        "",
        *_table(SAMPLE_FIELDS),
        "",
        "## Read at the start and end of a lease, and now and then between",
        "",
        *_table(COUNTER_FIELDS),
        "",
        "## Ring buffers of the driver",
        "",
        "Read by `nvmlDeviceGetSamples`, with the driver's own time stamps in microseconds.",
        "",
        "| field | sampling type |",
        "|---|---|",
        *rings,
        "",
        "## Reasons",
        "",
        "| reason | meaning |",
        "|---|---|",
        *reasons,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    import sys

    sys.stdout.write(document())
