"""The rate registry: its entries, and what labels are taken for."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from slurm_trace.analysis import registry
from slurm_trace.analysis.labels import level, split_mig
from slurm_trace.analysis.rates import AFTER_REGISTRY, BASES, Rates
from slurm_trace.errors import InputProblem, UsageProblem

ANY = "max_any_op"

# Names the drivers of these cards report, as far as they are known; each must be found whatever else changes.
DRIVER_NAMES = (
    """
Tesla P100-SXM2-16GB|Tesla P100-PCIE-16GB|Tesla P100-PCIE-12GB|Tesla V100-SXM2-16GB|Tesla V100-SXM2-32GB
Tesla V100-SXM3-32GB|Tesla V100-PCIE-32GB|Tesla V100S-PCIE-32GB|Tesla V100-SXM2-32GB-LS|Tesla T4|NVIDIA A10|NVIDIA A10G
NVIDIA A30|NVIDIA A40|NVIDIA RTX A6000|NVIDIA A100-PCIE-40GB|NVIDIA A100 80GB PCIe|NVIDIA A100-SXM4-40GB
NVIDIA A100-SXM4-80GB|NVIDIA A100-SXM-64GB|NVIDIA A800-SXM4-80GB|NVIDIA L4|NVIDIA L40|NVIDIA L40S
NVIDIA RTX 6000 Ada Generation|NVIDIA GeForce RTX 3090|NVIDIA GeForce RTX 4090|NVIDIA GeForce RTX 5090
NVIDIA GeForce RTX 3090 Ti|NVIDIA GeForce RTX 4090 D|NVIDIA GeForce RTX 5090 D|NVIDIA H100 PCIe|NVIDIA H100 80GB HBM3
NVIDIA H100 NVL|NVIDIA H200|NVIDIA H200 NVL|NVIDIA H20|NVIDIA H800|NVIDIA GH200 480GB|NVIDIA GH200 120GB
NVIDIA GH200 144G HBM3e|NVIDIA B200|NVIDIA GB200|NVIDIA B300 SXM6 AC|NVIDIA GB300
NVIDIA RTX PRO 6000 Blackwell Workstation Edition|NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition
NVIDIA RTX PRO 6000 Blackwell Server Edition|NVIDIA GB10
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.fixture(scope="module")
def rates() -> Rates:
    return Rates.load()


def test_every_file_fits_the_schema() -> None:
    for name in (
        *registry.RATE_FILES,
        *registry.THRESHOLD_FILES,
        *registry.OBSERVABLE_FILES,
        *registry.SKU_FILES,
    ):
        registry.check(json.loads(_text(name)), name)


def test_every_file_of_the_folder_is_part_of_a_registry() -> None:
    from importlib.resources import files

    present = {f.name for f in files("slurm_trace.schema.registry").iterdir() if f.name.endswith(".json")}
    assert present == {
        *registry.RATE_FILES,
        *registry.THRESHOLD_FILES,
        *registry.OBSERVABLE_FILES,
        *registry.SKU_FILES,
        "channels.json",  # has a schema of its own
    }


def test_a_source_that_nobody_can_look_up_is_not_verified(rates: Rates) -> None:
    for section in rates.sections.values():
        for entry in section.values():
            if re.fullmatch(
                r"public device logs[^;]*|.*\bunverified\b.*|.*from memory.*", str(entry["source"])
            ):
                assert entry["verified"] is False, entry["id"]
            if "from memory" in str(entry.get("notes")):
                assert entry["verified"] is False, entry["id"]


def test_ids_are_unique_over_the_files() -> None:
    for section in registry.RATE_SECTIONS:
        ids = [e["id"] for name in registry.RATE_FILES for e in json.loads(_text(name)).get(section, [])]
        assert len(ids) == len(set(ids)), section


# Labels


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_a_driver_name_is_found_exactly(rates: Rates, name: str) -> None:
    fit = rates.resolve(name)
    assert (fit.how, len(fit.device_ids)) == ("exact", 1)
    assert name in rates.device(fit.ceiling_id).nvml_names
    assert rates.resolve(name.lower().replace(" ", "_")) == fit
    assert rates.resolve(None, sku=name).device_ids == fit.device_ids


