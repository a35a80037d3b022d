"""AMD SMI: on a stand-in whose names and parameters are held against the text of the real module."""

from __future__ import annotations

import ast
import importlib.metadata
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_trace.node.devices.amdsmi import AmdSmiSource
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone


class _Problem(Exception):
    def __init__(self, code: int) -> None:
        self.err_code = code


class _Clock(IntEnum):
    GFX = 1
    MEM = 5


class _Card:
    def __init__(self, place: int) -> None:
        self.uuid = f"e0ff74a1-0000-1000-80d8-00000000000{place}"
        self.broken: dict[str, int] = {}
        self.power: dict[str, Any] = {"current_socket_power": 300, "average_socket_power": "N/A"}
        self.activity: dict[str, Any] = {"gfx_activity": 97, "umc_activity": 33, "mm_activity": "N/A"}


def _smi(*cards: _Card) -> Any:
    def of(function: str, answer: Any) -> Any:
        def call(card: _Card, *rest: Any) -> Any:
            code = card.broken.get(function, card.broken.get("*"))
            if code is not None:
                raise _Problem(code)
            return answer(card, *rest)

        return call

    answers = {
        "amdsmi_get_gpu_device_uuid": lambda card: card.uuid,
        "amdsmi_get_gpu_asic_info": lambda card: {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_gpu_enumeration_info": lambda card: {"drm_render": 128, "drm_card": 0},
        "amdsmi_get_gpu_device_bdf": lambda card: "0000:0c:00.0",
        "amdsmi_get_gpu_driver_info": lambda card: {"driver_version": "6.8.5"},
        "amdsmi_get_gpu_activity": lambda card: card.activity,
        "amdsmi_get_power_info": lambda card: card.power,
        "amdsmi_get_energy_count": lambda card: {
            "energy_accumulator": 1_000_000,
            "counter_resolution": 15.259,
        },
        "amdsmi_get_clock_info": lambda card, kind: {"clk": 132 * kind, "max_clk": 2100, "min_clk": 0},
        "amdsmi_get_temp_metric": lambda card, sensor, metric: 55,
        "amdsmi_get_gpu_memory_usage": lambda card, kind: 10**9,
        "amdsmi_get_gpu_memory_total": lambda card, kind: 2 * 10**11,
        "amdsmi_get_gpu_process_list": lambda card: [{"pid": 1}, {"pid": 2}],
    }
    return SimpleNamespace(
        AmdSmiException=_Problem,
        AmdSmiClkType=_Clock,
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        AmdSmiMemoryType=SimpleNamespace(VRAM=0),
        __version__="7.0.2",
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: list(cards),
        **{name: of(name, answer) for name, answer in answers.items()},
    )


def _opened(*cards: _Card) -> AmdSmiSource:
    source = AmdSmiSource(_smi(*cards))
    source.open()
    return source


def test_readings_in_the_units_of_the_table() -> None:
    card = _Card(0)
    source = _opened(card)
    (info,) = source.devices()
    assert (info.name, info.minor, info.pci, info.max_sm_mhz, info.power_scope) == (
        "AMD Instinct MI300X", 128, "0000:0c:00.0", 2100, "module",
    )  # fmt: skip
    reading = source.read(card.uuid)
    assert reading.get("utilization_pct") == 97
    assert (reading.get("power_mw"), reading.get("module_power_mw")) == (None, 300_000)
    assert reading.get("energy_mj") == source.counters(card.uuid).get("energy_mj") == 15_259
    assert (reading.get("sm_clock_mhz"), reading.get("memory_clock_mhz")) == (132, 660)
    assert reading.get("process_count") == 2
    assert reading.reasons["throttle_reasons"] == info.capability["throttle_reasons"] == "not_supported"
    assert not source.faults
    assert source.info.driver_version == "6.8.5"


def test_not_available_is_null_and_a_mean_stands_in_for_the_moment() -> None:
    card = _Card(0)
    card.power = {"current_socket_power": "N/A", "average_socket_power": 250}
    card.activity = {"gfx_activity": "N/A", "umc_activity": 65_535}
    source = _opened(card)
    reading = source.read(card.uuid)
    assert reading.get("module_power_mw") == 250_000
    assert (reading.get("utilization_pct"), reading.reasons["utilization_pct"]) == (None, "no_data")
    assert (reading.get("memory_utilization_pct"), reading.reasons["memory_utilization_pct"]) == (
        None,
        "sentinel",
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [(2, "not_supported"), (10, "no_permission"), (8, "timeout"), (7, "unknown_error"), (41, "other_error")],
)
def test_one_failing_call_spoils_one_field(code: int, reason: str) -> None:
    card = _Card(0)
    source = _opened(card)
    card.broken["amdsmi_get_power_info"] = code
    reading = source.read(card.uuid)
    assert reading.reasons["module_power_mw"] == reason
    assert reading.get("utilization_pct") == 97
    assert source.faults[card.uuid, "module_power_mw", reason] == 1


def test_a_card_that_answers_nothing_is_lost_and_others_go_on() -> None:
    first, second = _Card(0), _Card(1)
    source = _opened(first, second)
    first.broken["*"] = 7
    for method in (source.read, source.counters):
        with pytest.raises(DeviceLost):
            method(first.uuid)
    assert source.read(second.uuid).get("utilization_pct") == 97
    with pytest.raises(NotSupported):
        source.ring(second.uuid, "power_mw", 0)
    assert source.xid_events() == []
    source.close()
    with pytest.raises(SourceGone):
        source.read(second.uuid)


def test_without_the_library_the_source_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real module, on a machine without ROCm.
    with pytest.raises(SourceGone) as caught:
        AmdSmiSource().open()
    assert caught.value.reason == "library_missing"
    smi = _smi()
    smi.amdsmi_init = lambda: (_ for _ in ()).throw(_Problem(34))
    with pytest.raises(SourceGone) as caught:
        AmdSmiSource(smi).open()
    assert caught.value.reason == "driver_not_loaded"


def test_the_stand_in_has_the_names_of_the_real_module() -> None:
    files = {file.name: file.locate() for file in importlib.metadata.files("amdsmi") or []}
    tree = ast.parse(Path(str(files["amdsmi_interface.py"])).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    wants = {
        "amdsmi_get_gpu_activity": (1, ("gfx_activity", "umc_activity")),
        "amdsmi_get_power_info": (1, ("current_socket_power", "average_socket_power")),
        "amdsmi_get_energy_count": (1, ("energy_accumulator", "counter_resolution")),
        "amdsmi_get_clock_info": (2, ("clk", "max_clk")),
        "amdsmi_get_temp_metric": (3, ()),
        "amdsmi_get_gpu_memory_usage": (2, ()),
        "amdsmi_get_gpu_memory_total": (2, ()),
        "amdsmi_get_gpu_process_list": (1, ()),
        "amdsmi_get_gpu_device_uuid": (1, ()),
        "amdsmi_get_gpu_device_bdf": (1, ()),
        "amdsmi_get_gpu_asic_info": (1, ("market_name",)),
        "amdsmi_get_gpu_enumeration_info": (1, ("drm_render",)),
        "amdsmi_get_gpu_driver_info": (1, ("driver_version",)),
        "amdsmi_get_processor_handles": (0, ()),
        "amdsmi_shut_down": (0, ()),
    }
    for name, (count, keys) in wants.items():
        assert len(functions[name].args.args) == count, name
        texts = {node.value for node in ast.walk(functions[name]) if isinstance(node, ast.Constant)}
        assert texts.issuperset(keys), name
    for name, member in (
        ("AmdSmiClkType", "GFX"), ("AmdSmiClkType", "MEM"), ("AmdSmiTemperatureType", "HOTSPOT"),
        ("AmdSmiTemperatureMetric", "CURRENT"), ("AmdSmiMemoryType", "VRAM"),
    ):  # fmt: skip
        targets = [node.targets[0] for node in classes[name].body if isinstance(node, ast.Assign)]
        assert member in [target.id for target in targets if isinstance(target, ast.Name)]
