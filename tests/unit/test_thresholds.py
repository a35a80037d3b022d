"""The threshold registry, and the commands that print both registries."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.thresholds import DEFAULT, Thresholds
from slurm_trace.cli.registries import rates, thresholds
from slurm_trace.errors import InputProblem, UsageProblem


@pytest.fixture(scope="module")
def known() -> Thresholds:
    return Thresholds.load()


@pytest.mark.parametrize(
    ("threshold_id", "flop", "comparison", "unit", "status"),
    [
        ("eu-gpai", 10**23, ">", "floating-point operations", "in force"),
        ("eu-systemic", 10**25, ">", "floating-point operations", "in force"),
        ("eu-modifier-gpai", 33_333_333_333_333_333_333_333, ">", "floating-point operations", "in force"),
        (
            "eu-modifier-systemic",
            3_333_333_333_333_333_333_333_333,
            ">",
            "floating-point operations",
            "in force",
        ),
        ("ca-sb53", 10**26, ">", "integer or floating-point operations", "in force"),
        ("ny-raise", 10**26, ">", "integer or floating-point operations", "enacted"),
        ("il-sb315", 10**26, ">", "integer or floating-point operations", "uncertain"),
        ("kr-basic-act", 10**26, ">=", "floating-point operations", "in force"),
        ("us-eo14110", 10**26, ">", "integer or floating-point operations", "revoked"),
        ("us-eo14110-bio", 10**23, ">", "integer or floating-point operations", "revoked"),
        ("us-bis-reporting", 10**26, ">", "integer or floating-point operations", "proposed"),
    ],
)
def test_what_the_texts_say(
    known: Thresholds, threshold_id: str, flop: int, comparison: str, unit: str, status: str
) -> None:
    found = known.get(threshold_id)
    assert (found.flop, found.comparison, found.unit, found.status) == (flop, comparison, unit, status)
    assert found.citation
    assert found.counts


def test_a_third_is_rounded_down(known: Thresholds) -> None:
    for name, whole in (("eu-modifier-gpai", 10**23), ("eu-modifier-systemic", 10**25)):
        found = known.get(name)
        assert found.exact == Fraction(whole, 3)
        assert found.flop <= found.exact < found.flop + 1


def test_the_default_is_listed_first(known: Thresholds) -> None:
    assert next(t.id for t in known) == DEFAULT == "eu-gpai"


def test_secondary_sources_are_not_called_verified(known: Thresholds) -> None:
    for found in known:
        assert found.verified is ("secondary" not in found.basis and "no final rule" not in found.basis), (
            found.id
        )


@pytest.mark.parametrize(
    ("text", "flop"),
    [
        ("1e24", 10**24),
        ("1E+24", 10**24),
        ("3.3e22", 33 * 10**21),
        ("1e23/3", 10**23 // 3),
        ("123", 123),
        (" 5e22 ", 5 * 10**22),
        ("1_000", 1000),
        ("1.5", 1),
        (10**23, 10**23),
    ],
)
def test_a_bare_number_is_a_threshold(known: Thresholds, text: str | int, flop: int) -> None:
    found = known.get(text)
    assert found.flop == flop
    assert found.id == str(text).strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eu",
        "nan",
        "inf",
        "-1",
        "0",
        "1e400",
        "1e999999999",
        "1/0",
        "1e23/",
        "0.5",
        "9" * 5000,
        "1e23 FLOP",
    ],
)
def test_what_is_no_threshold_is_refused(known: Thresholds, text: str) -> None:
    with pytest.raises(UsageProblem, match="eu-gpai") as caught:
        known.get(text)
    assert "\n" not in str(caught.value)


def _overlay(path: Path, **change: object) -> Path:
    entry = {
        "id": "house-rule",
        "title": "House rule",
        "jurisdiction": "site",
        "flop": "5e20",
        "unit": "floating-point operations",
        "comparison": ">=",
        "counts": "one job",
        "status": "in force",
        "citation": "rules of the centre, 4",
        "basis": "text",
        "source": "intranet",
        "revision": "2026",
        "verified": True,
        **change,
    }
    path.write_text(json.dumps({"schema": "slurm-trace/registry/1", "thresholds": [entry]}))
    return path


def test_a_site_adds_its_own(known: Thresholds, tmp_path: Path) -> None:
    ours = Thresholds.load(_overlay(tmp_path / "o.json"))
    assert ours.get("house-rule").flop == 5 * 10**20
    assert ours.digest != known.digest


@pytest.mark.parametrize("flop", ["1e99", "x", "1e23/0", "-1", "0"])
def test_a_wrong_value_is_refused_with_file_and_entry(tmp_path: Path, flop: str) -> None:
    path = _overlay(tmp_path / "o.json", flop=flop)
    with pytest.raises(InputProblem, match=r"o\.json: thresholds entry.*house-rule"):
        Thresholds.load(path)


# The commands


def _run(command: object, *args: str) -> Result:
    result = CliRunner().invoke(command, args, catch_exceptions=False)  # type: ignore[arg-type]
    assert result.exit_code == 0
    return result


def test_thresholds_in_every_format(known: Thresholds) -> None:
    table = _run(thresholds).stdout
    assert "eu-gpai" in table
    assert "Art. 51(2)" in table
    document = json.loads(_run(thresholds, "--json").stdout)
    assert document["schema"] == "slurm-trace/thresholds/1"
    assert document["digest"] == known.digest
    first = document["thresholds"][0]
    assert (first["id"], first["flop"], first["exact"]) == ("eu-gpai", 10**23, "1e23")
    assert {"source", "revision", "basis", "verified", "citation", "counts", "status"} <= set(first)
    rows = list(csv.DictReader(io.StringIO(_run(thresholds, "--format", "csv").stdout)))
    assert [row["id"] for row in rows] == [t.id for t in known]
    assert rows[0]["flop"] == str(10**23)


def test_rates_in_every_format() -> None:
    registry = Rates.load()
    assert "nvidia-h100-sxm5-80gb" in _run(rates).stdout
    document = json.loads(_run(rates, "--json").stdout)
    assert document["schema"] == "slurm-trace/rates/1"
    assert document["digest"] == registry.digest
    assert document["ceilings_flop_s"]["nvidia-h100-sxm5-80gb"]["max_any_op"] == 4_549_754_880_000_000
    assert len(document["registry"]["devices"]) == len(registry.devices)
    rows = list(csv.DictReader(io.StringIO(_run(rates, "--format", "csv").stdout)))
    assert len(rows) == len(registry.devices) + len(registry.cpu_cores)
    assert all(row["source"] and row["verified"] in ("True", "False") for row in rows)


def test_what_rates_prints_is_itself_an_overlay(tmp_path: Path) -> None:
    printed = json.loads(_run(rates, "--json").stdout)
    path = tmp_path / "all.json"
    path.write_text(json.dumps(printed["registry"]))
    assert Rates.load(path).digest == printed["digest"]


def test_a_label_shows_what_it_is_taken_for() -> None:
    document = json.loads(_run(rates, "h100", "--json").stdout)
    assert document["resolution"]["how"] == "ambiguous"
    assert document["resolution"]["ceiling_id"] == "nvidia-h100-sxm5-80gb"
    assert set(document["ceilings_flop_s"]) == {
        "nvidia-h100-pcie",
        "nvidia-h100-sxm5-80gb",
        "nvidia-h100-sxm5-64gb",
        "nvidia-h100-nvl",
    }
    assert "x86-zen2" in _run(rates, "AMD EPYC 7742 64-Core Processor").stdout


def test_one_device_in_full_and_an_unknown_one() -> None:
    text = _run(rates, "--device", "nvidia-a30").stdout
    assert "4g.24gb: 56" in text
    with pytest.raises(UsageProblem, match="slurm-trace rates"):
        CliRunner().invoke(rates, ["--device", "nope"], catch_exceptions=False)
