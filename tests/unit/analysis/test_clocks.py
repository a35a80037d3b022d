"""A clock beyond the registry's raises what counts, wherever it was read, and is told with both figures."""

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner

from slurm_trace.analysis.claims import Claims, Shape
from slurm_trace.analysis.clocks import ClockRead, Clocks
from slurm_trace.analysis.groups import Terms
from slurm_trace.analysis.ladder import RUNGS
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.tracking import Tracking
from slurm_trace.assess import Request, assess
from slurm_trace.cli.main import app
from slurm_trace.node.spool import RING
from slurm_trace.node.spool_writer import ChunkRows
from slurm_trace.site.profile import ClusterProfile, NodeGroup, SiteProfile
from slurm_trace.store.card_clocks import load_clocks
from slurm_trace.store.engine import open_store
from slurm_trace.store.spool_ingest import import_spools
from support.runs import T0, ingest, run
from support.spools import UP_S, S, card, samples, spool

RATES = Rates.load(None)
BASIS = "max_any_op"
H100 = RATES.ceiling_ops_s("nvidia-h100-sxm5-80gb", BASIS)
A100 = RATES.ceiling_ops_s("nvidia-a100-sxm4-80gb", BASIS)
DRIVER = "NVIDIA H100 80GB HBM3"
FAST = Fraction(2178, 1980)
"""2,178 MHz are a tenth more than the registry has."""


def read(clock_mhz, card=DRIVER, cluster="c"):
    return ClockRead(cluster, card, clock_mhz, "n1", "GPU-0")


def ceiling(label, *reads, own_mhz=0, basis=BASIS):
    return Clocks(RATES, basis, reads).ceiling(RATES.resolve(label), "c", own_mhz)


def flags(found):
    return [note.flag for note in found.notes]


