"""The golden property with clocks: no card that runs at a clock that was read of its model does more than its ceiling.

The truth is worked out from the registry's entries as they stand in the files, by other code than the ceilings.
"""

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.resources import files

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.capacity import Inventory
from slurm_trace.analysis.claims import Claims, Shape
from slurm_trace.analysis.clocks import ClockRead, Clocks
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.tracking import Tracking
from slurm_trace.site.profile import ClusterProfile, NodeGroup, SiteProfile

T0 = 1_700_000_000
BASIS = "max_any_op"
LIMIT_MHZ = 5000


@cache
def rates():
    return Rates.load(None)


def _entries(section, *names):
    for name in names:
        text = files("slurm_trace.schema.registry").joinpath(name).read_text()
        yield from json.loads(text).get(section, ())


@cache
def hardware():
    """Operations a second and MHz of the cards whose units, pipes and highest clock are known, by id."""
    found = {}
    pipes = {one["id"]: one for one in _entries("architectures", "architectures.json")}
    for card in _entries("devices", "devices_nvidia.json", "devices_other.json"):
        of = pipes.get(card.get("architecture"))
        if of and card.get("units") and card.get("max_clock_mhz") and card["nvml_names"]:
            matrix = of["matrix_ops_per_clock"]
            most = max([*matrix["dense"].values(), *matrix["sparse"].values(), 0])
            vector = max(of["vector_ops_per_clock"].values())
            found[card["id"]] = (card["units"] * (most + vector) * 10**6, card["max_clock_mhz"], card)
    return found


@st.composite
def worlds(draw):
    """A card at work, what was read of cards of its model and others, and how accounting names it."""
    device = draw(st.sampled_from(sorted(hardware())))
    _, stock_mhz, entry = hardware()[device]
    name = draw(st.sampled_from(entry["nvml_names"]))
    of_model = draw(st.integers(stock_mhz // 2, LIMIT_MHZ * 2))
    reads = [ClockRead("c", name, of_model, "n1", "GPU-0")]
    for other in draw(st.lists(st.sampled_from([*sorted(hardware()), "unheard of", None]), max_size=3)):
        called = hardware()[other][2]["nvml_names"][0] if other in hardware() else other
        mhz = draw(st.integers(200, 9000))
        reads.append(ClockRead(draw(st.sampled_from("cd")), called, mhz, "n2", "GPU-1"))
    real_mhz = draw(st.integers(1, min(max(of_model, stock_mhz), LIMIT_MHZ)))
    label = draw(st.sampled_from([None, device, *entry["slurm_types"]]))
    sku = draw(st.sampled_from([None, name]))
    return device, real_mhz, label, sku, reads, draw(st.sampled_from([0, of_model]))


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_no_ceiling_below_what_a_card_does_at_a_clock_that_was_read(world):
    device, real_mhz, label, sku, reads, own_mhz = world
    per_mhz, _, _ = hardware()[device]
    group = NodeGroup(hosts="n1", gpus=2, sku=sku, cores=4, devices_confined=True, cores_confined=True)
    site = SiteProfile({"c": ClusterProfile(nodes=(group,))})
    typed = f"gres/gpu:{label}=2," if label else ""
    shape = Shape("c", f"cpu=4,{typed}gres/gpu=2,node=1", None, 1, 4, "n1", T0, T0 + 9, clock_mhz=own_mhz)
    tracking = Tracking(site, (), {}, rates().inert_gres)
    stock = Claims(rates(), site, tracking, BASIS).claim(replace(shape, clock_mhz=0))
    clocks = Clocks(rates(), BASIS, reads)
    found = Claims(rates(), site, tracking, BASIS, clocks).claim(shape)
    truth = 2 * per_mhz * real_mhz
    assert found.flop_s("gpu") >= truth
    assert found.strict_flop_s >= truth
    assert found.flop_s("gpu") >= stock.flop_s("gpu")
    assert found.strict_flop_s >= stock.strict_flop_s
    raised = found.flop_s("gpu") > stock.flop_s("gpu")
    assert ("clock_raised" in found.clock_flags) == raised
    assert raised <= any(
        f"at {mhz} MHz" in d.source for d in found.devices for mhz in _counted(reads, own_mhz)
    )
    inventory = Inventory(rates(), site, BASIS, T0 + 9, clocks)
    assert inventory.node_flop_s("c", "n1", T0, T0 + 9) >= truth


def _counted(reads, own_mhz):
    return {
        min(mhz, LIMIT_MHZ) for mhz in (own_mhz, *(read.clock_mhz for read in reads if read.cluster == "c"))
    }


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(hardware())), st.integers(1, 2 * LIMIT_MHZ))
def test_a_ceiling_goes_up_by_what_the_clock_does(device, mhz):
    _, stock_mhz, entry = hardware()[device]
    fit = rates().resolve(device)
    found = Clocks(rates(), BASIS, [ClockRead("c", entry["nvml_names"][0], mhz, "n1", "GPU-0")]).ceiling(
        fit, "c"
    )
    over = max(Fraction(1), Fraction(min(mhz, LIMIT_MHZ), stock_mhz))
    alone = rates().ceiling_ops_s(device, BASIS)
    assert found.flop_s == -(-alone * over.numerator // over.denominator) or fit.device_ids != (device,)
    assert found.flop_s >= alone * over
