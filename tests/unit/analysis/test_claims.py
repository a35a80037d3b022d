"""Which devices could a run use? Its own where it is held to them, else all of its nodes."""

import pytest

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.claims import Claims, Shape
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.tracking import Tracking
from slurm_trace.site.profile import ClusterProfile, NodeGroup, SiteProfile, TresPeriod

T0 = 1_700_000_000
BASIS = "max_any_op"
RATES = Rates.load(None)
H100 = RATES.ceiling_ops_s("nvidia-h100-sxm5-80gb", BASIS)
H100_PCIE = RATES.ceiling_ops_s("nvidia-h100-pcie", BASIS)
A100 = RATES.ceiling_ops_s("nvidia-a100-sxm4-80gb", BASIS)
ANY = RATES.resolve(None, gres_name="wunderkarte").ceiling_flop_s(BASIS)
LARGEST = RATES.resolve(None).ceiling_flop_s(BASIS)
CORE = RATES.cpu_core_ops_s(None, BASIS)[1]
MILAN = "AMD EPYC 7763 64-Core Processor"


def claim(profile=None, events=(), first_gpu=None, **values):
    site = SiteProfile({"c": profile} if profile else {})
    seen = {} if first_gpu is None else {"c": first_gpu}
    shape = {
        "cluster": "c", "alloc_tres": "billing=1,cpu=8,gres/gpu:h100=2,gres/gpu=2,mem=1G,node=1", "alloc_gres": None,
        "nodes": 1, "cpus": 8, "node_list": "n1", "since": T0, "until": T0 + 100,
    } | values  # fmt: skip
    return Claims(RATES, site, Tracking(site, events, seen, RATES.inert_gres), BASIS).claim(Shape(**shape))


def gpus(devices):
    return sum(d.count for d in devices if d.kind == "gpu"), sum(d.flop_s for d in devices if d.kind == "gpu")


def cores(devices):
    return sum(d.count for d in devices if d.kind == "cpu"), sum(d.flop_s for d in devices if d.kind == "cpu")


def group(**values):
    return NodeGroup(
        **{"hosts": "n[1-4]", "gpus": 8, "sku": "nvidia-h100-pcie", "cpu_model": MILAN, "cores": 64} | values
    )


CPU_ONLY = "billing=1,cpu=8,mem=1G,node=1"


def test_an_ambiguous_label_takes_the_largest_card_that_fits():
    found = claim()
    assert gpus(found.devices) == (2, 2 * H100)
    assert cores(found.devices) == (8, 8 * CORE)
    assert found.gpu_count == 2
    assert found.statuses == {"gres_recorded": "proven", "labels_true": "assumed", "confined": "assumed"}


def test_the_rest_of_an_untyped_count_has_no_known_type():
    found = claim(alloc_tres="cpu=1,gres/gpu=4,gres/gpu:h100=2,node=1")
    assert gpus(found.devices) == (4, 2 * H100 + 2 * LARGEST)


def test_inventory_names_the_card_and_caps_the_cores():
    found = claim(ClusterProfile(nodes=(group(),)), cpus=128)
    assert gpus(found.devices) == (2, 2 * H100_PCIE)
    assert cores(found.devices)[0] == 64
    assert cores(found.devices)[1] < 64 * CORE
    assert found.statuses["labels_true"] == "declared"


def test_an_untyped_gpu_is_the_card_of_its_nodes():
    found = claim(ClusterProfile(nodes=(group(),)), alloc_tres="cpu=8,gres/gpu=2,node=1")
    assert gpus(found.devices) == (2, 2 * H100_PCIE)


def test_a_label_that_contradicts_the_inventory_takes_the_larger():
    found = claim(ClusterProfile(nodes=(group(sku="nvidia-t4"),)))
    assert gpus(found.devices) == (2, 2 * H100)


