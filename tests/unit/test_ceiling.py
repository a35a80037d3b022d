"""Ceilings recomputed by hand, and what must hold for every device."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.analysis.ceiling import BASES, Architecture, DeviceRate, Rated, own_ceiling
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.verdicts import margin_of

RATES = Rates.load()
DEVICES = list(RATES.devices)
MHZ = 10**6
TERA = 10**12
INTEGER = ("int8", "int4")


def test_the_h100_runs_faster_than_its_sheet() -> None:
    h100 = RATES.device("nvidia-h100-sxm5-80gb")
    pipes = h100.architecture
    assert pipes is not None
    assert h100.sheet.dense["bf16"] == Decimal("989.4")
    # 132 SMs x 4096 at the clock of the sheet is the sheet's figure, at the clock of the card it is 8 % more.
    assert pytest.approx(989.4 * TERA, rel=1e-4) == 132 * 4096 * 1830 * MHZ
    assert 132 * pipes.matrix.dense["bf16"] * 1980 * MHZ == 1_070_530_560_000_000
    assert (
        RATES.ceiling_ops_s(h100.id, "max_any_op")
        == 132 * (16384 + 1024) * 1980 * MHZ
        == 4_549_754_880_000_000
    )
    assert RATES.ceiling_ops_s(h100.id, "max_fp_sparse") == 132 * (16384 + 512) * 1980 * MHZ
    assert RATES.ceiling_ops_s(h100.id, "max_fp_dense") == 132 * (8192 + 512) * 1980 * MHZ
    assert RATES.ceiling_ops_s(h100.id, "bf16_dense") == 989_400_000_000_000


@pytest.mark.parametrize(
    ("device", "units", "matrix", "vector", "mhz"),
    [
        ("nvidia-a100-sxm4-80gb", 108, 16384, 1024, 1410),
        ("nvidia-a100-pcie-40gb", 108, 16384, 1024, 1410),
        ("nvidia-v100-sxm2", 80, 1024, 1024, 1530),
        ("nvidia-v100s-pcie", 80, 1024, 1024, 1597),
        ("nvidia-v100-pcie", 80, 1024, 1024, 1530),
        ("nvidia-t4", 40, 4096, 1024, 1590),
        ("nvidia-a30", 56, 16384, 1024, 1440),
        ("nvidia-a40", 84, 8192, 1024, 1740),
        ("nvidia-l40s", 142, 8192, 1024, 2520),
        ("nvidia-rtx-4090", 128, 8192, 1024, 3165),
        ("nvidia-h100-pcie", 114, 16384, 1024, 1755),
        ("nvidia-h200-sxm", 132, 16384, 1024, 1980),
        ("nvidia-gh200-96gb", 132, 16384, 1024, 1980),
        ("nvidia-b200", 148, 65536, 1024, 1965),
        ("nvidia-b300", 148, 65536, 1024, 2032),
        ("nvidia-p100-pcie", 56, 0, 1024, 1329),
        ("amd-mi100", 120, 1024, 1024, 1502),
        ("amd-mi250x-gcd", 110, 1024, 1024, 1700),
        ("amd-mi250x-module", 220, 1024, 1024, 1700),
        ("amd-mi300x", 304, 8192, 1024, 2100),
        ("amd-mi355x", 256, 32768, 1024, 2400),
        ("intel-max-1550", 128, 16384, 512, 1600),
    ],
)
def test_units_times_operations_times_clock(
    device: str, units: int, matrix: int, vector: int, mhz: int
) -> None:
    assert RATES.ceiling_ops_s(device, "max_any_op") == units * (matrix + vector) * mhz * MHZ


def test_without_a_maximum_clock_the_sheet_clock_is_raised() -> None:
    assert RATES.ceiling_ops_s("nvidia-l40", "max_any_op") == ceil(
        Fraction(142 * (8192 + 1024) * 2490 * MHZ) * Fraction(27, 20)
    )


def test_without_units_the_sheet_rate_is_raised_and_the_vector_pipes_are_added() -> None:
    unit_hz = Fraction(20_000 * TERA, 65536) * Fraction(27, 20)
    assert RATES.ceiling_ops_s("nvidia-gb300", "max_any_op") == ceil(unit_hz * (65536 + 1024))
    assert RATES.ceiling_ops_s("google-tpu-v5e", "max_any_op") == ceil(
        Fraction(4323, 10) * TERA * Fraction(27, 20)
    )


def test_the_h20_is_not_bounded_below_its_sheet() -> None:
    """Its sheet's FP32 rate is more than 78 SMs do at the clock of its family."""
    h20 = RATES.device("nvidia-h20")
    assert h20.sheet.dense["fp32"] * TERA > 78 * 256 * 1980 * MHZ
    assert h20.sheet_clock_mhz is not None
    assert h20.sheet_clock_mhz * 78 * 256 * MHZ >= h20.sheet.dense["fp32"] * TERA


