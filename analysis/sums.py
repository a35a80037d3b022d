"""Exact sums of bounds by group. The records of one allocation that overlap in time are summed as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_trace.analysis.envelope import Envelope
from slurm_trace.analysis.exact import Bools, Exact, Ints


@dataclass(frozen=True, slots=True)
class Items:
    """What is summed: members that have a bound, those of one allocation taken together.

    Attributes:
        at: Position of each among the members (of the first, where several are one).
        codes: Its group.
        amounts: The most it can have done.
        begin: Its start (epoch), 0 where not known.
        end: Its release; of several the last.
        timed: It has a start.
        merged: Codes of the groups in which records were taken together.
    """

    at: Ints
    codes: Ints
    amounts: Exact
    begin: Ints
    end: Ints
    timed: Bools
    merged: Ints


def items(envelope: Envelope, rows: Ints, codes: Ints) -> Items:
    """What there is to sum of some runs.

    Args:
        envelope: The bounds.
        rows: Positions of the members.
        codes: Group of each member.
    """
    start = envelope.runs["start"].iloc[rows]
    timed = start.notna().to_numpy(dtype=bool)
    begin = start.fillna(0).to_numpy(dtype=np.int64)
    end = begin + envelope.release.held_s[rows]
    amounts = envelope.exact(rows)
    keep = envelope.bounded[rows]
    merged: list[tuple[int, int]] = []
    for twins in _one_allocation(envelope, rows, codes, begin, keep & timed):
        merged.append((int(twins[0]), _together(envelope, rows[twins])))
        keep[twins[1:]] = False
        end[twins[0]] = end[twins].max()
    if merged:
        firsts = np.array([first for first, _ in merged], dtype=np.int64)
        amounts = amounts.replaced(firsts, Exact.of([flop for _, flop in merged]))
    at = np.flatnonzero(keep)
    return Items(
        at, codes[at], amounts.take(at), begin[at], end[at], timed[at], codes[[first for first, _ in merged]]
    )


def _one_allocation(envelope: Envelope, rows: Ints, codes: Ints, begin: Ints, chosen: Bools) -> list[Ints]:
    """Positions (among the members) of records of one allocation and group that begin together.

    Slurm 22.05 gives both records of a resized job the original Start, so a plain sum counts that time twice.
    """
    raw = envelope.runs["job_id_raw"].iloc[rows].to_numpy(dtype=np.int64)
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((begin[order], raw[order]))]
    alike = (raw[order][1:] == raw[order][:-1]) & (begin[order][1:] == begin[order][:-1])
    if not alike.any():
        return []
    suspects = np.sort(order[np.append(alike, False) | np.insert(alike, 0, False)])
    cluster = envelope.runs["cluster"].iloc[rows[suspects]].astype(str)
    sets: dict[tuple[object, ...], list[int]] = {}
    for i, name in zip(suspects.tolist(), cluster, strict=True):
        sets.setdefault((name, int(raw[i]), int(begin[i]), int(codes[i])), []).append(i)
    return [np.array(found, dtype=np.int64) for found in sets.values() if len(found) > 1]


def _together(envelope: Envelope, rows: Ints) -> int:
    """Until the first of them ends the larger claim of all counts, from there on the larger of what is left."""
    spans = sorted((int(envelope.release.held_s[i]), envelope.claim(int(i)).total_flop_s or 0) for i in rows)
    flop, reached = 0, 0
    for n, (held_s, _) in enumerate(spans):
        flop += (held_s - reached) * max(rate for _, rate in spans[n:])
        reached = held_s
    return flop
