"""What the hardware of a scenario really computed: exact, from the numbers as the file writes them."""

from __future__ import annotations

from fractions import Fraction

from slurm_trace.node.devices.profiles import PROFILES
from slurm_trace.node.devices.scenario import TENSOR_PIPES, VECTOR_PIPES, Gpu, Scenario, Unit

# Operations a clock and SM, a fused multiply-add being two: dense tensor pipe by precision, and vector pipes.
# Of the public data sheets: rate / (SMs x clock).
_TENSOR = {
    "A100": {"bf16": 2048, "fp16": 2048, "tf32": 1024, "int8": 4096, "int4": 8192, "fp64": 128},
    "H100": {"bf16": 4096, "fp16": 4096, "tf32": 2048, "fp8": 8192, "int8": 8192, "fp64": 256},
    "B200": {
        "bf16": 8192,
        "fp16": 8192,
        "tf32": 4096,
        "fp8": 16384,
        "int8": 16384,
        "fp4": 32768,
        "fp64": 128,
    },
}
_VECTOR = {"fp64": 128, "fp32": 256, "fp16": 512, "int": 1024}
_SAME = {"GH200": "H100", "VGPU": "H100", "H100-FAST": "H100"}


def operations(scenario: Scenario, start: float | Fraction, end: float | Fraction) -> dict[str, Fraction]:
    """Operations of each card and MIG instance, by UUID, between two seconds of the scenario."""
    found: dict[str, Fraction] = {}
    for gpu in scenario.gpus:
        parts = {unit.uuid: _of_unit(gpu, unit, Fraction(start), Fraction(end)) for unit in gpu.units}
        found.update(parts)
        found[gpu.uuid] = sum(parts.values(), Fraction(0))
    return found


def _of_unit(gpu: Gpu, unit: Unit, start: Fraction, end: Fraction) -> Fraction:
    key = next(key for key, profile in PROFILES.items() if profile is gpu.profile)
    tensor = _TENSOR[_SAME.get(key, key)]
    total = Fraction(0)
    for work in unit.work:
        overlap = min(end, Fraction(work.end)) - max(start, Fraction(work.start))
        if overlap <= 0:
            continue
        precision, sparse = work.text.get("precision", "bf16"), 2 if work.text.get("sparse") == "1" else 1
        rates = dict.fromkeys(TENSOR_PIPES, tensor[precision] * sparse)
        rates.update({pipe: _VECTOR[pipe] for pipe in VECTOR_PIPES})
        clock = Fraction(work.text.get("clock", str(gpu.profile.sm_max_mhz))) * 10**6
        a_clock = sum(
            (Fraction(work.text.get(pipe, "0")) * rate for pipe, rate in rates.items()), Fraction(0)
        )
        total += a_clock * unit.sms * clock * overlap
    return total
