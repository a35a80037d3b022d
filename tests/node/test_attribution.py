"""Which devices a lease holds, by every way in which Slurm may name them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_trace.node.attribution import attribute, wants_devices
from slurm_trace.node.lease import Lease
from support.sampling import card

CARDS = [card(n) for n in range(4)]
PARENT = replace(CARDS[0], mig_enabled=True)
SLICES = [
    replace(
        card(0),
        uuid=f"MIG-{n}",
        parent_uuid="GPU-0",
        gpu_instance=n,
        compute_instance=0,
        mig_profile="1g.10gb",
    )
    for n in (7, 8)
]


def found(
    gpus: tuple[str, ...] | None,
    cuda: tuple[str, ...] | None,
    minors: dict[int, int] | None = None,
    devices: list = CARDS,  # type: ignore[type-arg]
    dropped: tuple[str, ...] = (),
) -> tuple[list[str], str]:
    lease = Lease(1, 1, "", 1, 1.0, gpus=gpus, cuda=cuda, dropped=dropped)
    result = attribute(lease, devices, lambda: minors)
    return [device.uuid for device in result.devices], result.how


ALL = ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


@pytest.mark.parametrize(
    ("gpus", "cuda", "minors", "expected"),
    [
        (None, None, None, ([], "none")),
        ((), (), None, ([], "none")),
        (None, ("NoDevFiles",), None, ([], "none")),
        (("0", "1"), ("GPU-2", "GPU-0"), None, (["GPU-2", "GPU-0"], "uuid")),
        (("0",), ("GPU-2", "GPU-2"), None, (["GPU-2"], "uuid")),
        (("0",), ("GPU-9",), None, (ALL, "ambiguous")),
        (("0",), ("GPU-2", "1"), None, (ALL, "ambiguous")),
        (("0", "1"), ("0", "1"), {0: 7, 1: 6, 2: 5, 3: 4}, (["GPU-0", "GPU-1"], "gres")),
        (("0", "3"), ("0", "3"), {0: 4, 1: 5, 2: 6, 3: 7}, (["GPU-3", "GPU-0"], "gres")),
        (("0", "1"), ("0", "1"), None, (ALL, "ambiguous")),
        (("0", "1"), ("0", "1"), {0: 7}, (ALL, "ambiguous")),
        (("0",), ("0",), {0: 99}, (ALL, "ambiguous")),
        (("0", "1", "2", "3"), ("0", "1", "2", "3"), None, (ALL, "whole_node")),
        (("128", "129", "130", "131"), None, None, (ALL, "whole_node")),
        (("0", "0", "1", "1"), None, None, (ALL, "ambiguous")),
        (("gpu:a",), None, None, (ALL, "ambiguous")),
        (None, ("0",), None, (ALL, "ambiguous")),
    ],
)
def test_whole_cards(
    gpus: tuple[str, ...] | None,
    cuda: tuple[str, ...] | None,
    minors: dict[int, int] | None,
    expected: tuple[list[str], str],
) -> None:
    assert found(gpus, cuda, minors) == expected


def test_instances_are_named_in_either_style() -> None:
    devices = [PARENT, *SLICES, *CARDS[1:]]
    assert found(("0",), ("MIG-7",), devices=devices) == (["MIG-7"], "uuid")
    assert found(("0",), ("MIG-GPU-0/8/0",), devices=devices) == (["MIG-8"], "uuid")


def test_an_index_on_a_node_with_instances_proves_nothing() -> None:
    devices = [PARENT, *SLICES, *CARDS[1:]]
    everything = [device.uuid for device in devices]
    assert found(("1",), ("1",), {0: 7, 1: 6, 2: 5, 3: 4}, devices) == (everything, "ambiguous")
    assert found(("0", "1", "2", "3"), None, None, devices) == (everything, "ambiguous")


@pytest.mark.parametrize("key", ["gpus", "cuda"])
def test_what_the_hook_would_not_write_down_is_not_known(key: str) -> None:
    assert found(None, None, dropped=(key,)) == (ALL, "ambiguous")
    assert wants_devices(Lease(1, 1, "", 1, 1.0, dropped=(key,)))
