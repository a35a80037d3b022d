"""A record that names what the inventory of its nodes does not have: the inventory lowers nothing."""

from datetime import UTC, datetime

import pytest

from slurm_trace.analysis.claims import Claims, Shape
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.tracking import Tracking
from slurm_trace.site.profile import ClusterProfile, NodeGroup, SiteProfile
from tests.support.world import Job, judge, sacct_text

T0 = 1_700_000_000
RATES = Rates.load(None)
H100 = {"gpus": 8, "sku": "nvidia-h100-sxm5-80gb", "cores": 64}
V100 = {"gpus": 4, "sku": "nvidia-v100-sxm2", "cores": 64}


def beyond(gres, *groups, seen=0):
    nodes = ",".join(group.hosts for group in groups)
    site = SiteProfile({"c": ClusterProfile(nodes=groups)})
    shape = Shape("c", f"cpu=8,{gres}node={len(groups)}", None, len(groups), 8, nodes, T0, T0 + 100, seen)
    return Claims(RATES, site, Tracking(site, (), {}, RATES.inert_gres), "max_any_op").claim(shape)


@pytest.mark.parametrize(
    ("gres", "seen", "expected"),
    [
        ("gres/gpu:h100=8,gres/gpu=8,", 0, False),
        ("gres/gpu=8,", 0, False),
        ("gres/gpu=9,", 0, True),
        ("gres/gpu:h100=9,", 0, True),
        ("gres/gpu:a100=1,", 0, True),
        ("gres/gpu:our_card=8,", 0, False),
        ("gres/gpu:h100_1g.10gb=56,", 0, False),
        ("gres/gpu:a100_1g.5gb=1,", 0, True),
        ("gres/shard=200,", 0, False),
        ("gres/hpu=1,", 0, True),
        ("gres/nvme=1,gres/gpu=1,", 0, False),
        ("gres/gpu=1,", 8, False),
        ("gres/gpu=1,", 9, True),
        ("", 0, False),
    ],
)
def test_what_an_inventory_does_not_have(gres, seen, expected):
    found = beyond(gres, NodeGroup(hosts="n1", **H100), seen=seen)
    assert found.beyond_inventory is expected
    assert any("inventory" in reason for reason in found.reasons) is expected


def test_a_type_counts_only_on_nodes_that_have_it():
    groups = (NodeGroup(hosts="n1", **H100), NodeGroup(hosts="n2", **V100))
    assert not beyond("gres/gpu:h100=8,gres/gpu:v100=4,", *groups).beyond_inventory
    assert beyond("gres/gpu:h100=8,gres/gpu:v100=5,", *groups).beyond_inventory
    assert beyond("gres/gpu:h100=9,", *groups).beyond_inventory


def test_an_inventory_without_counts_or_nodes_is_no_contradiction():
    assert not beyond("gres/gpu:a100=8,", NodeGroup(hosts="n1", sku="nvidia-v100-sxm2")).beyond_inventory
    site = SiteProfile({})
    shape = Shape("c", "cpu=8,gres/gpu:a100=8,node=1", None, 1, 8, "n1", T0, T0 + 100)
    claims = Claims(RATES, site, Tracking(site, (), {}, RATES.inert_gres), "max_any_op")
    assert not claims.claim(shape).beyond_inventory


@pytest.mark.parametrize(("label", "capped"), [("v100", True), ("h100", False)])
def test_no_group_is_capped_by_an_inventory_that_a_record_goes_beyond(tmp_path, label, capped):
    profile = tmp_path / "site.toml"
    profile.write_text(
        '[[clusters.c.nodes]]\nhosts = "n[1-2]"\ngpus = 4\nsku = "nvidia-v100-sxm2"\ncores = 64\n'
    )
    shared = [
        Job(n, T0, T0, T0 + 86_400, 86_400, 0, "COMPLETED", 1, 4, label, 64, 0).row(
            NodeList="n1", Submit=stamp(n)
        )
        for n in (1, 2)
    ]
    _, found = judge(tmp_path, sacct_text(shared), profile=str(profile))
    total = sum(entry["bound_flop"] for entry in found.jobs())
    for by in ("all", "cluster", "user"):
        (group,) = found.groups(by)
        assert (group.bound_flop < total) is capped
        assert (group.capacity_flop is not None) is capped


def stamp(number):
    return datetime.fromtimestamp(T0 - number, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
