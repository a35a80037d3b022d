"""The registry of channels: per channel and purpose, how often a run shows which reading.

schema/registry/channels.json holds the tables, schema/json/channels.schema.json says what it may hold. Shares are whole
parts of a thousand, so that two computations can agree to the last digit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from slurm_trace.errors import InputProblem

NAME = "channels.json"
BAN = 100
"""Centibans: a factor of ten, which no channel, no group and no staging may reach alone."""
WHOLE = 1000
"""The shares of one purpose over the states of a channel add up to this."""


@dataclass(frozen=True, slots=True)
class State:
    """One range of readings.

    Attributes:
        below: Upper end of the range, exclusive; None for the last one.
        words: Its name.
        shares: Purpose → how many of a thousand runs of that purpose read so; at least 1.
    """

    below: float | None
    words: str
    shares: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Channel:
    """One observable.

    Attributes:
        feature: The quantity that is read, see `features.FEATURES`.
        inputs: What the quantity is worked out of.
        needs: What a site has to have for it.
        cap_centibans: Most that it weighs between two purposes.
        verified: Whether the shares were measured in a source that can be looked up.
    """

    id: str
    title: str
    group: str
    feature: str
    unit: str
    inputs: tuple[str, ...]
    needs: str
    cap_centibans: int
    states: tuple[State, ...]
    basis: str
    source: str
    revision: str
    verified: bool
    notes: str

    def state_of(self, value: float) -> int:
        """Place of the range that a reading falls into."""
        return next(i for i, state in enumerate(self.states) if state.below is None or value < state.below)


@dataclass(frozen=True, slots=True)
class Group:
    """Channels that say much the same.

    Attributes:
        cap_centibans: Most that they weigh together between two purposes.
        staged: Whether the owner of a run can make these readings look low at little cost.
    """

    id: str
    title: str
    cap_centibans: int
    staged: bool


@dataclass(frozen=True, slots=True)
class Grade:
    """A word for weights from `from_centibans` on."""

    id: str
    from_centibans: int
    words: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for all channels.

    Attributes:
        staged_against: Purpose against which staged groups together weigh no more than `staged_cap_centibans`.
        separates_centibans: From this weight on a channel tells two purposes apart.
        least_coverage_pct: Measurements of less of the run's time are no reading.
        unverified_grade: Highest grade as long as a table that counts is an assumption.
    """

    staged_against: str
    staged_cap_centibans: int
    separates_centibans: int
    least_coverage_pct: int
    unverified_grade: str