def test_the_vendor_may_be_missing(rates: Rates) -> None:
    for name in DRIVER_NAMES:
        fit = rates.resolve(name.removeprefix("NVIDIA "))
        expected = rates.resolve(name).ceiling_id
        if name == "NVIDIA H200":
            # As a site's word it may mean the NVL board as well.
            assert set(fit.device_ids) == {"nvidia-h200-sxm", "nvidia-h200-nvl"}
        else:
            assert fit.device_ids == (expected,), name


def test_the_bare_name_of_the_h100_tells_no_part_from_another(rates: Rates) -> None:
    fit = rates.resolve("NVIDIA H100")
    assert fit.how == "ambiguous"
    assert fit.ceilings[ANY] == max(rates.ceiling_ops_s(i, ANY) for i in fit.device_ids)
    assert {"nvidia-h100-sxm5-80gb", "nvidia-h100-pcie", "nvidia-h100-nvl"} <= set(fit.device_ids)


@pytest.mark.parametrize(
    "name", ["GRID A100D-80C", "NVIDIA H100-80C", "NVIDIA A100-SXM4-40GB MIG", "h1000", "a10x"]
)
def test_a_name_that_only_begins_like_another_is_unknown(rates: Rates, name: str) -> None:
    fit = rates.resolve(name)
    assert fit.how == "unknown"
    assert fit.ceilings[ANY] == rates.ceiling_ops_s(rates.max_device(ANY), ANY)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("h100", "nvidia-h100-sxm5-80gb"),
        ("h100_80", "nvidia-h100-sxm5-80gb"),
        ("a100_80", "nvidia-a100-sxm4-80gb"),
        ("nvidia_h100_80gb_hbm3", "nvidia-h100-sxm5-80gb"),
        ("nvidia_gh200_120gb", "nvidia-gh200-96gb"),
        ("nvidia_geforce_rtx_2080_ti", "nvidia-rtx-2080-ti"),
        ("amd_instinct_mi300x_oam", "amd-mi300x"),
        ("amd_instinct_mi355_oam", "amd-mi355x"),
        ("mi250x", "amd-mi250x-gcd"),
        ("mi250", "amd-mi250x-module"),
        ("rtx30", "nvidia-rtx-3090-ti"),
        ("RTX_3090", "nvidia-rtx-3090-ti"),
        ("pvc", "intel-max-1550"),
        ("T4", "nvidia-t4"),
    ],
)
def test_a_word_of_a_site_is_taken_for_the_largest_card_that_fits(
    rates: Rates, word: str, expected: str
) -> None:
    assert rates.resolve(word).ceiling_id == expected


@pytest.mark.parametrize(
    "word", ["v100", "volta", "volta32gb", "a100", "tesla", "gh200", "h200", "ampere", "hopper"]
)
def test_an_ambiguous_word_bounds_every_card_it_fits(rates: Rates, word: str) -> None:
    fit = rates.resolve(word)
    assert fit.how == "ambiguous"
    for basis in BASES:
        assert fit.ceiling_flop_s(basis) == max(rates.ceiling_ops_s(i, basis) for i in fit.device_ids)


def test_a_word_reaches_every_card_whose_driver_name_it_is_part_of(rates: Rates) -> None:
    """Slurm lets a configured type be a part of the detected name: then it may stand for each of these cards."""
    for device in rates.devices.values():
        for word in device.slurm_types:
            if rates.resolve(word).how == "exact":
                continue
            parts = re.split(r"[^0-9a-z]+", word.lower())
            for other in rates.devices.values():
                for name in other.nvml_names:
                    whole = re.split(r"[^0-9a-z]+", name.lower())
                    inside = any(whole[i : i + len(parts)] == parts for i in range(len(whole)))
                    if inside and other.kind == device.kind:
                        known = {
                            level(w).removeprefix("nvidia") for w in (*other.slurm_types, *other.nvml_names)
                        }
                        assert level(word).removeprefix("nvidia") in known or level(word) == "nvidia", (
                            word,
                            other.id,
                        )


