"""The registry of provider SKUs: its entries, and what names are taken for."""

from __future__ import annotations

import re

import pytest

from slurm_trace.analysis import registry
from slurm_trace.analysis.provider_skus import ProviderSkus, sku_level
from slurm_trace.analysis.rates import Rates

ENTRIES = registry.load(registry.SKU_FILES, registry.SKU_SECTIONS, None)["provider_skus"]
LISTED = [(e["provider"], name, e) for e in ENTRIES.values() for name in e.get("sizes", {})]


@pytest.fixture(scope="module")
def skus() -> ProviderSkus:
    return ProviderSkus.load(Rates.load(), "max_any_op")


def test_it_lists_what_is_rented_most():
    with_gpu = [name for _, name, e in LISTED if e["sizes"][name]["devices"]]
    assert len(with_gpu) > 100
    assert len({sku_level(name) for _, name, _ in LISTED}) == len(LISTED), "no name stands for two things"
    assert {provider for provider, *_ in LISTED} == {"aws", "azure", "gcp"}


def test_every_entry_says_where_it_comes_from():
    for entry in ENTRIES.values():
        assert entry["source"].startswith("https://")
        if re.search(r"from memory|not read again", entry["source"] + entry["basis"]):
            assert entry["verified"] is False, entry["id"]
        if entry["verified"]:
            assert re.search(r"/[0-9a-f]{40}/", entry["source"]), entry["id"]


@pytest.mark.parametrize(("provider", "name", "entry"), LISTED, ids=[name for _, name, _ in LISTED])
def test_a_listed_name_is_itself(skus, provider, name, entry):
    found = skus.meaning(provider, name, {}, late=True)
    size = entry["sizes"][name]
    assert (found.how, found.instance.count, found.instance.vcpus) == (
        "listed",
        size["devices"],
        size["vcpus"],
    )
    assert (found.instance.device is None) == (size["devices"] == 0)
    assert found == skus.meaning("", name.upper(), {}, late=False)


@pytest.mark.parametrize(
    ("provider", "name", "how", "device", "count", "vcpus"),
    [
        ("aws", "USE1-BoxUsage:p4d.24xlarge", "listed", "nvidia-a100-sxm4-40gb", 8, 96),
        ("aws", "ml.p5.48xlarge", "listed", "nvidia-h100-sxm5-80gb", 8, 192),
        ("azure", "NC24ads A100 v4 Spot", "listed", "nvidia-a100-pcie-80gb", 1, 24),
        ("azure", "Standard_ND96isr_H100_v5", "listed", "nvidia-h100-sxm5-80gb", 8, 96),
        ("gcp", "a3-megagpu-8g", "listed", "nvidia-h100-sxm5-80gb", 8, 208),
        ("aws", "m7i.metal-48xl", "family", None, 0, 192),
        ("aws", "c4.8xlarge", "listed", None, 0, 36),
        ("aws", "t3.nano", "family", None, 0, 2),
        ("azure", "Standard_E64-16s_v3", "family", None, 0, 64),
        ("azure", "D2s v3", "family", None, 0, 2),
        ("azure", "Standard_D5_v2", "listed", None, 0, 16),
        ("gcp", "n2-highmem-128", "family", None, 0, 128),
    ],
)
def test_names_as_bills_have_them(skus, provider, name, how, device, count, vcpus):
    found = skus.meaning(provider, name, {}, late=False)
    one = found.instance
    assert (found.how, one.device, one.count, one.vcpus) == (how, device, count, vcpus)
    assert one.flop_s == one.gpu_flop_s + one.cpu_flop_s > 0


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("aws", "p2.xlarge"), ("aws", "g4ad.xlarge"), ("aws", "f2.6xlarge"), ("aws", "vt1.3xlarge"),
        ("aws", "dl1.24xlarge"),
        ("aws", "inf1.xlarge"), ("aws", "u-6tb1.metal"), ("aws", "HostUsage:p4d"), ("aws", "m99.xlarge"), ("aws", "p5"),
        ("azure", "Standard_NV8as_v4"), ("azure", "Standard_NC6"), ("azure", "NVv3"), ("gcp", "ct5p-hightpu-4t"),
        ("gcp", "9662-B51E-5089"), ("hill", "p5.48xlarge"), ("azure", "p5.48xlarge"), ("", ""), ("", "xlarge"),
        ("aws", "m5." + "9" * 4000 + "xlargex"), ("aws", "t3." + "9" * 400 + "xlarge"),
        *((provider, name) for provider in ("", "azure") for name in
          ("L4", "A10", "B200", "L40S", "A100", "A30", "A40", "B300", "A100 v4", "Standard_L40s")),
    ],
)  # fmt: skip
def test_what_is_not_listed_is_the_largest(skus, provider, name):
    found = skus.meaning(provider, name, {}, late=False)
    assert (found.how, found.instance) == ("unknown", skus.largest)
    assert skus.meaning(provider, name, {}, late=True).instance is None


def test_the_largest_is_above_every_other(skus):
    for provider, name, _ in LISTED:
        assert skus.meaning(provider, name, {}, late=False).instance.flop_s <= skus.largest.flop_s


def test_no_name_of_a_family_hides_an_accelerator():
    patterns = [re.compile(e["pattern"]) for e in ENTRIES.values() if "pattern" in e]
    for _, name, entry in LISTED:
        if entry["devices"]:
            assert not any(p.fullmatch(sku_level(name)) for p in patterns), name


def test_the_larger_of_several_cards_counts(skus):
    rates = Rates.load()
    one = skus.meaning("azure", "Standard_NC6s_v3", {}, late=False).instance
    cards = ("nvidia-v100-pcie", "nvidia-v100-sxm2")
    assert one.gpu_flop_s == max(rates.ceiling_ops_s(card, "max_any_op") for card in cards)
