"""GPU counts from what was allocated (public faults B01, B02, B05, B06 and the shapes of real records)."""

import pytest

from slurm_trace.analysis.counting import Named, count_accelerators

INERT = {"craynetwork", "nvme"}


def named(*entries):
    return tuple(Named("gpu", *e) for e in entries)


@pytest.mark.parametrize(
    ("tres", "gres", "nodes", "kind", "expected"),
    [
        ("cpu=4,gres/gpu:nvidia_geforce_rtx_2080_ti=1,mem=8G,node=1", None, 1, "given",
         named(("nvidia_geforce_rtx_2080_ti", 1))),
        ("cpu=4,mem=32G,node=1,gres/gpu=1", None, 1, "given", named((None, 1))),
        ("billing=1,gres/gpu=4,gres/gpu:a100=2,gres/gpumem=80G,gres/gpuutil=50", None, 1, "given",
         named(("a100", 2), (None, 2))),
        ("billing=78,cpu=48,gres/gpu:a100_80=4,gres/gpu=4,node=1", None, 1, "given", named(("a100_80", 4))),
        ("gres/gpu:a100=8,gres/gpu:h100=24,gres/gpu=32,node=4", None, 4, "given", named(("a100", 8), ("h100", 24))),
        ("gres/gpu:a100=8,gres/gpu=4,node=1", None, 1, "given", named(("a100", 8))),
        ("cpu=2,gres/gpu:1g.10gb=1,gres/gpu=1,node=1", None, 1, "given", named(("1g.10gb", 1))),
        ("billing=4000,cpu=4,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=4", None, 4, "given", named(("a100", 4))),
        ("", "gpu:v100:4", 2, "given", named(("v100", 8))),
        (None, "gpu:2(IDX:0-1)", 1, "given", named((None, 2))),
        ("cpu=8,node=4", "PER_NODE:gpu:8", 4, "given", named((None, 32))),
        ("cpu=8,gres/gpu=0,node=2", None, 2, "zero", ()),
        ("cpu=8,node=2", None, 2, "absent", ()),
        ("cpu=8,gres/fpga=0,node=2", None, 2, "absent", ()),
        ("cpu=8,gres/craynetwork=4,node=2", None, 2, "absent", ()),
        ("gres/gpumem=80G,cpu=1", None, 1, "absent", ()),
        ("", None, 2, "unknown", ()),
        (None, None, 2, "unknown", ()),
        (None, "", 2, "unknown", ()),
        ("cpu=4,gres/gpu=two,node=1", None, 1, "unknown", ()),
        ("", "gpu:v100:4", None, "unknown", ()),
        # each kind of accelerator from where it is named
        ("cpu=4,gres/fpga=1,node=2", "gpu:v100:4", 2, "given", (Named("fpga", None, 1), *named(("v100", 8)))),
        ("cpu=4,gres/fpga=1,node=2", "gpu:v100:x:4", 2, "unknown", (Named("fpga", None, 1),)),
        ("cpu=4,gres/gpu=2,node=2", "gpu:v100:4", 2, "given", named((None, 2))),
        # a number that only the site can name, and a column that was cut
        ("1=4,4=2,1001=8", None, 2, "unknown", ()),
        ("cpu=4,mem=8G,gre+", None, 1, "unknown", ()),
        ("cpu=4,mem=8+", None, 1, "unknown", ()),
        ("cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=+", None, 1, "unknown", named(("a100", 2))),
        ("cpu=four,gres/gpu=2", None, 1, "given", named((None, 2))),
    ],
)  # fmt: skip
def test_count(tres, gres, nodes, kind, expected):
    found = count_accelerators(tres, gres, nodes, INERT)
    assert (found.kind, found.named) == (kind, expected)


def test_a_share_is_no_card_but_it_is_something():
    found = count_accelerators("cpu=1,gres/shard=5,node=1", None, 1, INERT)
    assert (found.kind, found.devices, found.shares) == ("given", 0, 5)


def test_other_accelerators_keep_their_name():
    found = count_accelerators("cpu=1,gres/npu:910b3=8,node=1", None, 1, INERT)
    assert found.named == (Named("npu", "910b3", 8),)
