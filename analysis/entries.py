"""Registry entries → devices, MIG tables and CPU cores, with the references between them checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from slurm_trace.analysis import registry
from slurm_trace.analysis.ceiling import BASES, DeviceRate, architecture_of, own_ceiling
from slurm_trace.analysis.labels import plain_profile


@dataclass(frozen=True, slots=True)
class MigTable:
    """Units of a slice by profile; None where a profile exists and its size is not known."""

    sms: Mapping[str, int | None]
    verified: bool

    def lists(self, profile: str) -> bool:
        """Whether the card has this profile."""
        return profile in self.sms or plain_profile(profile) in self.sms

    def size(self, profile: str) -> int | None:
        """Units of the slice; None for an unlisted profile and one of unknown size."""
        return self.sms.get(profile, self.sms.get(plain_profile(profile)))


@dataclass(frozen=True, slots=True)
class CpuCore:
    """A class of CPU cores. Operations a clock are those of all ports that can work at once."""

    id: str
    ops_per_clock: Mapping[str, int]
    max_clock_mhz: int
    patterns: tuple[re.Pattern[str], ...]
    verified: bool
    entry: registry.Entry

    def fits(self, model: str) -> bool:
        """Whether a model name is of this class."""
        return any(pattern.search(model) for pattern in self.patterns)

    def ceiling_ops_s(self, basis: str) -> int:
        """Operations a second of one core at the highest clock of its class."""
        kind = {"max_any_op": "any", "bf16_dense": "bf16"}.get(basis, "fp")
        return self.ops_per_clock[kind] * self.max_clock_mhz * 10**6


def read_devices(sections: registry.Sections, overlay: Path | None) -> dict[str, DeviceRate]:
    """All devices by id; InputProblem where an entry refers to nothing or bounds nothing."""
    architectures = {i: architecture_of(entry) for i, entry in sections["architectures"].items()}
    devices: dict[str, DeviceRate] = {}
    for device_id, entry in sections["devices"].items():
        named = entry.get("architecture")
        if named is not None and named not in architectures:
            raise registry.entry_problem(
                overlay,
                "devices",
                device_id,
                f"no architecture {named!r}",
                "add it or name one that `rates` lists",
            )
        devices[device_id] = DeviceRate.of(entry, architectures[named] if named else None)
    for device_id in devices:
        seen = [device_id]
        while (above := devices[seen[-1]].bounded_by) is not None:
            if above not in devices or above in seen:
                fault = "runs in a circle" if above in seen else "is no device of the registry"
                raise registry.entry_problem(
                    overlay,
                    "devices",
                    device_id,
                    f"bounded_by {above!r} {fault}",
                    "name a device with figures",
                )
            seen.append(above)
        if not any(own_ceiling(devices[i], BASES[0], Fraction(1)) for i in seen):
            raise registry.entry_problem(
                overlay,
                "devices",
                device_id,
                "no ceiling follows from it",
                "give units with an architecture and a clock, datasheet rates, or bounded_by",
            )
    return devices


def read_mig_tables(
    sections: registry.Sections, devices: Mapping[str, DeviceRate], overlay: Path | None
) -> dict[str, MigTable]:
    """MIG tables by device id."""
    tables: dict[str, MigTable] = {}
    for table_id, entry in sections["mig_profiles"].items():
        for device_id in entry["devices"]:
            if device_id not in devices:
                raise registry.entry_problem(
                    overlay, "mig_profiles", table_id, f"no device {device_id!r}", "add it or correct the id"
                )
            tables[device_id] = MigTable(entry["sms"], entry["verified"])
    return tables


def read_cpu_cores(sections: registry.Sections, overlay: Path | None) -> dict[str, CpuCore]:
    """All classes of CPU cores by id."""
    cores: dict[str, CpuCore] = {}
    for core_id, entry in sections["cpu_cores"].items():
        try:
            patterns = tuple(re.compile(p, re.IGNORECASE) for p in entry["model_patterns"])
        except re.error as error:
            raise registry.entry_problem(
                overlay, "cpu_cores", core_id, f"model_patterns: {error}", "write a regular expression"
            ) from error
        cores[core_id] = CpuCore(
            core_id, entry["ops_per_clock"], entry["max_clock_mhz"], patterns, entry["verified"], entry
        )
    return cores