def test_inventory_of_another_time_or_node_does_not_count():
    assert gpus(claim(ClusterProfile(nodes=(group(to=T0 + 50),))).devices)[1] == 2 * H100
    assert gpus(claim(ClusterProfile(nodes=(group(hosts="n[2-4]"),))).devices)[1] == 2 * H100


def test_a_node_that_changed_its_cards_meanwhile_takes_the_larger():
    nodes = (group(to=T0 + 50), group(sku="nvidia-h100-sxm5-80gb", from_=T0 + 50))
    assert gpus(claim(ClusterProfile(nodes=nodes)).devices)[1] == 2 * H100


# No gres is not "no GPU"


def test_no_gres_without_any_gpu_in_the_cluster_is_unknown():
    found = claim(alloc_tres=CPU_ONLY)
    assert found.gpu_count is None
    assert gpus(found.devices) == (32, 32 * LARGEST)


def test_no_gres_is_zero_by_assumption_once_gpus_were_recorded():
    found = claim(alloc_tres=CPU_ONLY, first_gpu=T0 - 1)
    assert (found.gpu_count, gpus(found.devices)) == (0, (0, 0))
    assert found.statuses["gres_recorded"] == "assumed"
    assert gpus(found.strict) == (32, 32 * LARGEST)


def test_gpus_recorded_only_later_say_nothing():
    assert claim(alloc_tres=CPU_ONLY, first_gpu=T0 + 100).gpu_count is None


def registered(names, start, end=None):
    return Event("c", "", start, end, "", "Cluster Registered TRES", ",".join(f"{n}=1" for n in names), "")


TRACKED = ("cpu", "mem", "node", "gres/gpu", "gres/shard", "gres/mps")


def test_zero_is_proven_where_the_tres_were_registered_all_the_time():
    found = claim(alloc_tres=CPU_ONLY, events=[registered(TRACKED, T0 - 10)])
    assert (found.gpu_count, found.statuses["gres_recorded"]) == (0, "proven")


def test_shares_that_were_not_tracked_leave_it_an_assumption():
    found = claim(alloc_tres=CPU_ONLY, events=[registered(("cpu", "gres/gpu"), T0 - 10)])
    assert (found.gpu_count, found.statuses["gres_recorded"]) == (0, "assumed")
    without_shares = ClusterProfile(gres_types=("gpu",))
    found = claim(without_shares, alloc_tres=CPU_ONLY, events=[registered(("cpu", "gres/gpu"), T0 - 10)])
    assert found.statuses["gres_recorded"] == "declared"  # GresTypes is what the profile says


@pytest.mark.parametrize("change", [T0 + 50, T0 - 1, T0 + 99])
def test_gpus_not_registered_at_some_moment_of_the_run_are_unknown(change):
    events = [registered(TRACKED, T0 - 100, change), registered(("cpu",), change)]
    found = claim(alloc_tres=CPU_ONLY, events=events, first_gpu=T0 - 1000)
    assert found.gpu_count is None


def test_a_moment_without_a_record_of_the_tres_leaves_it_an_assumption():
    events = [registered(TRACKED, T0 - 100, T0 + 50), registered(TRACKED, T0 + 51)]
    found = claim(alloc_tres=CPU_ONLY, events=events, first_gpu=T0 - 1000)
    assert (found.gpu_count, found.statuses["gres_recorded"]) == (0, "assumed")
    assert claim(alloc_tres=CPU_ONLY, events=events).gpu_count is None
    assert claim(alloc_tres=CPU_ONLY, events=[registered(TRACKED, T0 - 100, T0 + 50)]).gpu_count is None


def test_what_is_proven_for_a_part_and_declared_for_the_rest_is_declared():
    profile = ClusterProfile(registered_tres=(TresPeriod(names=TRACKED, to=T0 + 50),))
    found = claim(profile, alloc_tres=CPU_ONLY, events=[registered(TRACKED, T0 + 50)])
    assert found.statuses["gres_recorded"] == "declared"