@dataclass(frozen=True, slots=True)
class Channels:
    """The registry.

    Attributes:
        purposes: Id → in words, in the order of reports.
        errors: What is known of how far such evidence goes wrong, in words.
        grades: Ascending; the first one from 0.
        document: The registry as it was read, for a second computation.
        digest: SHA-256 over its canonical JSON.
    """

    purposes: Mapping[str, str]
    channels: tuple[Channel, ...]
    groups: Mapping[str, Group]
    grades: tuple[Grade, ...]
    limits: Limits
    errors: tuple[str, ...]
    document: Mapping[str, Any]
    digest: str

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every two purposes, once."""
        ids = tuple(self.purposes)
        return tuple((a, b) for i, a in enumerate(ids) for b in ids[i + 1 :])

    def grade(self, centibans: int) -> Grade:
        """The grade of a weight; one that is not positive has the lowest."""
        return max((g for g in self.grades if g.from_centibans <= max(0, centibans)), key=_from)


def _from(grade: Grade) -> int:
    return grade.from_centibans


def load(known_features: Collection[str]) -> Channels:
    """The built-in registry."""
    text = files("slurm_trace.schema.registry").joinpath(NAME).read_text(encoding="utf-8")
    return read(json.loads(text), NAME, known_features)


def read(document: Mapping[str, Any], name: str, known_features: Collection[str]) -> Channels:
    """A registry from its document.

    Args:
        document: As JSON has it.
        name: To call it by in messages.
        known_features: The quantities that can be read.

    Raises:
        InputProblem: It does not fit its schema, or contradicts itself; the message names the entry.
    """
    _check_form(document, name)
    found = Channels(
        purposes={entry["id"]: entry["words"] for entry in document["purposes"]},
        channels=tuple(_channel(entry) for entry in document["channels"]),
        groups={entry["id"]: Group(**entry) for entry in document["groups"]},
        grades=tuple(Grade(**entry) for entry in document["grades"]),
        limits=Limits(**{key: document["limits"][key] for key in Limits.__slots__}),
        errors=tuple(entry["words"] for entry in document["errors"]),
        document=document,
        digest=hashlib.sha256(
            json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest(),
    )
    for fault in _faults(found, known_features):
        raise InputProblem(f"{name}: {fault}; correct it there")
    return found


def _channel(entry: Mapping[str, Any]) -> Channel:
    states = tuple(State(s.get("below"), s["words"], s["shares"]) for s in entry["states"])
    return Channel(**{**entry, "inputs": tuple(entry["inputs"]), "states": states})


def _check_form(document: Mapping[str, Any], name: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = files("slurm_trace.schema.json").joinpath("channels.schema.json").read_text(encoding="utf-8")
    errors = list(Draft202012Validator(json.loads(schema)).iter_errors(document))
    # What is missing makes its neighbours count as unexpected: name the cause first.
    error = best_match([e for e in errors if e.validator != "unevaluatedProperties"] or errors)
    if error is not None:
        place = " ".join(map(str, error.absolute_path)) or "the document"
        raise InputProblem(f"{name}: {place}: {' '.join(error.message.split())[:200]}; correct it there")


def _faults(found: Channels, known_features: Collection[str]) -> list[str]:
    """What a schema cannot say."""
    sections = ("purposes", "channels", "groups", "grades")
    faults = [
        f"{section}: {entry['id']!r} stands there twice"
        for section in sections
        for i, entry in enumerate(found.document[section])
        if entry["id"] in {other["id"] for other in found.document[section][:i]}
    ]
    starts = [grade.from_centibans for grade in found.grades]
    if starts[0] != 0 or starts != sorted(set(starts)):
        faults.append("grades do not ascend from 0")
    limits = found.limits
    if limits.staged_against not in found.purposes:
        faults.append(f"limits: no purpose {limits.staged_against!r}")
    if limits.unverified_grade not in {grade.id for grade in found.grades}:
        faults.append(f"limits: no grade {limits.unverified_grade!r}")
    caps = {"limits": limits.staged_cap_centibans}
    caps |= {f"group {group.id!r}": group.cap_centibans for group in found.groups.values()}
    caps |= {f"channel {channel.id!r}": channel.cap_centibans for channel in found.channels}
    faults += [f"{what}: a cap of {cap} alone is a factor of ten" for what, cap in caps.items() if cap >= BAN]
    for channel in found.channels:
        faults += [
            f"channel {channel.id!r}: {fault}" for fault in _channel_faults(found, channel, known_features)
        ]
    return faults


def _channel_faults(found: Channels, channel: Channel, known_features: Collection[str]) -> list[str]:
    faults = []
    if channel.group not in found.groups:
        faults.append(f"no group {channel.group!r}")
    if channel.feature not in known_features:
        faults.append(f"nothing reads {channel.feature!r}")
    *edges, last = (state.below for state in channel.states)
    if last is not None or None in edges or edges != sorted(set(edges), key=lambda e: e or 0):
        faults.append("its ranges do not ascend to an open one")
    for purpose in found.purposes:
        if any(purpose not in state.shares for state in channel.states):
            faults.append(f"a state says nothing of {purpose!r}")
        elif sum(state.shares[purpose] for state in channel.states) != WHOLE:
            faults.append(f"the shares of {purpose!r} do not add up to {WHOLE}")
    return faults
