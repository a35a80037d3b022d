"""Slurm's index → minor, or None where the file does not prove it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_trace.node.gres import expand, order_of, read_order

CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "2205" / "gres.conf"


def test_recorded_gres_conf() -> None:
    assert read_order(CAPTURE, "n2").minors == {index: index for index in range(8)}
    assert read_order(CAPTURE, "n9").minors is None


def test_index_is_a_place_in_the_list_not_the_minor() -> None:
    assert order_of("Name=gpu File=/dev/nvidia[4-7]\n", "n1").minors == {0: 4, 1: 5, 2: 6, 3: 7}


def test_list_is_sorted_by_file_name() -> None:
    text = "Name=gpu File=/dev/nvidia3\nName=gpu File=/dev/nvidia[1-2]\nName=gpu File=/dev/nvidia0\n"
    assert order_of(text, None).minors == {0: 0, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    "text",
    [
        "Name=gpu File=/dev/nvidia[0-15]",
        "Name=gpu Type=zz File=/dev/nvidia0\nName=gpu Type=aa File=/dev/nvidia1",
        "Name=gpu Type=aa File=/dev/nvidia1\nName=gpu Type=zz File=/dev/nvidia0",
        "Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia0",
        "Name=gpu File=/dev/dri/renderD128",
        "Name=gpu Count=4",
        "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21",
        "Include other.conf\nName=gpu File=/dev/nvidia0",
        "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-3]",
        "NodeName=n[1-2] Name=gpu File=/dev/nvidia0",
        "0 /dev/nvidia1\n1 /dev/nvidia1",
        "",
    ],
)
def test_what_proves_nothing(text: str) -> None:
    order = order_of(text, None)
    assert order.minors is None
    assert order.reason
    assert order.resolve([0, 1, 2, 3]) is None


def test_types_in_the_order_of_their_files() -> None:
    text = "Name=gpu Type=a100 File=/dev/nvidia[0-1]\nName=gpu Type=h100 File=/dev/nvidia[2-3]"
    assert order_of(text, None).minors == {0: 0, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    "text", ["AutoDetect=nvml", "autodetect = NVML", "NodeName=n[1-4] AutoDetect=nvml Name=gpu"]
)
def test_autodetect_has_the_order_of_nvml(text: str) -> None:
    order = order_of(text, "n1")
    assert order.minors is None
    assert order.resolve([3, 2, 1, 0]) == {0: 3, 1: 2, 2: 1, 3: 0}
    assert order.resolve([3, None]) is None
    assert order.resolve([]) is None


def test_autodetect_switched_off_for_a_node() -> None:
    text = "AutoDetect=nvml\nNodeName=n1 AutoDetect=off Name=gpu File=/dev/nvidia[0-1]"
    assert order_of(text, "n1").minors == {0: 0, 1: 1}
    assert order_of(text, "n2").nvml


def test_other_gres_do_not_count() -> None:
    text = "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8 File=/dev/nvidia0\nName=mps Count=100\n"
    assert order_of(text, None).minors == {0: 0, 1: 1}


def test_map_of_the_site() -> None:
    assert order_of("# Slurm's index, device\n0 /dev/nvidia1\n1 0\n", None).minors == {0: 1, 1: 0}


def test_comments_and_continued_lines() -> None:
    text = (
        "# NodeName=n1 Name=gpu File=/dev/nvidia9\nNodeName=n1 Name=gpu \\\n  File=/dev/nvidia[0-1] # two\n"
    )
    assert order_of(text, "n1").minors == {0: 0, 1: 1}


def test_missing_file_is_a_reason(tmp_path: Path) -> None:
    assert "cannot be read" in read_order(tmp_path / "none", "n1").reason


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,07],x", ["n1", "n2", "n3", "n07", "x"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[5-1]", []),
        ("n[a-b]", ["na-b"]),
    ],
)
def test_lists(text: str, names: list[str]) -> None:
    assert expand(text) == names


def test_lists_have_an_end() -> None:
    assert len(expand("n[1-99999][1-99999]")) == 100_000
