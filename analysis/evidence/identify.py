"""Paired identifiability: which readings tell two purposes apart, and which would.

Two purposes are *matched* on a channel whose reading is about as usual for the one as for the other. They are
identifiable where some other channel separates them and the channels together still point one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from slurm_trace.analysis.evidence.channels import WHOLE, Channel, Channels
from slurm_trace.analysis.evidence.weights import Pair, Sum, centibans, clamp


@dataclass(frozen=True, slots=True)
class Identifiability:
    """What tells two purposes apart in one run.

    Attributes:
        pair: The one that the sum favours first.
        total: Of all channels, in centibans; not negative.
        matched: Channels that were read and do not separate the two.
        separated_by: Channels that do, the way the sum points.
        contradicted_by: Channels that separate them the other way.
        identifiable: Some channel separates them, and the sum has a grade.
        would_separate: Channels without a reading that could, the most telling first.
    """

    pair: Pair
    total: int
    matched: tuple[str, ...]
    separated_by: tuple[str, ...]
    contradicted_by: tuple[str, ...]
    identifiable: bool
    would_separate: tuple[str, ...]


def identifiability(registry: Channels, sums: Mapping[Pair, Sum], pair: Pair) -> Identifiability:
    """What tells a pair apart in the run whose sums these are."""
    found = sums[pair] if sums[pair].total >= 0 else sums[pair[::-1]]
    least = registry.limits.separates_centibans
    separated = tuple(name for name, weight in found.channels.items() if weight >= least)
    return Identifiability(
        pair=found.pair,
        total=found.total,
        matched=tuple(name for name, weight in found.channels.items() if abs(weight) < least),
        separated_by=separated,
        contradicted_by=tuple(name for name, weight in found.channels.items() if weight <= -least),
        identifiable=bool(separated) and registry.grade(found.total) != registry.grades[0],
        would_separate=tuple(c.id for c in separating(registry, pair) if c.id not in found.channels),
    )


def separating(registry: Channels, pair: Pair) -> list[Channel]:
    """Channels of which some reading separates a pair, those with the largest expected weight first."""
    able = [
        c
        for c in registry.channels
        if max(map(abs, _weights(c, pair))) >= registry.limits.separates_centibans
    ]
    return sorted(able, key=lambda channel: (-expected_centibans(channel, pair), channel.id))


def matched_on(registry: Channels, pair: Pair) -> dict[str, dict[str, tuple[str, ...]]]:
    """The matrix of a pair: channel → range in which the two are matched → channels that could still separate them.

    Nothing after a range: if the two are matched there, nothing in the registry tells them apart.
    """
    able = separating(registry, pair)
    return {
        channel.id: {
            state.words: tuple(other.id for other in able if other is not channel)
            for state, weight in zip(channel.states, _weights(channel, pair), strict=True)
            if abs(weight) < registry.limits.separates_centibans
        }
        for channel in registry.channels
    }


def expected_centibans(channel: Channel, pair: Pair) -> Fraction:
    """What a channel weighs on average for the truth, whichever of the two that is."""
    total = Fraction(0)
    for state, weight in zip(channel.states, _weights(channel, pair), strict=True):
        total += Fraction(state.shares[pair[0]] - state.shares[pair[1]], 2 * WHOLE) * weight
    return total


def _weights(channel: Channel, pair: Pair) -> list[int]:
    """What each range of a channel weighs for the first of the pair."""
    return [
        clamp(centibans(state.shares[pair[0]], state.shares[pair[1]]), channel.cap_centibans)
        for state in channel.states
    ]
