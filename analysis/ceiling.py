"""The most operations a second a device can do.

A datasheet peak is no upper bound: it may be quoted below the clock the device runs at, and it leaves out what the
vector pipes do beside the matrix pipe.

Ceiling = (matrix operations a clock + vector limit) x units x maximum clock, never below the datasheet. All exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

BASES = ("max_any_op", "max_fp_sparse", "max_fp_dense", "bf16_dense")
"""What counts as an operation, widest first. The last is an estimate and never a bound."""

_INTEGER = frozenset({"int8", "int4"})
_HALF = ("bf16", "fp16")
_TERA = 10**12
_MEGA = 10**6

Number = int | Decimal


@dataclass(frozen=True, slots=True)
class Rated:
    """Figures by precision, without and with 2:4 sparsity."""

    dense: Mapping[str, Number]
    sparse: Mapping[str, Number]

    def largest(self, basis: str) -> Fraction:
        """The largest figure that a basis counts; 0 if there is none."""
        counted = (
            [*self.dense.items()] if basis == "max_fp_dense" else [*self.dense.items(), *self.sparse.items()]
        )
        return Fraction(
            max((n for name, n in counted if basis == "max_any_op" or name not in _INTEGER), default=0)
        )

    def over(self, other: Rated) -> Fraction:
        """The largest ratio of a figure to the other's of the same precision; 0 if they share none."""
        pairs = ((self.dense, other.dense), (self.sparse, other.sparse))
        ratios = [Fraction(a[name]) / Fraction(b[name]) for a, b in pairs for name in a if name in b]
        return max(ratios, default=Fraction(0))

    def half(self) -> Fraction:
        """The dense half-precision figure; 0 if there is none."""
        return Fraction(max((self.dense.get(name, 0) for name in _HALF), default=0))


@dataclass(frozen=True, slots=True)
class Architecture:
    """Operations a clock and unit. `vector_any` counts integer dot products, `vector_fp` floating point alone."""

    id: str
    matrix: Rated
    vector_fp: int
    vector_any: int
    left_out: Mapping[str, int]
    verified: bool

    def vector(self, basis: str) -> int:
        """What the vector pipes can do beside the matrix pipe."""
        return max(self.vector_any, self.vector_fp) if basis == "max_any_op" else self.vector_fp


@dataclass(frozen=True, slots=True)
class DeviceRate:
    """One device of the registry: its figures, its names, and where they come from.

    Attributes:
        kind: The kind of generic resource it is (`gpu`, `tpu`, `npu`, ...).
        counted_as: What one device is: card, package, GCD, chip.
        units: SMs, compute units or cores.
        sheet: Datasheet rates in tera-operations a second.
        allowance_fp: Vector rate beside the datasheet rate where the units are not known (Tera-op/s).
        allowance_any: The same with integer operations.
        bounded_by: Device whose ceiling this one can't pass.
        entry: The entry as it stands in the registry.
    """

    id: str
    vendor: str
    name: str
    kind: str
    counted_as: str
    architecture: Architecture | None
    units: int | None
    max_clock_mhz: int | None
    sheet_clock_mhz: int | None
    sheet: Rated
    allowance_fp: Number
    allowance_any: Number
    bounded_by: str | None
    nvml_names: tuple[str, ...]
    slurm_types: tuple[str, ...]
    verified: bool
    entry: Mapping[str, Any]

    def allowance(self, basis: str) -> Fraction:
        """Vector rate to add to the datasheet rate (Tera-op/s)."""
        any_op = max(self.allowance_any, self.allowance_fp)
        return Fraction(any_op if basis == "max_any_op" else self.allowance_fp)

    @classmethod
    def of(cls, entry: Mapping[str, Any], architecture: Architecture | None) -> DeviceRate:
        """A device from its registry entry."""
        sheet = entry.get("datasheet", {})
        rates = sheet.get("tera_ops_s", {"dense": {}, "sparse": {}})
        allowance = entry.get("vector_allowance_tera_ops_s", {"fp": 0, "any": 0})
        return cls(
            id=entry["id"],
            vendor=entry["vendor"],
            name=entry["name"],
            kind=entry["kind"],
            counted_as=entry["counted_as"],
            architecture=architecture,
            units=entry.get("units"),
            max_clock_mhz=entry.get("max_clock_mhz"),
            sheet_clock_mhz=sheet.get("clock_mhz"),
            sheet=Rated(rates["dense"], rates["sparse"]),
            allowance_fp=allowance["fp"],
            allowance_any=allowance["any"],
            bounded_by=entry.get("bounded_by"),
            nvml_names=tuple(entry["nvml_names"]),
            slurm_types=tuple(entry["slurm_types"]),
            verified=entry["verified"] and (architecture is None or architecture.verified),
            entry=entry,
        )


