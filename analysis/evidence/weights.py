"""Weights of evidence: log-likelihood ratios in centibans, capped and summed.

A ban is a factor of ten, so 10 centibans are a deciban. For two purposes a channel weighs
round(100 · log10(share of the one / share of the other)), at most its cap. A group's channels add up to at most the
group's cap, and what a run's owner can stage weighs at most so much against the purpose that staging would hide.
All of it is whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from slurm_trace.analysis.evidence.channels import Channel, Channels

Pair = tuple[str, str]
Readings = Mapping[str, float | None]
"""Channel → its reading; None, or no entry: there is none, which is no evidence."""


@lru_cache(maxsize=4096)
def centibans(one: int, other: int) -> int:
    """100 · log10(one / other) to the nearest whole number, exactly.

    Args:
        one: A positive count.
        other: A positive count.
    """
    if one < other:
        return -centibans(other, one)
    # k is the nearest if 10^(2k-1) <= (one/other)^200 < 10^(2k+1); equality is impossible for fractions.
    high, low = one**200, other**200
    k = 0
    while high >= low * 10 ** (2 * k + 1):
        k += 1
    return k


@dataclass(frozen=True, slots=True)
class Sum:
    """What all channels weigh together for the first of two purposes against the second, in centibans.

    Attributes:
        channels: Channel → its own weight, capped; only those with a reading.
        groups: Group → the weight of its channels, capped.
        total: The sum of the groups, less what staging is not granted.
    """

    pair: Pair
    channels: Mapping[str, int]
    groups: Mapping[str, int]
    total: int


def clamp(value: int, cap: int) -> int:
    """The nearest value from -cap to cap."""
    return max(-cap, min(cap, value))


def channel_weight(channel: Channel, value: float, pair: Pair) -> int:
    """What one reading weighs for the first purpose of a pair against the second."""
    shares = channel.states[channel.state_of(value)].shares
    return clamp(centibans(shares[pair[0]], shares[pair[1]]), channel.cap_centibans)


def weigh(registry: Channels, readings: Readings, pair: Pair) -> Sum:
    """The sum for the first purpose of a pair against the second."""
    weights: dict[str, int] = {}
    by_group = dict.fromkeys(registry.groups, 0)
    for channel in registry.channels:
        value = readings.get(channel.id)
        if value is not None:
            weights[channel.id] = channel_weight(channel, value, pair)
            by_group[channel.group] += weights[channel.id]
    groups = {name: clamp(value, registry.groups[name].cap_centibans) for name, value in by_group.items()}
    return Sum(pair, weights, groups, _total(registry, groups, pair))


def _total(registry: Channels, groups: Mapping[str, int], pair: Pair) -> int:
    limits = registry.limits
    staged = sum(value for name, value in groups.items() if registry.groups[name].staged)
    if pair[1] == limits.staged_against:
        staged = min(staged, limits.staged_cap_centibans)
    elif pair[0] == limits.staged_against:
        staged = max(staged, -limits.staged_cap_centibans)
    return staged + sum(value for name, value in groups.items() if not registry.groups[name].staged)


def weigh_all(registry: Channels, readings: Readings) -> dict[Pair, Sum]:
    """The sums of every two purposes, both ways."""
    ids = tuple(registry.purposes)
    return {(a, b): weigh(registry, readings, (a, b)) for a in ids for b in ids if a != b}
