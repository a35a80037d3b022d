"""The sums once more, by other means: from the registry's document and the readings alone.

Shares nothing with `weights` but the question: logarithms come from `decimal` instead of powers of whole numbers,
ranges from bisection, limits from the middle of three values, and sums run over the document, group by group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

_DIGITS = Context(prec=60, rounding=ROUND_HALF_EVEN)


def recompute(
    document: Mapping[str, Any], readings: Mapping[str, float | None]
) -> dict[tuple[str, str], int]:
    """Totals in centibans of every two purposes, both ways.

    Args:
        document: The registry of channels as JSON has it.
        readings: Channel → its reading, None where there is none.
    """
    logs = [_logs(channel, readings[channel["id"]]) for channel in _read(document, readings)]
    purposes = [purpose["id"] for purpose in document["purposes"]]
    return {
        (a, b): _total(document, [_difference(of_channel, a, b) for of_channel in logs], a, b)
        for a in purposes
        for b in purposes
        if a != b
    }


def _read(document: Mapping[str, Any], readings: Mapping[str, float | None]) -> list[Mapping[str, Any]]:
    return [channel for channel in document["channels"] if readings.get(channel["id"]) is not None]


def _logs(channel: Mapping[str, Any], value: Any) -> tuple[str, int, dict[str, Decimal]]:
    """Group, cap, and per purpose 100 · log10 of its share in the range of the reading."""
    edges = [state["below"] for state in channel["states"][:-1]]
    shares = channel["states"][bisect_right(edges, value)]["shares"]
    logs = {name: _DIGITS.multiply(100, _DIGITS.log10(Decimal(share))) for name, share in shares.items()}
    return channel["group"], channel["cap_centibans"], logs


def _difference(of_channel: tuple[str, int, dict[str, Decimal]], a: str, b: str) -> tuple[str, int]:
    group, cap, logs = of_channel
    nearest = int(_DIGITS.subtract(logs[a], logs[b]).to_integral_value(rounding=ROUND_HALF_EVEN))
    return group, _middle(nearest, cap)


def _total(document: Mapping[str, Any], weights: list[tuple[str, int]], a: str, b: str) -> int:
    limits = document["limits"]
    firm = staged = 0
    for group in document["groups"]:
        part = _middle(sum(w for name, w in weights if name == group["id"]), group["cap_centibans"])
        if group["staged"]:
            staged += part
        else:
            firm += part
    most = limits["staged_cap_centibans"]
    if limits["staged_against"] == b and staged > most:
        staged = most
    if limits["staged_against"] == a and -staged > most:
        staged = -most
    return firm + staged


def _middle(value: int, cap: int) -> int:
    return sorted((-cap, value, cap))[1]
