"""Work that a child process does: its value, its failure, and its end."""

import os
import time
from pathlib import Path

import pytest

from slurm_trace.child import in_background, in_child
from slurm_trace.errors import UsageProblem


def children():
    return {pid for each in Path("/proc/self/task").glob("*/children") for pid in each.read_text().split()}


def test_the_value_is_made_by_another_process():
    with in_background(os.getpid) as value:
        assert value() != os.getpid()


def test_what_it_raises_is_raised_where_the_value_is_asked_for():
    def fail():
        raise UsageProblem("no such thing")

    with in_background(fail) as value, pytest.raises(UsageProblem, match="no such thing"):
        value()


@pytest.mark.parametrize("asked", [True, False])
def test_it_ends_with_the_context(asked):
    before = children()
    with in_background(lambda: asked or time.sleep(600)) as value:
        assert len(children() - before) == 1
        if asked:
            assert value() is True
    assert children() == before


def test_a_generator_that_nobody_reads_from_ends_its_child_when_closed():
    before = children()
    in_child(lambda: iter([time.sleep(600)])).close()
    assert children() == before
