"""The grammar of resources, in every era of Slurm."""

import pytest

from slurm_trace.accounting.tres import Gres, parse_gres, parse_tres, unreadable_gres


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        (
            "cpu=4,gres/gpu:nvidia_geforce_rtx_2080_ti=1,mem=8G,node=1",
            (Gres("gpu", "nvidia_geforce_rtx_2080_ti", 1),),
        ),
        (
            "billing=1,gres/gpu=4,gres/gpu:a100=2,gres/gpumem=80G,gres/gpuutil=50",
            (Gres("gpu", None, 4), Gres("gpu", "a100", 2)),
        ),
        ("gres/gpu:v100=4", (Gres("gpu", "v100", 4),)),
        ("gres/gpu:1g.10gb=1", (Gres("gpu", "1g.10gb", 1),)),
        ("gres/gpu:nvidia_a100_1g.5gb=1", (Gres("gpu", "nvidia_a100_1g.5gb", 1),)),
        ("gres/gpu=0", (Gres("gpu", None, 0),)),
        ("gres/gpu=2K", (Gres("gpu", None, 2048),)),
        ("gres/gpu=1.50K", (Gres("gpu", None, 1536),)),
        ("gres/shard=3,gres/mps=50", (Gres("shard", None, 3), Gres("mps", None, 50))),
        ("gres/shard:t4=3", (Gres("shard", "t4", 3),)),
        ("gres:gpu:2", (Gres("gpu", None, 2),)),
        ("gres/GPU=2", (Gres("gpu", None, 2),)),
        ("cpu=1", ()),
        ("", ()),
        ("(null)", ()),
        (None, ()),
    ],
)
def test_alloc_tres(text: str | None, gres: tuple[Gres, ...]) -> None:
    tres = parse_tres(text)
    assert (tres.gres, tres.unreadable) == (gres, ())


def test_cpus_and_nodes_also_by_number() -> None:
    tres = parse_tres("1=4,2=8192,3=18446744073709551614,4=2,5=4,1001=2")
    assert (tres.cpus, tres.nodes, tres.gres, tres.unreadable) == (4, 2, (), ("1001=2",))


@pytest.mark.parametrize(
    "part", ["gres/gpu=many", "gres/gpu:=1", "gres/=1", "whatever", "cpu=x", "gres/gpu=9223372036854775808"]
)
def test_what_cannot_be_read_is_said(part: str) -> None:
    tres = parse_tres(f"mem=1G,{part},gres/gpu:a100=2")
    assert tres.unreadable == (part,)
    assert tres.gres == (Gres("gpu", "a100", 2),)


@pytest.mark.parametrize(
    ("text", "nodes", "gres"),
    [
        ("gpu:v100:4", 2, (Gres("gpu", "v100", 8),)),
        ("gpu:2(IDX:0-1)", 1, (Gres("gpu", None, 2),)),
        ("gpu:tesla:2(IDX:0,3)", 1, (Gres("gpu", "tesla", 2),)),
        ("gpu:tesla:2(S:0-1),mps:100", 2, (Gres("gpu", "tesla", 4), Gres("mps", None, 200))),
        ("PER_NODE:gpu:8", 4, (Gres("gpu", None, 32),)),
        ("gpu:(null):4", 1, (Gres("gpu", None, 4),)),
        ("gres:gpu:2", 3, (Gres("gpu", None, 6),)),
        ("gpu", 2, (Gres("gpu", None, 2),)),
        ("gpu:a100", 2, (Gres("gpu", "a100", 2),)),
        ("7696487:2", 1, (Gres("gpu", None, 2),)),
        ("gpu:1K", 1, (Gres("gpu", None, 1024),)),
        ("", 1, ()),
        ("(null)", 1, ()),
        ("N/A", 1, ()),
        (None, 1, ()),
    ],
)
def test_alloc_gres_is_per_node(text: str | None, nodes: int, gres: tuple[Gres, ...]) -> None:
    assert parse_gres(text, nodes) == gres
    assert unreadable_gres(text) == ()


@pytest.mark.parametrize("text", ["gpu:a:b:c:4", ":4", "gpu:a$b:2"])
def test_alloc_gres_that_cannot_be_read(text: str) -> None:
    assert parse_gres(f"{text},gpu:2", 1) == (Gres("gpu", None, 2),)
    assert unreadable_gres(text) == (text,)
