"""Which devices a lease holds. What cannot be proven is said to be so, and then every device of the node is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.node.lease import Lease

NO_DEVICES = frozenset({"NoDevFiles", "none", "-1"})


@dataclass(frozen=True)
class Attribution:
    """Devices, and the rule by which they were found.

    `how`: `uuid`, named by the job's environment; `gres`, Slurm's index → File in gres.conf → minor; `whole_node`,
    as many as there are; `none`, the job has none; `ambiguous`, which ones is not known.
    """

    devices: tuple[DeviceInfo, ...]
    how: str


def wants_devices(lease: Lease) -> bool:
    """False only where the hook saw that the job has no GPU."""
    if "gpus" in lease.dropped or "cuda" in lease.dropped:
        return True
    return bool(lease.gpus) or bool(set(lease.cuda or ()) - NO_DEVICES)


def attribute(
    lease: Lease, devices: Sequence[DeviceInfo], order: Callable[[], Mapping[int, int] | None]
) -> Attribution:
    """Find the devices of a lease.

    Args:
        lease: What the hook wrote.
        devices: All of the node.
        order: Gives Slurm's index → minor number, or None where that is not known; asked only where it is needed.
    """
    if not wants_devices(lease):
        return Attribution((), "none")
    everything = Attribution(tuple(devices), "ambiguous")
    if "gpus" in lease.dropped or "cuda" in lease.dropped:
        return everything
    named = _by_uuid(lease.cuda or (), devices)
    if named is not None:
        return Attribution(named, "uuid") if named else everything
    indices = lease.gpus or ()
    if not indices or not all(index.isdigit() for index in indices):
        return everything
    cards = [device for device in devices if device.parent_uuid is None]
    if len(set(indices)) == len(cards) and not any(card.mig_enabled for card in cards):
        return Attribution(tuple(cards), "whole_node")
    minors = order()
    if minors is not None:
        by_minor = {card.minor: card for card in cards if card.minor is not None and not card.mig_enabled}
        found = [by_minor.get(minors.get(int(index), -1)) for index in indices]
        if all(card is not None for card in found) and len(by_minor) == len(cards):
            return Attribution(tuple(card for card in found if card is not None), "gres")
    return everything


def _by_uuid(names: Sequence[str], devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...] | None:
    """Devices by UUID; None where the names are no UUIDs, () where one of them is not here."""
    if not names or not all(name.startswith(("GPU-", "MIG-")) for name in names):
        return None
    known = {device.uuid: device for device in devices}
    for device in devices:
        if device.parent_uuid is not None:
            old_style = f"MIG-{device.parent_uuid}/{device.gpu_instance}/{device.compute_instance}"
            known[old_style] = device
    if not all(name in known for name in names):
        return ()
    return tuple({known[name].uuid: known[name] for name in names}.values())