def test_an_untyped_or_unknown_card_is_the_largest_of_the_registry(rates: Rates) -> None:
    for label in (None, "", "gpu0", "\N{GREEK SMALL LETTER ALPHA}"):
        fit = rates.resolve(label)
        assert fit.how == "unknown"
        gpus = [i for i, d in rates.devices.items() if d.kind == "gpu"]
        for basis in BASES:
            assert fit.ceilings[basis] == max(rates.ceiling_ops_s(i, basis) for i in gpus)


def test_after_the_date_of_the_registry_an_unknown_card_has_no_bound(rates: Rates) -> None:
    assert rates.complete_through == int(datetime(2026, 12, 1, tzinfo=UTC).timestamp())
    assert rates.resolve("foo", ended_at=rates.complete_through).how == "unknown"
    assert rates.resolve("foo", ended_at=rates.complete_through + 1).how == AFTER_REGISTRY
    assert rates.resolve(None, ended_at=rates.complete_through + 1).how == AFTER_REGISTRY
    assert rates.resolve("1g.10gb", ended_at=rates.complete_through + 1).how == AFTER_REGISTRY
    assert rates.resolve("h100", ended_at=rates.complete_through + 1).how == "ambiguous"
    assert rates.resolve("a30", ended_at=rates.complete_through + 1).how == "exact"


def test_the_name_of_the_resource_narrows_what_it_can_be(rates: Rates) -> None:
    assert rates.resolve(None, gres_name="hpu").ceiling_id == "intel-gaudi-3"
    assert rates.resolve("910B3", gres_name="npu").ceiling_id == "huawei-ascend-910b"
    assert rates.resolve(None, gres_name="tpu").ceiling_id == "google-tpu-7x"
    # A resource in no list may be anything, whatever its type is called.
    assert rates.resolve("t4", gres_name="thing").ceilings[ANY] == max(
        rates.ceiling_ops_s(i, ANY) for i in rates.devices
    )
    assert rates.resolve("v4", gres_name="gpu").how == "unknown"


def test_the_inventory_decides_between_cards_and_widens_where_it_contradicts(rates: Rates) -> None:
    assert rates.resolve("h100", sku="nvidia-h100-pcie").ceiling_id == "nvidia-h100-pcie"
    assert rates.resolve("h100", sku="NVIDIA H100 PCIe").how == "exact"
    assert rates.resolve("weird", sku="nvidia-t4").ceiling_id == "nvidia-t4"
    both = rates.resolve("h100", sku="nvidia-t4")
    assert both.how == "ambiguous"
    assert both.ceilings[ANY] == rates.resolve("h100").ceilings[ANY]
    assert rates.resolve("h100", sku="no such card").how == "unknown"
    assert rates.resolve("1g.10gb", sku="nvidia-h100-pcie").ceilings[ANY] == rates.mig_ceiling_ops_s(
        "1g.10gb", "nvidia-h100-pcie", ANY
    )


def test_answers_are_remembered(rates: Rates) -> None:
    assert rates.resolve("h100", ended_at=1) is rates.resolve("h100", ended_at=2)


# MIG


