"""Compute processes: what the samples of every device of a run come to, and the warning that rests on it."""

from fractions import Fraction

import pytest

from slurm_trace.assess import Request, assess
from slurm_trace.store.engine import open_store
from slurm_trace.store.spool_ingest import import_spools
from support.runs import ingest, run
from support.spools import card, samples, spool

RULE = "busy-without-a-process"


def told(folder, *of_devices):
    """The most processes of a run with two cards, and the rules that fired, from a sealed file with these samples."""
    store = open_store(str(folder / "store.db"), create=True)
    tres = "cpu=4,gres/gpu:h100_sxm5=2,gres/gpu=2,node=1"
    ingest(store, run(1, alloc_tres=tres, node_list="n1", node_count=1, cpu_count=4))
    outbox = folder / "outbox"
    outbox.mkdir()
    columns = {f"GPU-{n}": samples(range(11, 112), **fields) for n, fields in enumerate(of_devices)}
    spool(outbox, devices=[card(uuid) for uuid in columns], columns=columns)
    import_spools(store, outbox)
    try:
        found = assess(store, Request("eu-gpai", None, Fraction(5, 100), routes=True))
    finally:
        store.close()
    return found.observed()["O21.most"][0], found.decisions([0]).rule_ids(0)


def test_kernels_without_a_process_are_a_warning(tmp_path):
    busy = {"utilization_pct": 60, "process_count": 0}
    most, rules = told(tmp_path, busy, busy)
    assert most == 0
    assert RULE in rules


@pytest.mark.parametrize(
    "other",
    [
        {"utilization_pct": 60, "process_count": 1},
        {"utilization_pct": 60},
        {"utilization_pct": 60, "process_count": [0] * 99 + [1, 0]},
    ],
)
def test_a_process_seen_or_a_device_that_does_not_tell_is_none(tmp_path, other):
    _, rules = told(tmp_path, {"utilization_pct": 60, "process_count": 0}, other)
    assert RULE not in rules


def test_idle_cards_without_processes_are_no_wonder(tmp_path):
    idle = {"utilization_pct": 1, "process_count": 0}
    most, rules = told(tmp_path, idle, idle)
    assert most == 0
    assert RULE not in rules
    assert "looks-idle" in rules


def test_what_was_not_read_is_not_nought(tmp_path):
    most, _ = told(tmp_path, {"process_count": 0}, {})
    assert most != most