def test_a_profile_that_declares_the_tres_is_a_declaration():
    profile = ClusterProfile(registered_tres=(TresPeriod(names=TRACKED, from_=T0 - 1),))
    assert claim(profile, alloc_tres=CPU_ONLY).statuses["gres_recorded"] == "declared"


def test_nodes_without_gpus_have_none():
    found = claim(ClusterProfile(nodes=(group(gpus=0, sku=None),)), alloc_tres=CPU_ONLY)
    assert (found.gpu_count, found.statuses["gres_recorded"]) == (0, "declared")


def test_an_outright_zero_is_a_number():
    assert claim(alloc_tres="cpu=8,gres/gpu=0,node=1").gpu_count == 0


def test_empty_alloc_tres_is_every_gpu_of_its_nodes():
    found = claim(ClusterProfile(nodes=(group(),)), alloc_tres="", node_list="n[1-2]", nodes=2, first_gpu=1)
    assert found.gpu_count is None
    assert gpus(found.devices) == (16, 16 * H100_PCIE)


def test_neither_nodes_nor_count_is_no_bound():
    found = claim(alloc_tres="", nodes=None, node_list=None)
    assert found.devices is None
    assert found.reasons


def test_the_site_may_say_how_many_gpus_a_node_has_at_most():
    found = claim(ClusterProfile(max_gpus_per_node=8), alloc_tres="")
    assert gpus(found.devices)[0] == 8
    assert gpus(found.strict)[0] == 32


# Confinement


def confined(answer, basis):
    return ClusterProfile(nodes=(group(devices_confined=answer, cores_confined=answer, basis=basis),))


def test_jobs_that_are_not_held_to_their_gpus_could_use_them_all():
    found = claim(confined(False, "declared"), node_list="n[1-2]", nodes=2)
    assert gpus(found.devices) == (16, 16 * H100_PCIE)
    assert cores(found.devices)[0] == 128


def test_what_is_only_assumed_counts_whole_nodes_in_the_strict_reading():
    assert gpus(claim(confined(None, "proven")).strict) == (8, 8 * H100_PCIE)
    assert gpus(claim(confined(True, "declared")).strict) == (32, 32 * LARGEST)
    assert gpus(claim().strict) == (32, 32 * LARGEST)


def test_jobs_that_were_not_held_for_a_part_of_the_run_could_use_all():
    nodes = (
        group(devices_confined=True, cores_confined=True, to=T0 + 50),
        group(devices_confined=False, cores_confined=False, from_=T0 + 50),
    )
    found = claim(ClusterProfile(nodes=nodes))
    assert (gpus(found.devices)[0], cores(found.devices)[0]) == (8, 64)


def test_a_zero_is_strict_only_where_it_is_proven_and_jobs_are_held():
    proven = [registered(TRACKED, T0 - 10)]
    held, loose = confined(True, "proven"), confined(None, "proven")
    assert gpus(claim(held, alloc_tres=CPU_ONLY, events=proven).strict) == (0, 0)
    assert gpus(claim(loose, alloc_tres=CPU_ONLY, events=proven).strict) == (8, 8 * H100_PCIE)
    assert gpus(claim(held, alloc_tres=CPU_ONLY, first_gpu=1).strict) == (8, 8 * H100_PCIE)


def test_strict_takes_cores_that_are_only_declared_for_the_most_there_can_be():
    found = claim(confined(True, "declared"))
    assert cores(found.strict) == (RATES.max_cores_per_node, RATES.max_cores_per_node * CORE)
    assert cores(claim(confined(None, "proven")).strict)[0] == 64


def test_strict_does_not_believe_a_label():
    """Forty cards of any kind are more than a node is taken to hold."""
    tres = "cpu=8,gres/gpu:t4=40,node=1"
    unproven = confined(True, "declared")
    assert gpus(claim(unproven, alloc_tres=tres).strict) == (40, 40 * LARGEST)


