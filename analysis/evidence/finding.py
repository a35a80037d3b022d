"""What the evidence on one run comes to: for each purpose the weight against its strongest rival, graded.

A grade is of a comparison, never of a run: the tables are assumptions until they are measured, which keeps grades low,
and a purpose that cannot be told from its rival has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_trace.analysis.evidence.channels import Channels, Grade
from slurm_trace.analysis.evidence.features import Reading, observe
from slurm_trace.analysis.evidence.identify import Identifiability, expected_centibans, identifiability
from slurm_trace.analysis.evidence.inputs import Run
from slurm_trace.analysis.evidence.recompute import recompute
from slurm_trace.analysis.evidence.weights import Pair, Sum, weigh, weigh_all
from slurm_trace.errors import CheckFailed


@dataclass(frozen=True, slots=True)
class Standing:
    """One purpose against its strongest rival.

    Attributes:
        weight: Centibans for the purpose against the rival; negative: the rival is favoured.
        lowest: The least of it when any one group of channels is left out; with `highest` its range.
    """

    purpose: str
    rival: str
    weight: int
    lowest: int
    highest: int
    grade: Grade


@dataclass(frozen=True, slots=True)
class Wanted:
    """A channel without a reading that would tell two purposes apart.

    Attributes:
        expected: Centibans that it weighs on average for the truth, rounded down.
    """

    channel: str
    pair: Pair
    needs: str
    expected: int


@dataclass(frozen=True, slots=True)
class Finding:
    """All that is said of one run.

    Attributes:
        leads: The standing of the purpose that no other one outweighs, None where there is no reading or none is ahead.
        pairs: Every two purposes.
        wanted: What would distinguish further the leading purpose from its rival, or without one any two.
    """

    readings: Mapping[str, Reading]
    sums: Mapping[Pair, Sum]
    standings: tuple[Standing, ...]
    leads: Standing | None
    pairs: tuple[Identifiability, ...]
    wanted: tuple[Wanted, ...]


def find(registry: Channels, run: Run) -> Finding:
    """Weigh what is known of a run.

    Raises:
        CheckFailed: The second computation of the sums disagrees with the first.
    """
    readings = observe(registry, run)
    values = {name: reading.value for name, reading in readings.items()}
    sums = weigh_all(registry, values)
    check(registry, values, sums)
    pairs = tuple(identifiability(registry, sums, pair) for pair in registry.pairs)
    standings = tuple(_standing(registry, values, sums, pairs, purpose) for purpose in registry.purposes)
    best = max(standings, key=lambda s: s.weight)
    leads = best if best.weight > 0 else None
    return Finding(readings, sums, standings, leads, pairs, _wanted(registry, pairs, leads))


def check(registry: Channels, values: Mapping[str, float | None], sums: Mapping[Pair, Sum]) -> None:
    """Compute the totals a second time, independently.

    Raises:
        CheckFailed: Some total differs.
    """
    again = recompute(registry.document, values)
    for pair, found in sums.items():
        if again[pair] != found.total:
            raise CheckFailed(
                f"two computations of {pair[0]} against {pair[1]} differ ({found.total}, {again[pair]} centibans); "
                "this is a fault of the program: report it"
            )


def _standing(
    registry: Channels,
    values: Mapping[str, float | None],
    sums: Mapping[Pair, Sum],
    pairs: tuple[Identifiability, ...],
    purpose: str,
) -> Standing:
    rivals = [rival for rival in registry.purposes if rival != purpose]
    rival = min(rivals, key=lambda other: sums[purpose, other].total)
    found = sums[purpose, rival]
    without = [found.total, *(_without(registry, values, found.pair, group) for group in registry.groups)]
    told_apart = any(p.identifiable for p in pairs if set(p.pair) == {purpose, rival})
    return Standing(
        purpose=purpose,
        rival=rival,
        weight=found.total,
        lowest=min(without),
        highest=max(without),
        grade=_grade(registry, found) if told_apart else registry.grades[0],
    )


def _without(registry: Channels, values: Mapping[str, float | None], pair: Pair, group: str) -> int:
    left = {c.id: values[c.id] for c in registry.channels if c.group != group}
    return weigh(registry, left, pair).total


def _grade(registry: Channels, found: Sum) -> Grade:
    """The grade of a sum; while any table in it is an assumption, no more than the limit for those."""
    grade = registry.grade(found.total)
    verified = {channel.id: channel.verified for channel in registry.channels}
    if all(verified[name] for name in found.channels):
        return grade
    highest = next(g for g in registry.grades if g.id == registry.limits.unverified_grade)
    return min(grade, highest, key=lambda g: g.from_centibans)


def _wanted(
    registry: Channels, pairs: tuple[Identifiability, ...], leads: Standing | None
) -> tuple[Wanted, ...]:
    channels = {channel.id: channel for channel in registry.channels}
    chosen = pairs if leads is None else [p for p in pairs if set(p.pair) == {leads.purpose, leads.rival}]
    found: dict[str, Wanted] = {}
    for pair in chosen:
        for name in pair.would_separate:
            one = Wanted(
                name, pair.pair, channels[name].needs, int(expected_centibans(channels[name], pair.pair))
            )
            found[name] = max(found.get(name, one), one, key=lambda w: w.expected)
    return tuple(sorted(found.values(), key=lambda w: (-w.expected, w.channel)))