def architecture_of(entry: Mapping[str, Any]) -> Architecture:
    """An architecture from its registry entry."""
    matrix, vector = entry["matrix_ops_per_clock"], entry["vector_ops_per_clock"]
    return Architecture(
        id=entry["id"],
        matrix=Rated(matrix["dense"], matrix["sparse"]),
        vector_fp=vector["fp"],
        vector_any=vector["any"],
        left_out=entry.get("left_out_ops_per_clock", {}),
        verified=entry["verified"],
    )


def own_ceiling(device: DeviceRate, basis: str, clock_allowance: Fraction) -> Fraction:
    """The ceiling that follows from a device's own figures, in op/s; 0 if it has none.

    Args:
        device: The device; what bounds it from elsewhere is the caller's.
        basis: One of BASES.
        clock_allowance: Factor on a datasheet clock or rate where no maximum clock is known.
    """
    if basis == "bf16_dense":
        bound = own_ceiling(device, "max_fp_dense", clock_allowance)
        return min(_half_precision(device, clock_allowance) or bound, bound)
    return max(
        _from_pipes(device, basis, clock_allowance),
        _from_sheet(device, basis, clock_allowance),
    )


def _unit_hz(device: DeviceRate, clock_allowance: Fraction) -> Fraction | None:
    """Units x highest clock, as far as the figures go; None if nothing tells."""
    if device.units is not None and device.max_clock_mhz is not None:
        return Fraction(device.units * device.max_clock_mhz * _MEGA)
    if device.units is not None and device.sheet_clock_mhz is not None:
        return device.units * device.sheet_clock_mhz * _MEGA * clock_allowance
    if device.architecture is None:
        return None
    implied = device.sheet.over(device.architecture.matrix)
    return implied * _TERA * clock_allowance if implied else None


def clock_hz(device: DeviceRate, clock_allowance: Fraction) -> Fraction | None:
    """The highest clock that a device's ceiling rests on; None if nothing tells, or its units are not known."""
    unit_hz = _unit_hz(device, clock_allowance)
    return None if unit_hz is None or device.units is None else unit_hz / device.units


def rated_clock_hz(device: DeviceRate, clock_allowance: Fraction) -> Fraction | None:
    """The highest clock that a device's own ceiling covers, whether its units are known or not; None: nothing tells.

    Where only the clock of a datasheet is known this is that clock with the allowance, as it is in the ceiling.
    """
    if device.max_clock_mhz is not None:
        return Fraction(device.max_clock_mhz * _MEGA)
    if device.sheet_clock_mhz is not None:
        return device.sheet_clock_mhz * _MEGA * clock_allowance
    return clock_hz(device, clock_allowance)


def overclocked(device: DeviceRate, clock_allowance: Fraction, clock_mhz: int) -> Fraction:
    """By how much a clock passes the one that a device's own ceiling covers; 1 where it does not, or nothing tells."""
    rated = rated_clock_hz(device, clock_allowance)
    return Fraction(1) if not rated else max(Fraction(1), clock_mhz * _MEGA / rated)


def _from_pipes(device: DeviceRate, basis: str, clock_allowance: Fraction) -> Fraction:
    unit_hz = _unit_hz(device, clock_allowance)
    if device.architecture is None or unit_hz is None:
        return Fraction(0)
    pipes = device.architecture
    return (pipes.matrix.largest(basis) + pipes.vector(basis)) * unit_hz


def _from_sheet(device: DeviceRate, basis: str, clock_allowance: Fraction) -> Fraction:
    """The datasheet rate at the highest clock, and with it the vector pipes where they are not known otherwise."""
    rate = device.sheet.largest(basis)
    if device.units is None:
        rate += device.allowance(basis)
    return rate * _TERA * _clock_factor(device, clock_allowance)


def _clock_factor(device: DeviceRate, clock_allowance: Fraction) -> Fraction:
    """How far above the clock of its datasheet a device may run."""
    if device.units is None or device.max_clock_mhz is None:
        return clock_allowance
    if device.sheet_clock_mhz is None:
        return Fraction(1)
    return max(Fraction(device.max_clock_mhz, device.sheet_clock_mhz), Fraction(1))


def _half_precision(device: DeviceRate, clock_allowance: Fraction) -> Fraction | None:
    """Dense half precision as the datasheet quotes it, else as the matrix pipe would give it."""
    if device.sheet.half():
        return device.sheet.half() * _TERA
    unit_hz = _unit_hz(device, clock_allowance)
    if device.architecture is None or unit_hz is None or not device.architecture.matrix.half():
        return None
    return device.architecture.matrix.half() * unit_hz