def test_a_node_that_changed_its_cores_meanwhile_takes_the_larger():
    nodes = (
        group(cores=32, to=T0 + 50, cores_confined=False),
        group(cores=128, from_=T0 + 50, cores_confined=False),
    )
    assert cores(claim(ClusterProfile(nodes=nodes)).devices)[0] == 128
    assert cores(claim(ClusterProfile(nodes=nodes[::-1])).devices)[0] == 128


def test_the_larger_core_of_two_models_counts():
    small = group(hosts="n2", cpu_model="Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")
    both = claim(ClusterProfile(nodes=(group(hosts="n1"), small)), node_list="n[1-2]", nodes=2, cpus=8)
    rates = {RATES.cpu_core_ops_s(model, BASIS)[1] for model in (MILAN, small.cpu_model)}
    assert len(rates) == 2
    assert cores(both.devices)[1] == 8 * max(rates)


def test_cores_of_an_unknown_model_after_the_registry_are_strictly_open():
    late = RATES.complete_through + 1000
    found = claim(alloc_tres="cpu=8,gres/gpu:h100=1,node=1", since=late - 10, until=late)
    assert found.devices is not None
    assert found.strict is None
    held = ClusterProfile(nodes=(group(devices_confined=True, cores_confined=True, basis="proven"),))
    assert claim(held, since=late - 10, until=late).strict is not None


def test_a_core_of_unknown_model_after_the_registry_is_strictly_open_on_nodes_of_which_all_else_is_proven():
    late = RATES.complete_through + 1000
    nodes = (group(devices_confined=True, cores_confined=True, basis="proven", cpu_model=None),)
    found = claim(ClusterProfile(nodes=nodes), since=late - 10, until=late)
    assert found.devices is not None
    assert found.strict is None


def test_one_node_outside_the_inventory_leaves_an_unknown_type_after_the_registry_open():
    late = RATES.complete_through + 1000
    values = {"alloc_tres": "cpu=8,gres/gpu:gb900=2,node=2", "node_list": "n[4-5]", "nodes": 2}
    profile = ClusterProfile(nodes=(group(),))
    assert claim(profile, since=late - 10, until=late, **values).devices is None
    assert claim(profile, **values).devices is not None


def test_nodes_that_the_list_does_not_name_count():
    found = claim(ClusterProfile(nodes=(group(),)), alloc_tres="", node_list="n1", nodes=3)
    assert gpus(found.devices) == (8 + 64, 8 * H100_PCIE + 64 * LARGEST)


def test_a_node_that_lost_its_cards_meanwhile_takes_the_larger_in_whole():
    nodes = (group(to=T0 + 50), group(gpus=2, from_=T0 + 50))
    assert gpus(claim(ClusterProfile(nodes=nodes), alloc_tres="").devices) == (8, 8 * H100_PCIE)


def test_what_is_proven_counts_its_own_in_both_readings():
    found = claim(confined(True, "proven"))
    assert found.statuses["confined"] == "proven"
    assert gpus(found.strict) == gpus(found.devices) == (2, 2 * H100_PCIE)
    assert cores(found.strict) == cores(found.devices)


def test_strict_is_never_below_default():
    for profile in (None, confined(None, "proven"), confined(True, "declared"), confined(False, "proven")):
        for tres in (
            CPU_ONLY,
            "",
            "cpu=8,gres/gpu=2,node=1",
            "cpu=8,gres/gpu:t4=40,node=1",
            "cpu=1,gres/shard=3,node=1",
        ):
            found = claim(profile, alloc_tres=tres, first_gpu=1)
            if found.strict is not None and found.devices is not None:
                assert found.strict_flop_s >= found.total_flop_s, (profile, tres)


# Shares, slices, other accelerators


def test_a_share_counts_as_a_whole_card_up_to_the_cards_there_are():
    profile = ClusterProfile(nodes=(group(),))
    assert gpus(claim(profile, alloc_tres="cpu=1,gres/shard=5,node=1").devices) == (5, 5 * H100_PCIE)
    assert gpus(claim(profile, alloc_tres="cpu=1,gres/shard=500,node=1").devices) == (8, 8 * H100_PCIE)


