"""Figures of a spool file, by hand: what is not measured is None, and time always adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.store.spool_check import read_checked, reading
from slurm_trace.store.spool_copy import sealed_as
from slurm_trace.store.spool_figures import DeviceFigures, figures_of
from slurm_trace.store.spool_values import Damaged
from support.spools import T0, card, counter, gap, samples, spool


def figures(path: Path) -> dict[str, DeviceFigures]:
    checked = read_checked(path, path.stat().st_size, sealed_as(path.name) or "")
    with reading(path):
        return figures_of(checked)


def only(path: Path) -> DeviceFigures:
    return figures(path)["GPU-0"]


def one(tmp_path: Path, columns: list | None = None, **more) -> DeviceFigures:
    return only(spool(tmp_path, columns={"GPU-0": columns} if columns else {}, devices=[card()], **more))


def test_a_plain_lease(tmp_path):
    found = one(tmp_path, samples(range(11, 112), utilization_pct=40, power_mw=500_000, sm_clock_mhz=1755))
    assert (found.covered_ms, found.gap_ms, found.samples) == (100_000, 0, 100)
    assert (found.utilization_ms, found.utilization_pct_ms, found.utilization_max_pct) == (
        100_000,
        4_000_000,
        40,
    )
    assert (found.energy_mj, found.energy_from) == (50_000_000, "power")
    assert (found.sm_clock_top_mhz, found.sm_clock_max_mhz, found.power_max_mw) == (1755, 1980, 500_000)
    assert found.memory_used_max_bytes is None


def test_what_was_not_measured_is_none_and_not_nought(tmp_path):
    found = one(tmp_path, samples(range(11, 112)))
    assert found.covered_ms == 100_000
    assert (found.utilization_ms, found.utilization_max_pct) == (0, None)
    assert (found.energy_mj, found.energy_from, found.power_max_mw, found.sm_clock_top_mhz) == (None,) * 4
    idle = one(tmp_path, samples(range(11, 112), utilization_pct=0, power_mw=0))
    assert (idle.utilization_ms, idle.utilization_max_pct, idle.energy_mj) == (100_000, 0, 0)


def test_no_sample_at_all_is_a_gap_from_begin_to_end(tmp_path):
    found = one(tmp_path)
    assert (found.covered_ms, found.gap_ms, found.samples, found.hours[T0 // 3600 * 3600].gap_ms) == (
        0,
        100_000,
        0,
        100_000,
    )


@pytest.mark.parametrize(
    ("gaps", "covered_s"),
    [
        ([gap(30, 50)], 80),
        ([gap(30, 50), gap(40, 60), gap(45, 46)], 70),
        ([gap(30, 50, None)], 80),
        ([gap(30, 50, "GPU-1")], 100),
        ([gap(100, None)], 90),
        ([gap(0, 20), gap(105, 500)], 85),
        ([gap(30.25, 30.75)], 99.5),
    ],
)
def test_gaps_are_not_covered(tmp_path, gaps, covered_s):
    times = range(11, 112)
    path = spool(
        tmp_path,
        columns={uuid: samples(times, utilization_pct=100) for uuid in ("GPU-0", "GPU-1")},
        gaps=gaps,
    )
    found = only(path)
    assert (found.covered_ms, found.gap_ms) == (covered_s * 1000, (100 - covered_s) * 1000)
    assert found.utilization_pct_ms == covered_s * 100_000


def test_a_long_way_between_samples_and_the_time_after_the_last_are_gaps(tmp_path):
    assert one(tmp_path, samples([11, 12, 100, 110], utilization_pct=1)).covered_ms == 12_000
    assert one(tmp_path, samples([11, 40], utilization_pct=1)).covered_ms == 30_000


def test_samples_out_of_order_and_twice(tmp_path):
    found = one(
        tmp_path, samples([40, 11, 30, 30, 200, 20, 110, 5], utilization_pct=[1, 2, 3, 99, 90, 5, 6, 80])
    )
    assert found.samples == 5, "none before the begin, none after the end but the one that closes it"
    assert found.utilization_max_pct == 6


def test_end_is_not_known(tmp_path):
    found = one(tmp_path, samples(range(11, 61), utilization_pct=7), end=None, closed="boot")
    assert (found.covered_ms, found.gap_ms) == (50_000, 0)


def test_hours_add_up(tmp_path):
    hour = T0 // 3600 * 3600
    begin = hour + 3600 - T0 - 1800
    times = [begin + 0.5 + n * 0.7 for n in range(9000)]
    path = spool(
        tmp_path, begin=begin, end=begin + 6000, devices=[card()], gaps=[gap(begin + 1000, begin + 3000)],
        columns={"GPU-0": samples(times, utilization_pct=[n % 101 for n in range(9000)], power_mw=100_000,
                                  energy_mj=[n * 70_000 for n in range(9000)])},
    )  # fmt: skip
    found = only(path)
    assert sorted(found.hours) == [hour, hour + 3600, hour + 7200][: len(found.hours)]
    parts = found.hours.values()
    for name in ("covered_ms", "gap_ms", "utilization_ms", "utilization_pct_ms"):
        assert sum(getattr(part, name) for part in parts) == getattr(found, name), name
    assert [part.covered_ms + part.gap_ms for part in parts] == [1_800_000, 3_600_000, 600_000]
    assert found.gap_ms == 2_000_000
    assert (found.energy_from, {part.energy_from for part in parts}) == ("samples", {"samples"})
    assert sum(part.energy_mj for part in parts) == found.energy_mj
    assert found.energy_mj == pytest.approx(6000 / 0.7 * 70_000, rel=1e-3)


def test_the_wall_clock_decides_which_hour_it_is(tmp_path):
    found = one(tmp_path, samples(range(11, 112), skew_ms=7_200_000))
    assert list(found.hours) == [(T0 + 7200) // 3600 * 3600]


@pytest.mark.parametrize(
    ("readings", "energy_mj", "resets"),
    [
        ([(10, 1000), (110, 5000)], 4000, 0),
        ([(10, 1000), (60, None), (110, 5000)], 4000, 0),
        # the driver was loaded anew: what it counted since then is the least that was used
        ([(10, 9000), (60, 9500), (80, 200), (110, 700)], 1200, 1),
        # more than any card can use: it began anew, or was never true
        ([(10, 0), (60, 10**15), (110, 10**15 + 5)], 5, 1),
    ],
)
def test_energy_of_the_counter(tmp_path, readings, energy_mj, resets):
    reads = [counter(at, energy_mj=value) for at, value in readings]
    found = one(tmp_path, samples(range(11, 112), power_mw=1_000_000, energy_mj=17), counters=reads)
    assert (found.energy_mj, found.energy_from, found.energy_resets) == (energy_mj, "counter", resets)


def test_energy_of_one_reading_is_none(tmp_path):
    found = one(tmp_path, samples(range(11, 112)), counters=[counter(10, energy_mj=1000)])
    assert (found.energy_mj, found.energy_first_mj, found.energy_last_mj) == (None, 1000, 1000)


def test_sampled_energy_begins_anew(tmp_path):
    values = [50_000 + 1000 * n for n in range(50)] + [1000 * n for n in range(51)]
    found = one(tmp_path, samples(range(11, 112), energy_mj=values))
    assert (found.energy_mj, found.energy_from, found.energy_resets) == (98_000, "samples", 1)


def test_values_that_cannot_be_true_are_none_and_counted(tmp_path):
    broken = [101, 2**31 - 1, 0xFFFFFFFF] + [30] * 98
    found = one(tmp_path, samples(range(11, 112), utilization_pct=broken, power_mw=[2**64 - 1] * 101))
    assert (found.utilization_max_pct, found.utilization_ms) == (30, 97_000)
    assert found.invalid == 3 + 101
    assert found.power_max_mw is None


def test_highest_clock_that_the_driver_allows(tmp_path):
    found = one(tmp_path, samples([50]), counters=[counter(10, sm_clock_max_mhz=2100)])
    assert (found.sm_clock_max_mhz, found.sm_clock_top_mhz) == (2100, None)


def test_parts_of_a_card_have_no_power_of_their_own(tmp_path):
    part = DeviceInfo(
        "MIG-1", "H100 MIG 1g", 0, 0, None, parent_uuid="GPU-0", mig_profile="1g.10gb", sm_count=16
    )
    path = spool(
        tmp_path, devices=[part], columns={"MIG-1": samples(range(11, 112), memory_used_bytes=1 << 20)}
    )
    found = figures(path)["MIG-1"]
    assert (found.energy_mj, found.utilization_max_pct, found.memory_used_max_bytes) == (None, None, 1 << 20)


def test_samples_that_reach_too_far(tmp_path):
    with pytest.raises(Damaged, match="further"):
        one(tmp_path, samples([11, 10**9]), end=None, closed="boot")


@pytest.mark.parametrize(
    ("processes", "most"),
    [
        (None, None),
        (0, 0),
        (3, 3),
        ([None] * 50 + [0] * 51, 0),
        ([0] * 99 + [2, 0], 2),
        ([200_000] * 101, None),
    ],
)
def test_most_processes_at_once(tmp_path, processes, most):
    assert one(tmp_path, samples(range(11, 112), process_count=processes)).process_max == most