def test_blackwell_ultra_gave_its_integers_up() -> None:
    b200, b300 = (RATES.device(f"nvidia-b{n}00").architecture for n in (2, 3))
    assert b200 is not None
    assert b300 is not None
    assert b300.matrix.dense["int8"] * 16 == b200.matrix.dense["int8"]
    assert b300.matrix.dense["fp4"] * 2 == b200.matrix.dense["fp4"] * 3
    assert b300.matrix.sparse["fp4"] == b200.matrix.sparse["fp4"]


def test_half_precision_counts_at_its_faster_accumulation() -> None:
    for device in ("nvidia-l40", "nvidia-rtx-3090", "nvidia-rtx-4090", "nvidia-rtx-5090"):
        pipes = RATES.device(device).architecture
        assert pipes is not None
        assert pipes.matrix.dense["fp16"] == 1024


def test_the_a100_counts_its_int4() -> None:
    a100 = RATES.device("nvidia-a100-sxm4-80gb")
    assert a100.sheet.sparse["int4"] == 2496
    assert RATES.ceiling_ops_s(a100.id, "max_any_op") > 2496 * TERA


@pytest.mark.parametrize("device", DEVICES)
def test_no_ceiling_is_below_a_rate_of_the_sheet(device: str) -> None:
    rated = RATES.device(device).sheet
    top = RATES.ceiling_ops_s(device, "max_any_op")
    sparse = RATES.ceiling_ops_s(device, "max_fp_sparse")
    dense = RATES.ceiling_ops_s(device, "max_fp_dense")
    for name, rate in rated.dense.items():
        assert top >= rate * TERA
        assert name in INTEGER or dense >= rate * TERA
    for name, rate in rated.sparse.items():
        assert top >= rate * TERA
        assert name in INTEGER or sparse >= rate * TERA


@pytest.mark.parametrize("device", DEVICES)
def test_a_wider_basis_never_lowers_a_ceiling(device: str) -> None:
    ceilings = [RATES.ceiling_ops_s(device, basis) for basis in BASES]
    assert ceilings == sorted(ceilings, reverse=True)
    assert ceilings[-1] > 0


@pytest.mark.parametrize("core", RATES.cpu_cores)
def test_a_wider_basis_never_lowers_the_ceiling_of_a_core(core: str) -> None:
    ceilings = [RATES.cpu_cores[core].ceiling_ops_s(basis) for basis in BASES]
    assert ceilings == sorted(ceilings, reverse=True)


@pytest.mark.parametrize("device", DEVICES)
def test_a_bound_taken_from_another_device_holds(device: str) -> None:
    above = RATES.device(device).bounded_by
    for basis in BASES:
        assert above is None or RATES.ceiling_ops_s(device, basis) >= RATES.ceiling_ops_s(above, basis)


def test_sparse_rates_are_at_most_twice_the_dense_ones_and_never_less() -> None:
    for entry in RATES.sections["architectures"].values():
        matrix = entry["matrix_ops_per_clock"]
        for name, sparse in matrix["sparse"].items():
            assert matrix["dense"][name] <= sparse <= 2 * matrix["dense"][name], entry["id"]


