"""The rate registry: which device a label may mean, and the most operations a second it can do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Literal

from slurm_trace.analysis import registry
from slurm_trace.analysis.ceiling import BASES, DeviceRate, overclocked, own_ceiling, rated_clock_hz
from slurm_trace.analysis.entries import CpuCore, read_cpu_cores, read_devices, read_mig_tables
from slurm_trace.analysis.labels import level, split_mig, without_vendor

__all__ = ["BASES", "CpuCore", "DeviceRate", "Rates", "Resolution"]

How = Literal["exact", "alias", "ambiguous", "unknown", "unknown_after_registry"]

AFTER_REGISTRY = "unknown_after_registry"
"""`Resolution.how`, and the class of a CPU core, where a faster device may exist that the registry can't know."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a label may stand for.

    Attributes:
        device_ids: Every device that fits, in the order of the registry.
        ceiling_id: The one with the largest ceiling, every operation counted.
        how: "exact": a driver name or registry id. "alias": a site's word that fits one device. "ambiguous": it fits
            several, or comes without a card. "unknown": it fits none, so the largest device counts.
            "unknown_after_registry": the same for a run that ended when a faster one may have existed: no bound.
        verified: All figures of `ceiling_id` were read in sources that can be looked up.
        mig_profile: The MIG profile the label names.
        ceilings: Largest ceiling of one such device by basis, in op/s.
    """

    device_ids: tuple[str, ...]
    ceiling_id: str
    how: How
    verified: bool
    mig_profile: str | None
    ceilings: Mapping[str, int]

    def ceiling_flop_s(self, basis: str) -> int:
        """Ceiling of one device (or slice) in op/s."""
        return self.ceilings[basis]


class Rates:
    """The merged registry. Answers are cached: a million runs have some thousand labels.

    Attributes:
        digest: SHA-256 over the canonical JSON of all entries, the overlay's included.
        complete_through: Epoch second up to which no faster device is missing (end of that day, UTC).
        inert_gres: Names of generic resources that compute nothing.
        clock_allowance: Factor on a datasheet clock where no maximum clock is known.
        highest_clock_mhz: No GPU runs faster; None: nothing is said of that.
        max_gpus_per_node: The most GPUs one node is taken to hold.
        max_cores_per_node: The most CPU cores one node is taken to hold.
        devices: All devices by id.
        cpu_cores: All classes of CPU cores by id.
        sections: The registry as it was read: section → id → entry.
    """

    def __init__(self, sections: registry.Sections, overlay: Path | None = None) -> None:
        self.sections = sections
        self.digest = registry.digest(sections)
        general = sections["general"]["general"]
        try:
            last_day = date.fromisoformat(general["complete_through"])
        except ValueError as error:
            raise registry.entry_problem(
                overlay, "general", "general", f"complete_through: {error}", "write a date such as 2026-11-30"
            ) from error
        midnight = datetime(last_day.year, last_day.month, last_day.day, tzinfo=UTC) + timedelta(days=1)
        self.complete_through = int(midnight.timestamp())
        self.inert_gres = frozenset(name for name, e in sections["gres"].items() if e["kind"] == "none")
        self.max_gpus_per_node: int = general["max_gpus_per_node"]
        self.max_cores_per_node: int = general["max_cores_per_node"]
        self.clock_allowance = Fraction(general["clock_allowance"])
        self.highest_clock_mhz: int | None = general.get("highest_clock_mhz")
        self.devices = read_devices(sections, overlay)
        self._mig = read_mig_tables(sections, self.devices, overlay)
        self.cpu_cores = read_cpu_cores(sections, overlay)
        labels = [(d.id, (*d.nvml_names, d.id)) for d in self.devices.values()]
        self._exact = _index((i, level(name)) for i, names in labels for name in names)
        self._exact_bare = _index((i, without_vendor(level(name))) for i, names in labels for name in names)
        self._words = _index(
            (d.id, without_vendor(level(word))) for d in self.devices.values() for word in d.slurm_types
        )
        self._ceilings: dict[tuple[str, str, int], Fraction] = {}
        self._resolved: dict[tuple[str | None, str, str | None, bool], Resolution] = {}
        self._cores: dict[tuple[str | None, str], tuple[str, int, bool]] = {}

    @classmethod
    def load(cls, overlay: Path | None = None) -> Rates:
        """The built-in registry with a site's own entries on top.

        Raises:
            InputProblem: The overlay can't be read, has the wrong form, or refers to what does not exist.
        """
        sections = registry.load(registry.RATE_FILES, registry.RATE_SECTIONS, overlay)
        return cls(sections, overlay)

    def device(self, device_id: str) -> DeviceRate:
        """A device by its id (KeyError if there is none)."""
        return self.devices[device_id]

    # Ceilings

    def ceiling_ops_s(self, device_id: str, basis: str, sms: int | None = None, clock_mhz: int = 0) -> int:
        """Ceiling of a device in op/s, rounded up.

        Args:
            device_id: The device.
            basis: One of BASES.
            sms: So many of its units only.
            clock_mhz: A clock that it may run at. It only ever raises the ceiling.
        """
        return math.ceil(self.ceiling(device_id, basis, clock_mhz) * self._share(device_id, sms))

    def ceiling(self, device_id: str, basis: str, clock_mhz: int = 0) -> Fraction:
        """The same of the whole device, exact."""
        key = (device_id, basis, clock_mhz)
        if key not in self._ceilings:
            device = self.devices[device_id]
            own = own_ceiling(device, basis, self.clock_allowance)
            own *= overclocked(device, self.clock_allowance, clock_mhz)
            other = self.ceiling(device.bounded_by, basis, clock_mhz) if device.bounded_by else Fraction(0)
            self._ceilings[key] = max(own, other)
        return self._ceilings[key]

    def rated_clock_mhz(self, device_id: str) -> Fraction | None:
        """The highest clock that the ceiling of a device covers; None if nothing tells."""
        device = self.devices[device_id]
        hz = rated_clock_hz(device, self.clock_allowance)
        if hz is None and device.bounded_by:
            return self.rated_clock_mhz(device.bounded_by)
        return None if hz is None else hz / 10**6

    def max_device(self, basis: str, gres_name: str = "gpu") -> str:
        """The device with the largest ceiling among those that a generic resource of this name can be."""
        return max(self._of_gres(gres_name), key=lambda i: self.ceiling(i, basis))

    def _share(self, device_id: str, sms: int | None) -> Fraction:
        units = self.devices[device_id].units
        return Fraction(1) if sms is None or units is None else Fraction(min(sms, units), units)

    # MIG

    def mig_sms(self, device_id: str | None, profile: str) -> int | None:
        """Units of a MIG slice; the largest over all cards with this profile if the card is None.

        None: not listed, or of unknown size; the whole card counts then.
        """
        if device_id is not None:
            table = self._mig.get(device_id)
            return None if table is None else table.size(profile)
        sizes = [table.size(profile) for table in self._mig.values() if table.lists(profile)]
        known = [size for size in sizes if size is not None]
        return max(known) if known and len(known) == len(sizes) else None

    def mig_ceiling_ops_s(self, profile: str, device_id: str | None, basis: str) -> int:
        """Ceiling of a MIG slice in op/s.

        Args:
            profile: Such as `1g.10gb`.
            device_id: The card; None: the largest over the cards with this profile, else the largest card there is.
            basis: One of BASES.
        """
        cards = [device_id] if device_id is not None else self._with_profile(profile, self._of_gres("gpu"))
        return max(self.slice_ops_s(card, profile, basis) for card in cards)

    def slice_ops_s(self, device_id: str, profile: str | None, basis: str, clock_mhz: int = 0) -> int:
        """Ceiling of a slice of a device in op/s, of all of it without a profile (see `ceiling_ops_s`)."""
        sms = self.mig_sms(device_id, profile) if profile else None
        return self.ceiling_ops_s(device_id, basis, sms, clock_mhz)

    def _with_profile(self, profile: str, candidates: tuple[str, ...]) -> tuple[str, ...]:
        """Those candidates that have the profile; all of them if none has."""
        return tuple(i for i in candidates if i in self._mig and self._mig[i].lists(profile)) or candidates

    # Labels

    def resolve(
        self,
        type_text: str | None,
        gres_name: str = "gpu",
        sku: str | None = None,
        ended_at: int | None = None,
    ) -> Resolution:
        """What a type of a generic resource may stand for.

        Args:
            type_text: Slurm's type, free text; None if there is none.
            gres_name: Name of the generic resource.
            sku: The card by inventory: a registry id or a driver name. A type that contradicts it widens the answer.
            ended_at: When the run let go of it; None leaves the date of the registry out of it.
        """
        late = ended_at is not None and ended_at > self.complete_through
        key = (type_text, gres_name, sku, late)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(type_text, gres_name, sku, late)
        return self._resolved[key]

    def _resolve(self, type_text: str | None, gres_name: str, sku: str | None, late: bool) -> Resolution:
        possible = self._of_gres(gres_name)
        card, profile = split_mig(type_text) if type_text else (None, None)
        listed = gres_name.lower() in self.sections["gres"]
        fits: tuple[str, ...] = ()
        how: How = "unknown"
        if card and listed:
            fits, how = self._look_up(card, possible)
        if sku is not None:
            by_sku = self._by_sku(sku)
            if not by_sku or not fits or set(by_sku) & set(fits):
                narrowed = tuple(i for i in by_sku if i in fits) or by_sku
                fits, how = narrowed, "exact" if len(narrowed) == 1 else "ambiguous"
            else:
                fits, how = (*by_sku, *fits), "ambiguous"
        if not fits:
            fits = self._with_profile(profile, possible) if profile else possible
            lone = profile is not None and card is None and sku is None and fits != possible
            how = "unknown_after_registry" if late else "ambiguous" if lone else "unknown"
        elif profile:
            fits = self._with_profile(profile, fits)
        return self._resolution(fits, how, profile)

    def _resolution(self, fits: tuple[str, ...], how: How, profile: str | None) -> Resolution:
        ceilings = {basis: max(self.slice_ops_s(i, profile, basis) for i in fits) for basis in BASES}
        largest = max(fits, key=lambda i: self.slice_ops_s(i, profile, BASES[0]))
        verified = self.devices[largest].verified
        if profile and largest in self._mig:
            verified = verified and self._mig[largest].verified
        return Resolution(fits, largest, how, verified, profile, ceilings)

    def _look_up(self, label: str, possible: tuple[str, ...]) -> tuple[tuple[str, ...], How]:
        """Devices of a label. A whole driver name is sure; without the vendor it may be a site's word as well."""
        name = level(label)
        named = self._exact.get(name, ())
        bare = () if named else self._exact_bare.get(name, ())
        words = () if named else self._words.get(without_vendor(name), ())
        fits = tuple(i for i in dict.fromkeys((*named, *bare, *words)) if i in possible)
        if len(fits) > 1:
            return fits, "ambiguous"
        how: How = "exact" if set(fits) & {*named, *bare} else "alias"
        return fits, how if fits else "unknown"

    def _by_sku(self, sku: str) -> tuple[str, ...]:
        """Devices of a card by inventory; the name of a MIG slice stands for the card it lies in."""
        if sku in self.devices:
            return (sku,)
        card = split_mig(sku)[0]
        return self._look_up(card, tuple(self.devices))[0] if card else ()

    def _of_gres(self, gres_name: str) -> tuple[str, ...]:
        """Devices that a generic resource of this name can be; a name that is in no list can be any."""
        gres = self.sections["gres"].get(gres_name.lower())
        if gres is None or gres["kind"] == "none":
            return tuple(self.devices)
        return tuple(i for i, d in self.devices.items() if d.kind == gres["kind"]) or tuple(self.devices)

    def knows_card(self, name: str) -> bool:
        """Whether some card is called so by its driver (a MIG slice: whether its card is)."""
        return bool(self.cards_called(name))

    def cards_called(self, name: str) -> tuple[str, ...]:
        """Devices that a driver's name may mean (of a MIG slice: its card); none if the registry does not know it."""
        return self._by_sku(name)

    # CPU cores

    def knows_core(self, model: str) -> bool:
        """Whether some class of CPU cores fits this model name."""
        return any(core.fits(model) for core in self.cpu_cores.values())

    def cpu_core_ops_s(self, model: str | None, basis: str, ended_at: int | None = None) -> tuple[str, int]:
        """Class and ceiling (op/s) of a CPU core.

        Args:
            model: Model name as the kernel or the profile gives it; None: the largest class counts.
            basis: One of BASES.
            ended_at: When the run let go of it. For a core of unknown model after `complete_through` the class is
                `unknown_after_registry`, and its rate is only that of the largest class known.
        """
        key = (model, basis)
        if key not in self._cores:
            fits = [c for c in self.cpu_cores.values() if model and c.fits(model)]
            core = max(fits or self.cpu_cores.values(), key=lambda c: c.ceiling_ops_s(basis))
            self._cores[key] = core.id, core.ceiling_ops_s(basis), bool(fits)
        core_id, rate, known = self._cores[key]
        late = ended_at is not None and ended_at > self.complete_through
        return (core_id if known or not late else AFTER_REGISTRY), rate


def _index(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Label → every device it stands for, in the order of the registry."""
    index: dict[str, tuple[str, ...]] = {}
    for device_id, label in pairs:
        if device_id not in index.get(label, ()):
            index[label] = (*index.get(label, ()), device_id)
    return index