def test_a_mig_slice_is_the_largest_that_fits():
    found = claim(alloc_tres="cpu=1,gres/gpu:1g.10gb=1,gres/gpu=1,node=1")
    assert gpus(found.devices) == (1, RATES.mig_ceiling_ops_s("1g.10gb", None, BASIS))
    on_a100 = claim(
        ClusterProfile(nodes=(group(sku="nvidia-a100-sxm4-80gb"),)),
        alloc_tres="cpu=1,gres/gpu:1g.10gb=1,node=1",
    )
    assert gpus(on_a100.devices) == (1, RATES.mig_ceiling_ops_s("1g.10gb", "nvidia-a100-sxm4-80gb", BASIS))


def test_an_inventory_that_names_a_slice_has_whole_cards():
    profile = ClusterProfile(nodes=(group(sku="NVIDIA H100 80GB HBM3 MIG 1g.10gb"),))
    assert gpus(claim(profile, alloc_tres="").devices) == (8, 8 * H100)


def test_an_unlisted_resource_is_an_accelerator_of_unknown_rate():
    found = claim(alloc_tres="cpu=1,gres/wunderkarte=2,node=1", first_gpu=T0)
    assert (found.gpu_count, gpus(found.devices)) == (2, (2, 2 * ANY))


def test_another_accelerator_says_nothing_of_gpus():
    found = claim(alloc_tres="cpu=1,gres/wunderkarte=2,node=1")
    assert found.gpu_count is None
    assert gpus(found.devices) == (34, 2 * ANY + 32 * LARGEST)
    assert gpus(claim(alloc_tres="cpu=1,gres/wunderkarte=2,gres/gpu=?,node=1").devices)[0] == 34


def test_strict_takes_another_accelerator_for_the_largest_of_its_kind():
    nodes = confined(True, "proven")
    for profile in (None, nodes):
        found = claim(profile, alloc_tres="cpu=1,gres/wunderkarte=99,gres/gpu=0,node=1", first_gpu=T0)
        assert gpus(found.strict)[1] >= gpus(found.devices)[1] >= 99 * ANY


def test_accelerators_that_accounting_does_not_record_leave_zero_an_assumption():
    profile = ClusterProfile(gres_types=("gpu", "hpu", "nvme"))
    for names, status in (
        (("cpu", "gres/gpu"), "assumed"),
        (("cpu", "gres/gpu", "gres/hpu"), "declared"),
        ((*TRACKED, "gres/hpu"), "proven"),
    ):
        found = claim(profile, alloc_tres=CPU_ONLY, events=[registered(names, T0 - 10)])
        assert found.statuses["gres_recorded"] == status


def test_a_share_of_no_card_contradicts_the_inventory():
    profile = ClusterProfile(nodes=(group(gpus=0, sku=None),))
    assert gpus(claim(profile, alloc_tres="cpu=1,gres/shard=3,node=1").devices)[0] == 3


def test_a_card_that_the_inventory_knows_on_one_node_of_a_run_counts():
    profile = ClusterProfile(nodes=(group(hosts="n1", sku="nvidia-b200"),))
    found = claim(profile, node_list="n[1-2]", nodes=2)
    assert gpus(found.devices)[1] > 2 * H100


def test_no_cpus_is_no_count():
    found = claim(alloc_tres="billing=1,gres/gpu=1,mem=1G,node=1", cpus=0)
    assert cores(found.devices)[0] == RATES.max_cores_per_node
    assert cores(claim(cpus=0).devices)[0] == 8


def test_an_unknown_type_after_the_date_of_the_registry_has_no_bound():
    late = RATES.complete_through + 1000
    found = claim(alloc_tres="cpu=1,gres/gpu:gb900=1,node=1", since=late - 10, until=late)
    assert found.devices is None
    assert "registry" in found.reasons[-1]
    assert claim(since=late - 10, until=late).devices is not None
