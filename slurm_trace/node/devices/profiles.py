"""Kinds of GPU that a scenario can name: what they are called, what they measure, how they idle.

Figures are of the right order, not measured; a scenario's truth never depends on them except by `sms` and `sm_max_mhz`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """One kind of GPU.

    Attributes:
        power_average: The plain power call gives a mean of 1 s, and field 185 exists.
        module_extra_w: What a superchip draws besides its GPU; 0 where there is no module.
        pcie_counters: Fields 197 and 198 exist.
        utilization_period_s: Sample period of the driver's utilisation.
        virtual: A vGPU: no power, energy, temperature nor PCIe figures.
    """

    name: str
    memory_bytes: int
    sms: int
    sm_max_mhz: int
    memory_clock_mhz: int
    idle_mhz: int
    idle_w: int
    tdp_w: int
    pci_id: int
    energy: bool = True
    gpm: bool = True
    power_average: bool = True
    module_extra_w: int = 0
    pcie_counters: bool = True
    utilization_period_s: float = 0.25
    virtual: bool = False


PROFILES: dict[str, Profile] = {
    "A100": Profile(
        "NVIDIA A100-SXM4-80GB", 85_899_345_920, 108, 1410, 1593, 210, 55, 400, 0x20B210DE,
        gpm=False, power_average=False, pcie_counters=False,
    ),
    "H100": Profile("NVIDIA H100 80GB HBM3", 85_520_809_984, 132, 1980, 2619, 345, 70, 700, 0x233010DE),
    "H100-FAST": Profile("NVIDIA H100 80GB HBM3", 85_520_809_984, 132, 2115, 2619, 345, 70, 700, 0x233010DE),
    "B200": Profile("NVIDIA B200", 192_265_846_784, 148, 1965, 3996, 120, 140, 1000, 0x290110DE),
    "GH200": Profile(
        "NVIDIA GH200 120GB", 102_005_473_280, 132, 1980, 2619, 345, 80, 900, 0x234210DE, module_extra_w=150
    ),
    "VGPU": Profile(
        "NVIDIA H100-80C", 85_520_809_984, 132, 1980, 2619, 345, 0, 0, 0x233010DE,
        energy=False, gpm=False, power_average=False, pcie_counters=False, virtual=True,
    ),
}  # fmt: skip
