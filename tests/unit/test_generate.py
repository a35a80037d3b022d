"""The invented centre: the same seed gives the same bytes, and no GPU is handed out twice."""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from itertools import groupby, islice

import pytest

from slurm_trace.examples.generate import COLUMNS, POOLS, Centre, site_profile_text

JOBS = 20_000


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    lines = Centre(JOBS, seed=7).rows()
    names = next(lines).split("|")
    return [dict(zip(names, line.split("|"), strict=True)) for line in lines]


def test_the_same_seed_gives_the_same_year() -> None:
    def beginning(seed: int) -> list[str]:
        return list(islice(Centre(500, seed=seed).rows(), 500))

    assert beginning(3) == beginning(3)
    assert beginning(3) != beginning(4)


@pytest.mark.parametrize("jobs", [0, 1, 49, 1000])
def test_it_writes_as_many_rows_as_asked(jobs: int) -> None:
    assert len(list(Centre(jobs).rows())) == jobs + 1


def test_runs_are_told_apart_by_raw_id_and_submit(rows: list[dict[str, str]]) -> None:
    keys = Counter((row["JobIDRaw"], row["Submit"]) for row in rows)
    assert max(keys.values()) == 1
    assert max(Counter(row["JobIDRaw"] for row in rows).values()) > 1, "no requeue"


def test_no_node_hands_out_more_than_it_has(rows: list[dict[str, str]]) -> None:
    slots = {pool.name: pool.slots for pool in POOLS if pool.gres}
    changes: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        gpus = re.search(r"gres/gpu=(\d+)", row["AllocTRES"])
        if gpus is None or row["JobName"] == "lost-run":
            continue
        nodes = _expand(row["NodeList"])
        assert len(nodes) == int(row["NNodes"])
        for node in nodes:
            end = "9999" if row["End"] == "Unknown" else row["End"]
            changes[row["Partition"], node] += [
                (row["Start"], int(gpus[1]) // len(nodes)),
                (end, -int(gpus[1]) // len(nodes)),
            ]
    for (partition, _), moves in changes.items():
        held = 0
        for _, together in groupby(sorted(moves, key=lambda m: (m[0], m[1])), key=lambda m: m[0]):
            held += sum(change for _, change in together)
            assert held <= slots[partition]


def _expand(hosts: str) -> list[str]:
    match = re.fullmatch(r"([a-z]+)\[(.*)\]", hosts)
    if match is None:
        return [hosts]
    names = []
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        names += [f"{match[1]}{n:0{len(first)}d}" for n in range(int(first), int(last or first) + 1)]
    return names


def test_the_year_has_something_to_find(rows: list[dict[str, str]]) -> None:
    h100_seconds = Counter[str]()
    for row in rows:
        gpus = re.search(r"gres/gpu:h100=(\d+)", row["AllocTRES"])
        if gpus:
            h100_seconds[row["JobName"]] += int(gpus[1]) * int(row["ElapsedRaw"])
    # 1e23 operations at the ceiling of an H100, about 4.3e15 a second, are 2.3e7 seconds.
    assert h100_seconds["pretrain-13b"] > 2.33e7
    assert 2.0e7 < h100_seconds["pretrain-13b-v2"] < 2.33e7
    assert h100_seconds["cont-pretrain"] > 2.33e7
    links = [int(row["ElapsedRaw"]) for row in rows if row["JobName"] == "cont-pretrain"]
    assert len(links) == 12
    assert max(links) * 64 < 0.2 * 2.33e7
    assert {row["State"].split()[0] for row in rows} >= {
        "COMPLETED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "RUNNING",
    }


def test_the_profile_names_every_node() -> None:
    cluster = tomllib.loads(site_profile_text())["clusters"]["meridian"]
    assert [group["hosts"] for group in cluster["nodes"]] == [pool.hosts for pool in POOLS]


def test_events_have_the_columns_that_sacctmgr_prints() -> None:
    centre = Centre(JOBS, seed=7)
    for _ in centre.rows():
        pass
    header, registered, *down = centre.events_text().splitlines()
    assert registered.count("|") == header.count("|")
    assert "gres/gpu=" in registered
    assert down
    assert all("|DOWN|" in line for line in down)


def test_columns_hold_what_identity_needs() -> None:
    assert {"JobIDRaw", "Submit", "Cluster", "UID"} <= set(COLUMNS.split("|"))
