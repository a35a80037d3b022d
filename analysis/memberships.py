"""Which group each run belongs to, for every kind of group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from slurm_trace.analysis import family, lineage
from slurm_trace.analysis.components import components
from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.exact import Bools, Ints
from slurm_trace.analysis.names import RunNames
from slurm_trace.analysis.people import NOBODY, first_of

By = Literal["all", "cluster", "account", "user", "lineage", "family"]
BY: tuple[By, ...] = ("all", "cluster", "account", "user", "lineage", "family")
"""Kinds of groups, top down."""

OWNED: dict[By, str] = {"account": "account", "user": "single user", "lineage": "single user"}
"""What a run must name to belong to a group of this kind; one that does not may be any group's own."""

_LINKING = ("cluster", "job_id_raw", "start", "node_count")


@dataclass(frozen=True, slots=True)
class Membership:
    """The groups of one kind.

    Attributes:
        codes: Group of each run.
        size: Number of groups.
        key: Name of a group.
        label: What to call it besides; None where the name says it all.
        unnamed: Groups of runs that do not name what the kind goes by (see OWNED).
    """

    codes: Ints
    size: int
    key: Callable[[int], str]
    label: Callable[[int], str | None]
    unnamed: Bools


def columns_of(kinds: Iterable[By]) -> tuple[str, ...]:
    """Columns that these kinds take beside those of the question."""
    wanted = [
        *(family.COLUMNS if "family" in kinds else ()),
        *(lineage.COLUMNS if "lineage" in kinds else ()),
    ]
    return tuple(dict.fromkeys(wanted))


def memberships(
    envelope: Envelope,
    rows: Ints,
    by: By,
    person: tuple[Ints, list[str]],
    pause_s: int,
) -> Membership:
    """Put each run into its group.

    Args:
        envelope: The bounds.
        rows: Positions of the runs.
        by: The kind of group.
        person: Who each of them belongs to (see `people`).
        pause_s: Longest pause inside a lineage.
    """
    if by == "all":
        return _named(np.zeros(len(rows), dtype=np.int64), ["all"] if len(rows) else [])
    if by == "user":
        return _named(*person)
    if by in ("cluster", "account"):
        values = envelope.runs[by].iloc[rows].astype("category")
        number = values.cat.codes.to_numpy(dtype=np.int64)
        codes, firsts = first_of(number)
        told = [str(c) or NOBODY for c in values.cat.categories]
        return _named(codes, [NOBODY if number[i] < 0 else told[number[i]] for i in firsts])
    runs = envelope.runs[[*_LINKING, *columns_of([by])]].iloc[rows]
    links = family.family_links(runs, person[0])
    start = runs["start"]
    begin = start.fillna(0).to_numpy(dtype=np.int64)
    if by == "lineage":
        held_s = envelope.release.held_s[rows]
        open_ended = start.isna().to_numpy(dtype=bool) | ~envelope.release.known[rows]
        end = np.where(open_ended, lineage.LATEST_S, begin + held_s)
        gpus = np.array([-1 if c.gpu_count is None else c.gpu_count for c in envelope.claims] or [0])
        links += lineage.lineage_links(runs, person[0], gpus[envelope.code[rows]], begin, end, pause_s)
    codes, _ = first_of(components(len(rows), links))
    return _linked(envelope.runs, rows, codes, begin, person)


def _named(codes: Ints, keys: list[str]) -> Membership:
    order = sorted(range(len(keys)), key=keys.__getitem__)
    place = np.empty(len(keys), dtype=np.int64)
    place[order] = np.arange(len(keys))
    ordered = [keys[i] for i in order]
    unnamed = np.array([key == NOBODY for key in ordered], dtype=bool)
    return Membership(place[codes], len(keys), ordered.__getitem__, lambda _: None, unnamed)


def _linked(
    runs: pd.DataFrame, rows: Ints, codes: Ints, begin: Ints, person: tuple[Ints, list[str]]
) -> Membership:
    """A group has the name of the run that began first."""
    size = int(codes.max(initial=-1)) + 1
    order = np.lexsort((begin, codes))
    firsts = order[np.flatnonzero(np.diff(codes[order], prepend=-1))]
    who, labels = person
    nobody = np.array([label == NOBODY for label in labels] or [False])
    names, job_name = RunNames(runs), runs["name"].array

    def label(group: int) -> str:
        user, name = labels[who[firsts[group]]], job_name[rows[firsts[group]]]
        return f"{user}: {name}" if isinstance(name, str) else user

    return Membership(codes, size, lambda group: names[int(rows[firsts[group]])], label, nobody[who[firsts]])