@pytest.mark.parametrize(
    ("label", "card", "profile"),
    [
        ("1g.10gb", None, "1g.10gb"),
        ("mig-1g.10gb", None, "1g.10gb"),
        ("MIG 1g.10gb", None, "1g.10gb"),
        ("a100_3g.20gb", "a100", "3g.20gb"),
        ("a100-mig-1g5gb", "a100", "1g.5gb"),
        ("nvidia_a100_1g.5gb", "nvidia_a100", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "nvidia h100 80gb hbm3", "1g.10gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "nvidia h100 80gb hbm3", "3g.40gb"),
        ("1g.10gb+me", None, "1g.10gb+me"),
        ("1g.24gb-me", None, "1g.24gb-me"),
        ("1g.10gb.me", None, "1g.10gb+me"),
        ("a100_80gb", "a100_80gb", None),
        ("v100", "v100", None),
    ],
)
def test_a_profile_is_told_from_the_card(label: str, card: str | None, profile: str | None) -> None:
    assert split_mig(label) == (card, profile)


def test_every_listed_slice_is_bounded_by_its_units(rates: Rates) -> None:
    for table in rates.sections["mig_profiles"].values():
        for device_id in table["devices"]:
            device = rates.device(device_id)
            for profile, sms in table["sms"].items():
                whole = rates.ceiling_ops_s(device_id, ANY)
                got = rates.mig_ceiling_ops_s(profile, device_id, ANY)
                if sms is None or device.units is None:
                    assert got == whole, (device_id, profile)
                else:
                    assert sms <= device.units
                    assert got == -(-whole * sms // device.units), (device_id, profile)
                named = rates.resolve(f"{device.nvml_names[0]} MIG {profile}")
                assert device_id in named.device_ids
                assert named.ceilings[ANY] >= got


def test_known_slices(rates: Rates) -> None:
    assert rates.mig_sms("nvidia-h100-sxm5-80gb", "1g.20gb") == 26
    assert rates.mig_sms("nvidia-h100-sxm5-80gb", "7g.80gb") == 132
    assert rates.mig_sms("nvidia-a30", "4g.24gb") == rates.device("nvidia-a30").units == 56
    assert rates.mig_sms("nvidia-a100-sxm4-40gb", "7g.40gb") == 98
    h100 = 132 * (16384 + 1024) * 1980 * 10**6
    assert rates.mig_ceiling_ops_s("1g.20gb", "nvidia-h100-sxm5-80gb", ANY) == -(-h100 * 26 // 132)
    # Unlisted: the whole card. Unknown card: the largest over the cards that have the profile.
    assert rates.mig_ceiling_ops_s("9g.99gb", "nvidia-h100-sxm5-80gb", ANY) == h100
    assert rates.mig_sms(None, "1g.10gb") == 16
    assert rates.mig_ceiling_ops_s("1g.10gb", None, ANY) == -(-h100 * 16 // 132)
    assert rates.mig_ceiling_ops_s("9g.99gb", None, ANY) == rates.ceiling_ops_s(rates.max_device(ANY), ANY)
    assert rates.resolve("foo_1g.10gb").how == "unknown"
    assert rates.resolve("1g.10gb").how == "ambiguous"


def test_media_extensions_change_no_size(rates: Rates) -> None:
    for table in rates.sections["mig_profiles"].values():
        for profile, sms in table["sms"].items():
            plain = re.sub(r"[+-].*", "", profile)
            assert table["sms"].get(plain, sms) == sms, (table["id"], profile)


# CPU cores


def test_the_examples_of_a_core_class_are_found_in_it(rates: Rates) -> None:
    for core_id, core in rates.cpu_cores.items():
        for model in core.entry["examples"]:
            assert rates.cpu_core_ops_s(model, ANY)[0] == core_id, model


def test_known_cores(rates: Rates) -> None:
    assert rates.cpu_core_ops_s("Intel(R) Xeon(R) Platinum 8480+", ANY) == (
        "x86-amx-sapphire-rapids",
        2320 * 5000 * 10**6,
    )
    assert rates.cpu_core_ops_s("Intel(R) Xeon(R) Platinum 8480+", "max_fp_dense")[1] == 1152 * 5000 * 10**6
    assert rates.cpu_core_ops_s("AMD EPYC 7763 64-Core Processor", "max_fp_sparse")[1] == 48 * 4900 * 10**6


@pytest.mark.parametrize("model", [None, "", "QEMU Virtual CPU", "AMD EPYC 9999 of the future"])
def test_an_unknown_core_is_the_largest(rates: Rates, model: str | None) -> None:
    for basis in BASES:
        most = max(c.ceiling_ops_s(basis) for c in rates.cpu_cores.values())
        assert rates.cpu_core_ops_s(model, basis)[1] == most
    assert rates.cpu_core_ops_s(model, ANY, rates.complete_through + 1)[0] == AFTER_REGISTRY
    assert rates.cpu_core_ops_s(model, ANY, rates.complete_through)[0] in rates.cpu_cores


# Overlays


def _text(name: str) -> str:
    from importlib.resources import files

    return files("slurm_trace.schema.registry").joinpath(name).read_text(encoding="utf-8")


CARD = {
    "id": "acme-x1",
    "vendor": "Acme",
    "name": "X1",
    "kind": "gpu",
    "status": "shipping",
    "counted_as": "card",
    "datasheet": {"tera_ops_s": {"dense": {"bf16": 100.1}, "sparse": {}}},
    "nvml_names": ["Acme X1"],
    "slurm_types": ["x1"],
    "basis": "datasheet",
    "source": "Acme X1 datasheet",
    "revision": "r1",
    "verified": True,
}


def _overlay(path: Path, **sections: object) -> Path:
    path.write_text(json.dumps({"schema": "slurm-trace/registry/1", **sections}))
    return path


def test_an_overlay_adds_a_card_and_changes_the_digest(rates: Rates, tmp_path: Path) -> None:
    ours = Rates.load(_overlay(tmp_path / "site.json", devices=[CARD]))
    fit = ours.resolve("x1")
    assert (fit.ceiling_id, fit.how) == ("acme-x1", "alias")
    assert fit.ceilings[ANY] == -(-1001 * 10**11 * 27 // 20)
    assert ours.digest != rates.digest
    assert ours.resolve("h100").ceilings == rates.resolve("h100").ceilings


def test_an_overlay_may_be_toml_and_replaces_an_entry(rates: Rates, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        'schema = "slurm-trace/registry/1"\n[[gres]]\nid = "bigdisk"\nkind = "none"\nwhat = "disks"\n'
        'source = "site"\nrevision = 2026-01-02\nverified = true\n'
    )
    ours = Rates.load(path)
    assert ours.inert_gres == rates.inert_gres | {"bigdisk"}
    assert ours.sections["gres"]["bigdisk"]["revision"] == "2026-01-02"


def test_an_overlay_of_thresholds_alone_leaves_the_rates_as_they_are(rates: Rates, tmp_path: Path) -> None:
    assert Rates.load(_overlay(tmp_path / "site.json", thresholds=[])).digest == rates.digest


def test_the_digest_does_not_depend_on_how_a_number_is_written() -> None:
    one, two = ({"s": {"a": {"id": "a", "x": Decimal(text)}}} for text in ("1.50", "1.5"))
    assert registry.digest(one) == registry.digest(two)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"units": "many"}, r"devices entry 0 \('acme-x1'\) units: 'many' is not of type 'integer'"),
        ({"architecture": "acme-9"}, r"'acme-x1': no architecture 'acme-9'"),
        ({"bounded_by": "nothing"}, r"bounded_by 'nothing' is no device"),
        ({"bounded_by": "acme-x1"}, r"bounded_by 'acme-x1' runs in a circle"),
        ({"datasheet": {"tera_ops_s": {"dense": {}, "sparse": {}}}}, "no ceiling follows"),
        ({"speed": 1}, "'speed'"),
        ({"verified": "yes"}, r"verified: 'yes' is not of type 'boolean'"),
        ({"source": ""}, r"'acme-x1'\) source: '' "),
        ({"id": "Not An Id"}, "Not An Id"),
    ],
)
def test_a_wrong_overlay_is_refused_with_file_and_entry(
    tmp_path: Path, change: dict[str, object], expected: str
) -> None:
    path = _overlay(tmp_path / "site.json", devices=[{**CARD, **change}])
    with pytest.raises(InputProblem, match=expected) as caught:
        Rates.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_entry_without_a_source_is_refused(tmp_path: Path) -> None:
    card = {key: value for key, value in CARD.items() if key != "source"}
    with pytest.raises(InputProblem, match="'source' is a required property"):
        Rates.load(_overlay(tmp_path / "site.json", devices=[card]))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b"{"),
        ("a.json", b"\xff\xfe"),
        ("a.json", b"[]"),
        ("a.json", b'{"schema": "other"}'),
        ("a.json", b"[" * 100_000),
        ("a.toml", b"= 3"),
        ("a.toml", b""),
        ("a.json", json.dumps({"schema": "slurm-trace/registry/1", "devices": [CARD, CARD]}).encode()),
        ("a.json", b'{"schema": "slurm-trace/registry/1", "devices": [7]}'),
    ],
)
def test_what_is_no_overlay_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputProblem, match=re.escape(str(path))):
        Rates.load(path)
    with pytest.raises(UsageProblem, match="No such file or directory; name a JSON or TOML file"):
        Rates.load(tmp_path / "absent.json")
