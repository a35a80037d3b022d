"""Recorded traces, and scenario files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_trace.errors import InputProblem
from slurm_trace.node.devices.replay import SCHEMA, replay
from slurm_trace.node.devices.scenario import load
from slurm_trace.node.errors import DeviceLost, NotSupported, SourceGone

HEAD = {
    "schema": SCHEMA,
    "devices": [{"uuid": "GPU-0", "name": "NVIDIA H100", "index": 0, "minor": 3, "pci": None}],
}


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _trace(folder: Path, *lines: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *lines)))
    return path


def test_the_latest_line_up_to_now_is_what_is_read(tmp_path: Path) -> None:
    path = _trace(
        tmp_path,
        {
            "t": 100.5,
            "uuid": "GPU-0",
            "sample": {"utilization_pct": 0, "power_mw": 70_000},
            "counters": {"energy_mj": 5},
        },
        {"t": 101, "uuid": "GPU-0", "sample": {"utilization_pct": 4_294_967_295}},
        {"t": 102, "uuid": "GPU-0", "error": "lost"},
    )
    clock = _Clock()
    source = replay(path, clock)
    with pytest.raises(SourceGone):
        source.read("GPU-0")
    source.open()
    assert [(info.uuid, info.minor) for info in source.devices()] == [("GPU-0", 3)]
    assert set(source.read("GPU-0").reasons.values()) == {"no_data"}
    clock.now = 100.5
    reading = source.read("GPU-0")
    assert (reading.get("utilization_pct"), reading.get("power_mw"), reading.get("energy_mj")) == (
        0,
        70_000,
        None,
    )
    assert source.counters("GPU-0").get("energy_mj") == 5
    clock.now = 101.9
    assert source.read("GPU-0").reasons["utilization_pct"] == "sentinel"
    clock.now = 102
    with pytest.raises(DeviceLost):
        source.read("GPU-0")
    with pytest.raises(DeviceLost):
        source.read("GPU-9")
    with pytest.raises(NotSupported):
        source.ring("GPU-0", "power_mw", 0)
    source.close()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"t": 1, "uuid": "GPU-9"}, "line 2"),
        ({"uuid": "GPU-0"}, "line 2"),
        ("nonsense", "line 2"),
    ],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path: Path, line: object, words: str) -> None:
    with pytest.raises(InputProblem, match=words):
        replay(_trace(tmp_path, line), _Clock())


def test_lines_out_of_order_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputProblem, match="order"):
        replay(_trace(tmp_path, {"t": 2, "uuid": "GPU-0"}, {"t": 1, "uuid": "GPU-0"}), _Clock())
    other = tmp_path / "other.json"
    other.write_text('{"schema": "something/else"}\n')
    with pytest.raises(InputProblem, match="schema"):
        replay(other, _Clock())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("banana 1 2", "no such directive"),
        ("gpu H900 GPU-1", "H900"),
        ("work 0 0 10 hmma=0.7 imma=0.7", "pipes may not pass"),
        ("work 0 0 10 busy=0.5 hmma=0.6", "pipes may not pass"),
        ("work 0 0 10 busy=1.5", "busy"),
        ("work 0 0 10 clock=3000", "clock passes"),
        ("work 0 0 10 precision=fp3", "precision"),
        ("work 0 0 10 speed=9", "no such key"),
        ("work 0.0 0 10", "MIG"),
        ("set 0 colour 0 1 2", "no such reading"),
        ("fault 0 DeviceGetName 0 1 somehow", "invalid literal"),
        ("cycles median", "mean or sum"),
        ("process 5 0 1 2 3", "line 2"),
    ],
)
def test_a_wrong_line_of_a_scenario_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "scenario.txt"
    path.write_text(f"gpu H100 GPU-0\n{line}\n")
    with pytest.raises(InputProblem, match=words) as caught:
        load(path)
    assert "line 2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_work_may_not_overlap_itself(tmp_path: Path) -> None:
    path = tmp_path / "scenario.txt"
    path.write_text("gpu H100 GPU-0\nwork 0 0 10\nwork 0 9 20\n")
    with pytest.raises(InputProblem, match="overlaps"):
        load(path)
