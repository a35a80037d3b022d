"""The ceilings that the corpus is built around, as they were when its expectations were written.

Instances lie just below and just above a threshold. If the generator asked the registry for the ceilings, they would
follow every change of it and notice none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from slurm_trace.analysis.ladder import Cards
from slurm_trace.analysis.rates import BASES, Rates
from slurm_trace.analysis.release import DEFAULT_GRACE_S, DEFAULT_KILL_WAIT_S
from slurm_trace.analysis.thresholds import Thresholds
from slurm_trace.analysis.verdicts import Question

ANCHORS_FILE = "anchors.json"
SCHEMA = "slurm-trace/corpus-anchors/1"

UNTYPED = ""
"""A GPU without a type, a core without a model: the largest there is."""

GPU_TYPES = (
    UNTYPED, "p100", "v100", "t4", "a100", "a100_80gb", "l40s", "rtx_4090", "h100", "h200", "gh200", "b200", "gb200",
    "mi210", "mi250x", "mi300x", "tesla", "our_card",
    "a100_1g.5gb", "a30_1g.6gb", "a30_2g.12gb", "a30_4g.24gb", "1g.10gb", "7g.80gb", "h100_1g.20gb",
    "nvidia_h100_80gb_hbm3", "nvidia_h100_80gb_hbm3_1g.10gb", "nvidia_h100_80gb_hbm3_3g.40gb",
    "nvidia_h100_80gb_hbm3_9g.99gb",
)  # fmt: skip
SKUS = (
    "nvidia-h100-sxm5-80gb",
    "nvidia-a100-sxm4-80gb",
    "nvidia-v100-sxm2",
    "nvidia-b200",
    "nvidia-a30",
    "nvidia-t4",
)
OTHER_GRES = ("hpu", "tpu", "npu", "dcu", "fpga", "abacus")
DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": ("", "1g.10gb"),
    "NVIDIA H200": ("",),
    "NVIDIA A100-SXM4-80GB": ("",),
}
"""What drivers call the cards of which counters speak, and profiles of their MIG instances ("": the whole card)."""
CPU_MODELS = (UNTYPED, "AMD EPYC 7763 64-Core Processor", "Intel(R) Xeon(R) Platinum 8480+", "Neoverse-V2")


@dataclass(frozen=True, slots=True)
class Anchors:
    """Ceilings in op/s by what the record or the profile says, by basis; and the constants around them.

    Attributes:
        counted: By driver name, MIG profile and basis: the ceiling (`flop_s`), and operations in a thousand cycles.
        complete_through: First moment for which the registry does not speak.
        limits: The largest counts that are not known: `gpus_per_node`, `cores_per_node`.
    """

    gpus: Mapping[str, Mapping[str, int]]
    skus: Mapping[str, Mapping[str, int]]
    others: Mapping[str, Mapping[str, int]]
    cores: Mapping[str, Mapping[str, int]]
    counted: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]
    thresholds: Mapping[str, int]
    margin: str
    complete_through: int
    limits: Mapping[str, int]
    grace_s: int
    kill_wait_s: int

    def gpu(self, label: str = UNTYPED, basis: str = BASES[0]) -> int:
        """Ceiling of a GPU whose record names this type."""
        return self.gpus[label][basis]

    def core(self, model: str = UNTYPED, basis: str = BASES[0]) -> int:
        """Ceiling of a core of this model."""
        return self.cores[model][basis]

    @property
    def as_of(self) -> int:
        """Moment at which all sites of the corpus are looked at."""
        return self.complete_through - 3600


@cache
def load_anchors() -> Anchors:
    """The anchors that belong to the committed expectations."""
    text = files("slurm_trace.schema.corpus").joinpath(ANCHORS_FILE).read_text(encoding="utf-8")
    return Anchors(**{name: value for name, value in json.loads(text).items() if name != "schema"})


def work_out() -> dict[str, Any]:
    """The anchors as the registry has them now, in the form of the file."""
    rates = Rates.load(None)

    def card(label: str | None, gres: str = "gpu", sku: str | None = None) -> dict[str, int]:
        found = rates.resolve(label, gres_name=gres, sku=sku)
        return {basis: found.ceiling_flop_s(basis) for basis in BASES}

    return {
        "schema": SCHEMA,
        "gpus": {label: card(label or None) for label in GPU_TYPES},
        "skus": {sku: card(None, sku=sku) for sku in SKUS},
        "others": {name: card(None, gres=name) for name in OTHER_GRES},
        "cores": {
            model: {basis: rates.cpu_core_ops_s(model or None, basis)[1] for basis in BASES}
            for model in CPU_MODELS
        },
        "counted": {
            name: {
                profile: {basis: _counted(Cards(rates, basis, "busy"), name, profile) for basis in BASES}
                for profile in profiles
            }
            for name, profiles in DRIVER_NAMES.items()
        },
        "thresholds": {threshold.id: threshold.flop for threshold in Thresholds.load(None)},
        "margin": str(Question(1, BASES[0]).margin),
        "complete_through": rates.complete_through,
        "limits": {"gpus_per_node": rates.max_gpus_per_node, "cores_per_node": rates.max_cores_per_node},
        "grace_s": DEFAULT_GRACE_S,
        "kill_wait_s": DEFAULT_KILL_WAIT_S,
    }


def _counted(cards: Cards, name: str, profile: str) -> dict[str, int]:
    card = cards.card(name, profile or None, None)
    if card is None:
        raise ValueError(f"the registry has no cycles of {name}")
    return {
        "flop_s": math.ceil(card.flop_s),
        "whole": card.whole,
        "tensor": card.tensor,
        "dmma": card.dmma,
        "vector": card.vector,
    }
