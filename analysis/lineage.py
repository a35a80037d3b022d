"""Lineages: the runs that look like one piece of work which its user submitted bit by bit.

Two runs of one person belong together if they are rows of one job, or if two of three features agree (the stem of the
name, the shape, the working directory) and they overlap or follow each other with no longer pause than PAUSE_S. Chains
are followed through, whichever two features hold each link. Who changes two features at once, or waits longer, leaves
the lineage and stays in the user, the account, the cluster and all.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from slurm_trace.analysis.components import Links, dense
from slurm_trace.analysis.exact import Bools, Ints
from slurm_trace.analysis.family import COLUMNS as FAMILY_COLUMNS

COLUMNS = (*FAMILY_COLUMNS, "work_dir")
"""What it takes beside the columns of the question."""

PAUSE_S = 14 * 86_400
"""Longest pause inside a lineage. Time limits end a run after days, and a full queue, a maintenance or a holiday keeps
the next one waiting for as long; two weeks hold the longest of these. A larger value only makes lineages larger."""

LATEST_S = 2**38 - 1
"""Stands for the end of a run whose end is not known; later than any time that a record is believed
(twice `release.LONGEST_S`)."""

_WORD = re.compile(r"[^\W\d_]{2,}")
"""Two letters or more: single ones number jobs (`run-a`, `run-b`) as digits do."""
_NUMBER = re.compile(r"\d+")


def stem(name: str) -> str:
    """What stays of a job's name when numbers, versions and suffixes change: its first word, in small letters."""
    found = _WORD.search(name)
    return found[0].casefold() if found else ""


def place(work_dir: str) -> str:
    """A working directory with its numbers left out, so that one folder a run is one place."""
    return _NUMBER.sub("#", work_dir)


def lineage_links(
    runs: pd.DataFrame, person: Ints, gpus: Ints, begin: Ints, end: Ints, pause_s: int
) -> list[Links]:
    """Links between runs that look like one piece of work; those of `family_links` come on top.

    Args:
        runs: Columns name, work_dir, node_count.
        person: Who each run belongs to.
        gpus: GPUs of each run, -1 where not known.
        begin: Start of each run, 0 where not known, so that it touches all that follows.
        end: Its release, LATEST_S where not known.
        pause_s: Longest pause inside a lineage.
    """
    nodes = runs["node_count"].fillna(-1).to_numpy(dtype=np.int64)
    shape = dense(gpus, nodes)
    name, _ = _texts(runs["name"], stem)
    where, told = _texts(runs["work_dir"], place)
    every = np.ones(len(runs), dtype=bool)
    # A run without a directory is held by its name alone: a shape by itself, such as one GPU, says too little.
    pairs = ((every, name, shape), (every, name, where), (told, shape, where))
    return [
        _chained(np.flatnonzero(chosen), dense(person, one, other), begin, end, pause_s)
        for chosen, one, other in pairs
    ]


def _texts(column: pd.Series, reduce: Callable[[str], str]) -> tuple[Ints, Bools]:
    """Codes of reduced texts, and where there is a text. What is missing is alike."""
    categories = column.astype("category")
    reduced = pd.factorize(
        np.array([reduce(str(c)) for c in categories.cat.categories] + [""], dtype=object)
    )[0]
    codes = categories.cat.codes.to_numpy()
    return reduced[codes].astype(np.int64), codes >= 0


def _chained(rows: Ints, bucket: Ints, begin: Ints, end: Ints, pause_s: int) -> Links:
    """Link each of these rows to the one before it in its bucket, unless all before it ended too early."""
    order = rows[np.lexsort((begin[rows], bucket[rows]))]
    base = bucket[order] * (LATEST_S + 1)
    reached = np.maximum.accumulate(base + end[order])
    near = base[1:] + np.maximum(begin[order][1:] - pause_s, 0) <= reached[:-1]
    return order[:-1][near & (base[1:] == base[:-1])], order[1:][near & (base[1:] == base[:-1])]