# GPU-hours after which a rule-out stops (threshold / rate), from the datasheet figures. Rates in Tera-op/s.
HOURS = [
    ("nvidia-v100-sxm2", "dense", "fp16", 125, (74_074, 222_222)),
    ("nvidia-a100-sxm4-80gb", "dense", "bf16", 312, (29_677, 89_031)),
    ("nvidia-a100-sxm4-80gb", "sparse", "int8", 1248, (7_419, 22_258)),
    ("nvidia-h100-sxm5-80gb", "dense", "bf16", "989.4", (9_358, 28_075)),
    ("nvidia-h100-sxm5-80gb", "sparse", "fp8", "3957.8", (2_339, 7_018)),
    ("nvidia-b200", "sparse", "fp4", 18_000, (514, 1_543)),
    ("nvidia-gb300", "sparse", "fp4", 20_000, (463, 1_389)),
]


@pytest.mark.parametrize(("device", "kind", "precision", "rate", "hours"), HOURS)
def test_the_hours_at_which_a_rule_out_stops(
    device: str, kind: str, precision: str, rate: int | str, hours: tuple[int, int]
) -> None:
    figure = getattr(RATES.device(device).sheet, kind)[precision]
    assert figure == Decimal(rate)
    per_hour = Fraction(figure) * TERA * 3600
    assert round(Fraction(10**23, 3) / per_hour) == pytest.approx(hours[0], abs=1)
    assert round(Fraction(10**23) / per_hour) == pytest.approx(hours[1], abs=1)


def test_units_that_are_left_out_stay_within_the_margin() -> None:
    """Only 1-bit products would pass it: they are left out by name (the assumption units_left_out)."""
    named = {item["unit"] for item in RATES.sections["general"]["general"]["left_out"]}
    assert named == {"special_function", "one_bit", "ray_tracing", "texture", "video"}
    margin = margin_of("0.05")
    for device in RATES.devices.values():
        pipes = device.architecture
        if pipes is None:
            continue
        assert set(pipes.left_out) <= named - {"one_bit"}
        top = pipes.matrix.largest("max_any_op") + pipes.vector("max_any_op")
        assert sum(pipes.left_out.values()) < top * margin, device.id
    nvidia = [d.architecture for d in RATES.devices.values() if d.id.startswith("nvidia-") and d.architecture]
    assert all("special_function" in a.left_out for a in nvidia)


# Properties of the arithmetic itself

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", *INTEGER)
rated = st.builds(
    Rated,
    st.dictionaries(st.sampled_from(PRECISIONS), st.integers(1, 10**5)),
    st.dictionaries(st.sampled_from(PRECISIONS), st.integers(1, 10**5)),
)


@st.composite
def devices(draw: st.DrawFn) -> DeviceRate:
    vector = draw(st.integers(1, 1024))
    pipes = Architecture("a", draw(rated), vector, vector + draw(st.integers(0, 1024)), {}, verified=True)
    allowance = draw(st.integers(0, 100))
    return DeviceRate(
        id="d",
        vendor="v",
        name="n",
        kind="gpu",
        counted_as="card",
        architecture=draw(st.none() | st.just(pipes)),
        units=draw(st.none() | st.integers(1, 300)),
        max_clock_mhz=draw(st.none() | st.integers(1, 4000)),
        sheet_clock_mhz=draw(st.none() | st.integers(1, 4000)),
        sheet=draw(rated),
        allowance_fp=allowance,
        allowance_any=allowance + draw(st.integers(0, 100)),
        bounded_by=None,
        nvml_names=(),
        slurm_types=(),
        verified=True,
        entry={},
    )


@given(devices())
def test_any_device_keeps_to_the_order_of_the_bases_and_to_its_sheet(device: DeviceRate) -> None:
    ceilings = [own_ceiling(device, basis, Fraction(27, 20)) for basis in BASES]
    assert ceilings == sorted(ceilings, reverse=True)
    for basis in BASES[:3]:
        assert own_ceiling(device, basis, Fraction(27, 20)) >= device.sheet.largest(basis) * TERA
    if device.units and device.max_clock_mhz and device.architecture:
        pipes = device.architecture
        product = (
            (pipes.matrix.largest(BASES[0]) + pipes.vector_any) * device.units * device.max_clock_mhz * MHZ
        )
        assert ceilings[0] >= product


@given(st.text(max_size=40))
def test_any_label_has_an_answer(label: str) -> None:
    fit = RATES.resolve(label)
    assert fit.device_ids
    assert fit.ceiling_id in fit.device_ids
    assert all(fit.ceilings[b] > 0 for b in BASES)