@pytest.mark.parametrize("basis", ["max_any_op", "max_fp_sparse", "max_fp_dense", "bf16_dense"])
def test_the_ceiling_goes_with_the_clock_whatever_counts(basis):
    stock = RATES.ceiling_ops_s("nvidia-h100-sxm5-80gb", basis)
    assert ceiling("h100_sxm5", read(1980), basis=basis).flop_s == stock
    found = ceiling("h100_sxm5", read(2178), basis=basis)
    assert found.flop_s == -(-stock * 11 // 10)
    assert flags(found) == ["clock_raised"]
    assert "2178 MHz was read" in found.notes[0].text
    assert "1980 MHz" in found.notes[0].text


def test_a_lower_clock_lowers_nothing():
    assert ceiling("h100_sxm5", read(345), own_mhz=900) == ceiling("h100_sxm5")


def test_a_model_speaks_for_itself_and_for_its_cluster():
    assert ceiling("a100", read(2178)).flop_s == ceiling("a100").flop_s
    assert ceiling("h100_sxm5", read(2178, cluster="d")).flop_s == H100
    assert ceiling("h100", read(2178)).flop_s == H100 * FAST


@pytest.mark.parametrize("name", ["NVIDIA Wunderkarte", None])
def test_a_model_that_nobody_knows_may_be_any(name):
    found = ceiling("h100_sxm5", read(2178, card=name))
    assert found.flop_s == H100 * FAST
    assert "which the rate registry does not know" in found.notes[0].text


def test_a_clock_of_its_own_counts_for_whatever_the_record_names():
    assert ceiling("h100_sxm5", own_mhz=2178).flop_s == H100 * FAST
    # The driver's card is another one than the record's: it is the record's that counts, as fast as was read.
    found = ceiling("nvidia-a100-sxm4-80gb", read(2178), own_mhz=2178)
    assert found.flop_s == -(-A100 * 2178 // 1410)
    assert "its own GPUs" in found.notes[0].text


def test_a_clock_that_no_gpu_runs_at_counts_as_the_fastest_there_is():
    found = ceiling("h100_sxm5", read(9000))
    assert found.flop_s == -(-H100 * 5000 // 1980)
    assert flags(found) == ["clock_raised", "clock_doubtful"]
    assert all(figure in found.notes[1].text for figure in ("9000 MHz", "5000 MHz"))


def test_where_the_registry_has_no_clock_that_is_said():
    h200 = "nvidia-h200-nvl"
    found = ceiling(h200, read(1785, RATES.device(h200).nvml_names[0]))
    assert (found.flop_s, flags(found)) == (RATES.ceiling_ops_s(h200, BASIS), ["clock_unrated"])
    assert "1785 MHz" in found.notes[0].text


def test_an_allowance_covers_what_it_is_for():
    l40 = RATES.device("nvidia-l40")
    sheet, allowed = l40.sheet_clock_mhz, l40.sheet_clock_mhz * RATES.clock_allowance
    stock = RATES.ceiling_ops_s("nvidia-l40", BASIS)
    name = l40.nvml_names[0]
    assert sheet < 3000 < allowed < 3500
    assert ceiling("nvidia-l40", read(3000, name)).flop_s == stock
    found = ceiling("nvidia-l40", read(3500, name))
    assert stock * 3500 / allowed <= found.flop_s < stock * 3500 / allowed + 1


def test_a_card_that_another_one_bounds_goes_with_that_ones_clock():
    a2 = RATES.device("nvidia-a2")
    rated = RATES.rated_clock_mhz("nvidia-a2")
    assert rated == RATES.rated_clock_mhz(a2.bounded_by)
    found = ceiling("nvidia-a2", read(2800, a2.nvml_names[0]))
    assert found.flop_s == RATES.ceiling_ops_s(a2.bounded_by, BASIS, clock_mhz=2800) > ceiling("a2").flop_s


def test_a_slice_goes_with_its_card():
    stock = ceiling("h100_1g.10gb").flop_s
    found = ceiling("h100_1g.10gb", read(2178, f"{DRIVER} MIG 1g.10gb"))
    assert stock * FAST <= found.flop_s < stock * FAST + 1


def test_every_way_to_claim_a_card_takes_the_clock_along():
    """Named, untyped, of the inventory, seen, shared, of nodes that confine nobody, and any card."""
    nodes = NodeGroup(hosts="n1", gpus=4, sku=DRIVER, cores=4, devices_confined=True, cores_confined=True)
    loose = NodeGroup(hosts="n1", gpus=4, sku=DRIVER, cores=4, devices_confined=False, cores_confined=True)
    cases = [
        ("gres/gpu:h100=2", nodes, 0, 2),
        ("gres/gpu=2", nodes, 0, 2),
        ("gres/gpu=2", nodes, 3, 3),
        ("gres/shard=2", nodes, 0, 2),
        ("gres/gpu=2", loose, 0, 4),
    ]
    for tres, group, seen, count in cases:
        site = SiteProfile({"c": ClusterProfile(nodes=(group,))})
        shape = Shape("c", f"cpu=4,{tres},node=1", None, 1, 4, "n1", T0, T0 + 9, gpus_seen=seen)
        tracking = Tracking(site, (), {}, RATES.inert_gres)
        for reads, over in (((), 1), ((read(2178),), FAST)):
            found = Claims(RATES, site, tracking, BASIS, Clocks(RATES, BASIS, reads)).claim(shape)
            assert found.flop_s("gpu") == count * H100 * over, tres
            assert found.clock_flags == (["clock_raised"] if reads else [])
            assert any("2178 MHz" in reason for reason in found.reasons) == bool(reads)


def test_an_answer_is_of_its_cluster_and_its_slice():
    clocks = Clocks(RATES, BASIS, [read(2178)])
    whole, part = RATES.resolve(DRIVER), RATES.resolve(f"{DRIVER} MIG 1g.10gb")
    assert whole.device_ids == part.device_ids
    found = [clocks.ceiling(fit, cluster).flop_s for fit in (whole, part) for cluster in ("c", "d")]
    alone = [
        Clocks(RATES, BASIS, [read(2178)]).ceiling(fit, cluster).flop_s
        for fit in (whole, part)
        for cluster in ("c", "d")
    ]
    assert found == alone
    assert len(set(found)) == 4
    assert [clocks.highest_mhz(DRIVER, cluster) for cluster in ("c", "d", None)] == [2178, 0, 2178]


def test_an_inventory_of_slower_cards_caps_nothing():
    group = NodeGroup(hosts="n1", gpus=2, sku="nvidia-a100-sxm4-80gb", cores=4)
    site = SiteProfile({"c": ClusterProfile(nodes=(group,))})
    tracking = Tracking(site, (), {}, RATES.inert_gres)
    shape = Shape("c", "cpu=4,gres/gpu=2,node=1", None, 1, 4, "n1", T0, T0 + 9, clock_mhz=1500)
    for name, beyond in (("NVIDIA A800-SXM4-80GB", True), ("NVIDIA A100-SXM4-80GB", False)):
        clocks = Clocks(RATES, BASIS, [read(1500, name)])
        found = Claims(RATES, site, tracking, BASIS, clocks).claim(shape)
        assert found.flop_s("gpu") == -(-A100 * 1500 // 1410) * 2
        assert found.beyond_inventory == beyond


# Through the store

PROFILE = """
[[clusters.c.nodes]]
hosts = "n[1-9]"
gpus = 1
sku = "NVIDIA H100 80GB HBM3"
cores = 4
cpu_model = "AMD EPYC 7763 64-Core Processor"
devices_confined = true
cores_confined = true
basis = "proven"
"""


class Site:
    """Runs of one card each, of which only the first has a lease."""

    def __init__(self, folder):
        self.path, self.outbox = str(folder / "store.db"), folder / "outbox"
        self.outbox.mkdir()
        self.profile = folder / "site.toml"
        self.profile.write_text(PROFILE)
        self.store = open_store(self.path, create=True)
        for number in (1, 2):
            told = {"alloc_tres": "cpu=4,gres/gpu:h100=1,gres/gpu=1,node=1", "node_count": 1, "cpu_count": 4}
            ingest(
                self.store,
                run(number, start=T0 + 10, end=T0 + 110, elapsed_s=100, node_list=f"n{number}", **told),
            )

    def lease(self, job=1, **spooled):
        spool(self.outbox, job, **spooled)
        assert not import_spools(self.store, self.outbox).rejected

    def ask(self, trust="allocation", threshold="eu-gpai", **asked):
        request = Request(threshold, None, Fraction(0), profile=str(self.profile), trust=trust, **asked)
        return assess(self.store, request)

    def entries(self, **asked):
        return {entry["job_id_raw"]: entry for entry in self.ask(**asked).jobs()}


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.store.close()


@pytest.mark.parametrize("trust", RUNGS)
def test_runs_groups_and_capacity_of_the_cluster_are_raised_at_every_level_of_trust(site, trust):
    before, groups = site.entries(trust=trust)[2], site.ask(trust=trust).groups("cluster")[0]
    site.lease(devices=[card(max_sm_mhz=2178)])
    entries = site.entries(trust=trust)
    after, together = entries[2], site.ask(trust=trust).groups("cluster")[0]
    assert after["bound_gpu_flop"] == before["bound_gpu_flop"] * FAST
    assert after["bound_cpu_flop"] == before["bound_cpu_flop"]
    assert after["bound_flop_strict"] is None or after["bound_flop_strict"] > before["bound_flop_strict"]
    assert [e["flags"].count("clock_raised") for e in entries.values()] == [1, 1]
    assert sum(e["bound_flop"] for e in entries.values()) == together.bound_flop
    assert together.capacity_flop > groups.capacity_flop * Fraction(108, 100)


def test_a_verdict_follows_the_clock(site):
    bound = site.entries()[2]["bound_flop"]
    assert site.entries(threshold=str(bound + 1))[2]["verdict"] == "RULED_OUT"
    site.lease(devices=[card(max_sm_mhz=1995)])
    assert site.entries(threshold=str(bound + 1))[2]["verdict"] == "NOT_RULED_OUT"


@pytest.mark.parametrize(
    "spooled",
    [
        {
            "devices": [card(max_sm_mhz=None)],
            "columns": {"GPU-0": samples(range(11, 112), sm_clock_mhz=2178)},
        },
        {"devices": [card(max_sm_mhz=2178, name=None)]},
        {"devices": [card(max_sm_mhz=2178)], "job": 77},
    ],
    ids=["only seen", "of a card without a name", "by a lease of no run"],
)
def test_whatever_read_it(site, spooled):
    before = site.entries()[2]["bound_gpu_flop"]
    site.lease(**spooled)
    assert site.entries()[2]["bound_gpu_flop"] == before * FAST


@pytest.mark.parametrize("allowed", [1980, None])
def test_a_run_on_other_cards_than_its_record_names_speaks_for_itself(site, allowed):
    for number in (3, 4):
        told = {"alloc_tres": "cpu=4,gres/gpu:a100=1,gres/gpu=1,node=1", "node_count": 1, "cpu_count": 4}
        ingest(
            site.store,
            run(number, start=T0 + 10, end=T0 + 110, elapsed_s=100, node_list="elsewhere", **told),
        )
    seen = samples(range(11, 112), sm_clock_mhz=1900 if allowed else 1980)
    site.lease(3, devices=[card(max_sm_mhz=allowed)], columns={"GPU-0": seen}, node="elsewhere")
    own, other = (site.entries()[number] for number in (3, 4))
    rates = {
        entry["job_id_raw"]: Fraction(entry["bound_gpu_flop"], entry["held_s"]) for entry in (own, other)
    }
    assert rates[3] == rates[4] * 1980 / 1440
    assert ("clock_raised" in own["flags"], "clock_raised" in other["flags"]) == (True, False)


def test_the_drivers_own_buffer_tells_of_a_clock_between_two_samples(site):
    begin = (UP_S + 20) * 1000
    windows = [
        (begin, begin + 100, 5, 190_000, 1890, 1900),
        (begin + 100, begin + 200, 5, 200_000, 1900, 2178),
    ]
    rings = {"GPU-0": [list(column) for column in zip(*windows, strict=True)]}
    span = ((UP_S + 10) * S, (UP_S + 110) * S)
    site.lease(devices=[card()], chunks=[ChunkRows(f"{RING}sm_clock_mhz", *span, rings)])
    assert [c.clock_mhz for c in load_clocks(site.store)] == [2178]


def test_explain_says_why_and_its_terms_add_up(site):
    site.lease(devices=[card(max_sm_mhz=2178)])
    for job in ("1", "2"):
        arguments = ["--store", site.path, "--config", str(site.profile), "explain", job]
        told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
        assert sum(term["flop"] for term in told["terms"]) == told["job"]["bound_flop"]
        assert any("at 2178 MHz" in term["source"] for term in told["terms"])
        (why,) = (reason for reason in told["job"]["reasons"] if "MHz" in reason)
        assert all(figure in why for figure in ("2178 MHz", "1980 MHz", "GPU-0", "n1"))
        shown = CliRunner().invoke(app, arguments).stdout
        assert "2178 MHz" in shown
        assert "clock_raised" in shown


def test_a_window_and_an_unsampled_stretch_count_at_it(site):
    site.lease(devices=[card(max_sm_mhz=2178)])
    found = site.ask(terms=Terms(within_s=30)).groups("cluster")[0]
    assert found.bound_flop == sum(entry["bound_flop"] for entry in site.entries().values())
