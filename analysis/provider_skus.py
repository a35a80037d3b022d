"""What a provider's SKU stands for: accelerators of the rate registry and vCPUs, by the registry of SKUs.

A SKU that is not listed is taken for the largest: of the registry, and of what a node can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from slurm_trace.analysis import registry
from slurm_trace.analysis.rates import Rates

How = Literal["listed", "family", "no_compute", "unknown", "unknown_after_registry"]

LARGEST = "largest"
"""`Instance.sku` of what an unknown SKU is taken for."""

MOST_DIGITS = 4
"""Of the number in a family's name; a longer one is no size."""


@dataclass(frozen=True, slots=True)
class Instance:
    """What one instance of a SKU can use at once.

    Attributes:
        sku: The name in the registry.
        device: Id of the accelerator in the rate registry; None if it has none.
        count: Accelerators; a share of one counts as a whole one.
        vcpus: Each is taken for a core.
    """

    sku: str
    device: str | None
    count: int
    vcpus: int
    gpu_flop_s: int
    cpu_flop_s: int
    verified: bool

    @property
    def flop_s(self) -> int:
        """Most operations a second."""
        return self.gpu_flop_s + self.cpu_flop_s


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a charge may be for; `instance` is None if nothing bounds it."""

    how: How
    instance: Instance | None


class ProviderSkus:
    """The merged registry of SKUs under one basis.

    Args:
        sections: The registry as read.
        rates: The registry of device rates.
        basis: What counts as an operation.
        overlay: Where entries of a site came from, for messages.

    Attributes:
        digest: SHA-256 over the canonical JSON of all entries, the overlay's included.
        complete_through: Epoch second up to which no faster device is missing from the rate registry.
    """

    def __init__(
        self, sections: registry.Sections, rates: Rates, basis: str, overlay: Path | None = None
    ) -> None:
        self.digest = registry.digest(sections)
        self.complete_through = rates.complete_through
        self._rates, self._basis, self._overlay = rates, basis, overlay
        self._named: dict[str, list[tuple[str, Instance]]] = {}
        self._families: list[tuple[str, re.Pattern[str], registry.Entry]] = []
        for entry in sections["provider_skus"].values():
            self._add(entry)
        self._no_compute = {(e["column"], level(e["value"])) for e in sections["no_compute"].values()}
        self._known: dict[tuple[str | None, ...], Meaning] = {}

    @classmethod
    def load(cls, rates: Rates, basis: str, overlay: Path | None = None) -> ProviderSkus:
        """The built-in registry with a site's own entries on top.

        Raises:
            InputProblem: The overlay can't be read, has the wrong form, or refers to what does not exist.
        """
        return cls(registry.load(registry.SKU_FILES, registry.SKU_SECTIONS, overlay), rates, basis, overlay)

    def meaning(self, provider: str, sku: str, labels: Mapping[str, str], *, late: bool) -> Meaning:
        """What a charge is for.

        Args:
            provider: Its id; empty: not given, so that any SKU of that name fits.
            sku: As the feed names it.
            labels: `meter`, `service_category` and `charge_category`, as far as given.
            late: The charge period ends after `complete_through`: a SKU that is not listed may be a faster one.
        """
        given = ("meter", "service_category", "charge_category")
        key = (provider, sku, *(labels.get(name) for name in given))
        if key not in self._known:
            self._known[key] = self._meaning(provider, sku, labels)
        found = self._known[key]
        if found.how == "unknown" and late:
            return Meaning("unknown_after_registry", None)
        return found

    @cached_property
    def largest(self) -> Instance:
        """What a SKU that is not listed is taken for."""
        node = self._instance(
            LARGEST,
            {"devices": [self._rates.max_device(self._basis)], "verified": False},
            self._rates.max_gpus_per_node,
            self._rates.max_cores_per_node,
        )
        listed = (instance for named in self._named.values() for _, instance in named)
        return max((node, *listed), key=lambda i: i.flop_s)

    def _meaning(self, provider: str, sku: str, labels: Mapping[str, str]) -> Meaning:
        if self._computes_nothing("charge_category", labels):
            return Meaning("no_compute", self._nothing)
        names = [name for name in (sku, labels.get("meter")) if name]
        named = [i for name in names for p, i in self._named.get(sku_level(name), ()) if provider in ("", p)]
        members = [i for name in names for i in self._members(provider, name)]
        if named or members:
            # Where two names of one charge differ, the larger counts.
            return Meaning("listed" if named else "family", max((*named, *members), key=lambda i: i.flop_s))
        if self._computes_nothing("service_category", labels):
            return Meaning("no_compute", self._nothing)
        return Meaning("unknown", self.largest)

    def _computes_nothing(self, column: str, labels: Mapping[str, str]) -> bool:
        value = labels.get(column)
        return value is not None and (column, level(value)) in self._no_compute

    @cached_property
    def _nothing(self) -> Instance:
        return self._instance("no compute", {"devices": [], "verified": True}, 0, 0)

    def _add(self, entry: registry.Entry) -> None:
        for device in entry["devices"]:
            if device not in self._rates.devices:
                raise self._problem(entry, f"no device {device!r}", "name one that `slurm-trace rates` lists")
        for core in entry.get("cores", ()):
            if core not in self._rates.cpu_cores:
                raise self._problem(entry, f"no class of cores {core!r}", "name one of `slurm-trace rates`")
        for name, size in entry.get("sizes", {}).items():
            if size["devices"] and not entry["devices"]:
                raise self._problem(entry, f"{name} has accelerators of no kind", "name them under devices")
            one = self._instance(name, entry, size["devices"], size["vcpus"])
            self._named.setdefault(sku_level(name), []).append((entry["provider"], one))
        if "pattern" in entry:
            try:
                pattern = re.compile(entry["pattern"])
            except re.error as error:
                raise self._problem(entry, f"pattern: {error}", "write a regular expression") from error
            self._families.append((entry["provider"], pattern, entry))

    def _members(self, provider: str, name: str) -> Iterator[Instance]:
        """What a name stands for in the families that it fits, with or without what billing puts before it."""
        plain = sku_level(name)
        for family_provider, pattern, entry in self._families:
            if provider not in ("", family_provider):
                continue
            found = pattern.fullmatch(plain) or pattern.fullmatch(_without_suffix(name))
            number = (found.groupdict().get("n") or "1") if found else ""
            if number.isdecimal() and len(number) <= MOST_DIGITS:
                yield self._instance(plain, entry, 0, entry.get("vcpus") or entry["vcpus_each"] * int(number))

    def _instance(self, sku: str, entry: registry.Entry, count: int, vcpus: int) -> Instance:
        rate = {d: self._rates.ceiling_ops_s(d, self._basis) for d in entry["devices"] if count}
        device = max(rate, key=lambda d: rate[d], default=None)
        cores = [self._rates.cpu_cores[c].ceiling_ops_s(self._basis) for c in entry.get("cores", ())]
        return Instance(
            sku=sku,
            device=device,
            count=count,
            vcpus=vcpus,
            gpu_flop_s=0 if device is None else count * rate[device],
            cpu_flop_s=vcpus * max(cores or [self._rates.cpu_core_ops_s(None, self._basis)[1]]),
            verified=entry["verified"],
        )

    def _problem(self, entry: registry.Entry, fault: str, remedy: str) -> Exception:
        return registry.entry_problem(self._overlay, "provider_skus", entry["id"], fault, remedy)


def level(text: str) -> str:
    """A label without case, with one kind of separator."""
    return re.sub(r"[\s_-]+", "_", text.strip().lower())


def sku_level(name: str) -> str:
    """A SKU's name without what billing adds: `USE1-BoxUsage:p5.48xlarge`, `ml.g5.xlarge`, `NC24ads A100 v4 Spot`."""
    return re.sub(r"^(?:ml\.|standard_|basic_)", "", _without_suffix(name))


def _without_suffix(name: str) -> str:
    return re.sub(r"_(?:spot|low_priority|promo)$", "", level(name.rpartition(":")[2]))
