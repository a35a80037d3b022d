"""GPUs that a run's leases held: more than its record names raise the claim, fewer lower nothing."""

from __future__ import annotations

import pytest

from slurm_trace.analysis.claims import Claims, Shape
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.tracking import Tracking
from slurm_trace.site.profile import ClusterProfile, NodeGroup, SiteProfile

T0 = 1_700_000_000
BASIS = "max_any_op"
RATES = Rates.load(None)
PCIE = RATES.ceiling_ops_s("nvidia-h100-pcie", BASIS)
NODES = NodeGroup(
    hosts="n[1-4]",
    gpus=8,
    sku="nvidia-h100-pcie",
    cores=64,
    devices_confined=True,
    cores_confined=True,
    basis="proven",
)
PROFILE = ClusterProfile(nodes=(NODES,))


def gpus(seen, tres, profile=PROFILE, *, strict=False):
    site = SiteProfile({"c": profile})
    shape = Shape("c", tres, None, 1, 8, "n1", T0, T0 + 100, gpus_seen=seen)
    found = Claims(RATES, site, Tracking(site, (), {}, RATES.inert_gres), BASIS).claim(shape)
    devices = [d for d in (found.strict if strict else found.devices) if d.kind == "gpu"]
    return sum(d.count for d in devices), sum(d.flop_s for d in devices), found.reasons


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("seen", "recorded", "counted"),
    [
        (0, "gres/gpu=2", 2),
        (1, "gres/gpu=2", 2),
        (2, "gres/gpu=2", 2),
        (3, "gres/gpu=2", 3),
        (4, "gres/gpu=0", 4),
    ],
)
def test_more_raise_and_fewer_lower_nothing(seen, recorded, counted, strict):
    count, flop_s, reasons = gpus(seen, f"cpu=8,{recorded},node=1", strict=strict)
    assert count == counted
    assert flop_s >= counted * PCIE
    assert any("leases" in reason for reason in reasons) == (seen > int(recorded[-1]))


def test_where_the_record_does_not_tell_the_whole_node_stays():
    assert gpus(2, None)[0] == 8
    assert gpus(9, None)[0] == 9


def test_all_of_what_is_known_counts():
    for seen in range(6):
        assert gpus(seen, "cpu=8,gres/gpu=3,node=1")[1] >= gpus(0, "cpu=8,gres/gpu=3,node=1")[1]
