"""Bounds against thresholds on a logarithmic scale, as SVG. Pure: figures in, markup out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 960
LEFT, RIGHT, BARS = 76, 930, 250
BINS_PER_DECADE = 4
LANE_HEIGHT, NAME_HEIGHT = 34, 16


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many bounds lie where.

    Attributes:
        counts: Bin → runs; bin k holds bounds in [T x 10^(k/4), T x 10^((k+1)/4)), so that T is an edge.
        zero: Runs whose bound is 0.
        unbounded: Runs without a bound; the picture can't show them.
    """

    counts: Mapping[int, int]
    zero: int = 0
    unbounded: int = 0


def histogram(bounds: Iterable[float], threshold_flop: int) -> Histogram:
    """Sort bounds into bins.

    Args:
        bounds: Operations; infinite where a run has no bound.
        threshold_flop: T, an edge of the bins.
    """
    counts: dict[int, int] = {}
    zero = unbounded = 0
    edge = float(threshold_flop)
    base = math.log10(edge)
    for bound in bounds:
        if math.isinf(bound):
            unbounded += 1
        elif bound <= 0:
            zero += 1
        else:
            place = math.floor((math.log10(bound) - base) * BINS_PER_DECADE)
            # A logarithm may land on the wrong side of an edge; T itself must not.
            place = max(place, 0) if bound >= edge else min(place, -1)
            counts[place] = counts.get(place, 0) + 1
    return Histogram(counts, zero, unbounded)


@dataclass(frozen=True, slots=True)
class Lane:
    """Groups of one kind, drawn as dots in one row."""

    name: str
    groups: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Exponents from left to right, and where the bars and everything end."""

    low: float
    high: float
    top: float
    bottom: float

    def x(self, exponent: float) -> float:
        return LEFT + (RIGHT - LEFT) * (exponent - self.low) / (self.high - self.low)


def svg(
    bars: Histogram, lanes: Sequence[Lane], thresholds: Mapping[int, Sequence[str]], threshold_flop: int
) -> str:
    """The picture.

    Args:
        bars: Runs by bound.
        lanes: Groups by bound, one row each.
        thresholds: Operations → the names of the thresholds at that value.
        threshold_flop: The one that was asked about.
    """
    base = math.log10(threshold_flop)
    frame = _frame(bars, lanes, thresholds, base)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {frame.bottom + 52}" role="img" aria-labelledby="picture-title picture-text">',
        '<title id="picture-title">Bounds against thresholds, logarithmic scale</title>',
        f'<desc id="picture-text">{escape(_describe(bars, lanes, threshold_flop))}</desc>',
        *_axis(frame),
        *_bars(bars, frame, base),
        *(mark for row, lane in enumerate(lanes) for mark in _dots(lane, row, frame, threshold_flop)),
        *_thresholds(thresholds, frame, threshold_flop),
        "</svg>",
    ]
    return "\n".join(parts)


def _frame(
    bars: Histogram, lanes: Sequence[Lane], thresholds: Mapping[int, Sequence[str]], base: float
) -> _Frame:
    ends = [math.log10(flop) for flop in thresholds] + [base]
    ends += [math.log10(flop) for lane in lanes for _, flop in lane.groups if flop > 0]
    ends += [base + (place + side) / BINS_PER_DECADE for place in bars.counts for side in (0, 1)]
    top = 20 + NAME_HEIGHT * len(thresholds)
    return _Frame(
        math.floor(min(ends)), math.ceil(max(ends) + 0.15), top, top + BARS + LANE_HEIGHT * len(lanes)
    )


def _describe(bars: Histogram, lanes: Sequence[Lane], threshold_flop: int) -> str:
    below = sum(n for place, n in bars.counts.items() if place < 0)
    above = sum(n for place, n in bars.counts.items() if place >= 0)
    groups = "; ".join(
        f"{lane.name}: {sum(flop < threshold_flop for _, flop in lane.groups)} below, "
        f"{sum(flop >= threshold_flop for _, flop in lane.groups)} at or above"
        for lane in lanes
    )
    return f"{below} runs have a bound below the threshold, {above} at or above it. {groups}"


def _axis(frame: _Frame) -> list[str]:
    step = max(1, math.ceil((frame.high - frame.low) / 14))
    marks = [f'<line class="axis" x1="{LEFT}" y1="{frame.bottom}" x2="{RIGHT}" y2="{frame.bottom}"/>']
    for exponent in range(int(frame.low), int(frame.high) + 1, step):
        x = frame.x(exponent)
        marks += [
            f'<line class="grid" x1="{x:.1f}" y1="{frame.top}" x2="{x:.1f}" y2="{frame.bottom}"/>',
            f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 18}" text-anchor="middle">'
            f'10<tspan dy="-5" font-size="9">{exponent}</tspan></text>',
        ]
    middle = (LEFT + RIGHT) / 2
    marks.append(
        f'<text class="label" x="{middle}" y="{frame.bottom + 42}" text-anchor="middle">'
        "bound, operations (log scale)</text>"
    )
    return marks


def _bars(bars: Histogram, frame: _Frame, base: float) -> list[str]:
    if not bars.counts:
        return []
    top = math.log10(max(bars.counts.values()) + 1)
    floor = frame.top + BARS - 8
    marks = [
        f'<text class="label" transform="translate(18 {frame.top + BARS / 2}) rotate(-90)" text-anchor="middle">'
        "runs (log)</text>"
    ]
    for exponent in range(math.floor(top) + 1):
        y = floor - (BARS - 24) * math.log10(10**exponent + 1) / top
        if y >= frame.top:
            marks.append(
                f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**exponent:,}</text>'
            )
    for place, count in sorted(bars.counts.items()):
        x0, x1 = (frame.x(base + (place + side) / BINS_PER_DECADE) for side in (0, 1))
        tall = (BARS - 24) * math.log10(count + 1) / top
        kind = "over" if place >= 0 else "under"
        marks.append(
            f'<rect class="{kind}" x="{x0 + 0.5:.1f}" y="{floor - tall:.1f}" width="{x1 - x0 - 1:.1f}" '
            f'height="{tall:.1f}"><title>{count:,} runs</title></rect>'
        )
    return marks


def _dots(lane: Lane, row: int, frame: _Frame, threshold_flop: int) -> list[str]:
    y = frame.top + BARS + LANE_HEIGHT * (row + 0.5)
    marks = [
        f'<text class="label" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(lane.name)}</text>'
    ]
    for key, flop in lane.groups:
        if flop > 0:
            kind = "over" if flop >= threshold_flop else "under"
            marks.append(
                f'<circle class="{kind}" cx="{frame.x(math.log10(flop)):.1f}" cy="{y:.1f}" r="5">'
                f"<title>{escape(key)}</title></circle>"
            )
    return marks


def _thresholds(thresholds: Mapping[int, Sequence[str]], frame: _Frame, threshold_flop: int) -> list[str]:
    """Lines with names; the largest on top, so that no line runs through the name of a larger one."""
    marks = []
    for row, (flop, names) in enumerate(sorted(thresholds.items(), reverse=True)):
        x, y = frame.x(math.log10(flop)), NAME_HEIGHT * (row + 1)
        asked = " asked" if flop == threshold_flop else ""
        marks += [
            f'<line class="threshold{asked}" x1="{x:.1f}" y1="{y - 8}" x2="{x:.1f}" y2="{frame.bottom}"/>',
            f'<text class="name{asked}" x="{x - 6:.1f}" y="{y}" text-anchor="end">{escape(", ".join(names))}</text>',
        ]
    return marks
