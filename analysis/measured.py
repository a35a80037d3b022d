"""What telemetry proves, in the form in which the analysis takes it; the store brings it."""

from __future__ import annotations

from typing import Protocol


class Kind(Protocol):
    """What stretches have in common that are turned into operations alike."""

    @property
    def name(self) -> str | None:
        """What its driver calls the card."""

    @property
    def mig_profile(self) -> str | None:
        """Of a MIG instance."""

    @property
    def sm_count(self) -> int | None:
        """SMs, where the driver says so."""

    @property
    def clock_max_mhz(self) -> int | None:
        """Highest clock that the driver allows, or that was seen."""

    @property
    def rung(self) -> str | None:
        """The lowest rung that is proven; None: none is."""

    @property
    def reason(self) -> str | None:
        """Why no lower one is."""


class Cycles(Protocol):
    """Cycles of one SM, in thousands, rounded up; none is more than `elapsed`."""

    @property
    def elapsed(self) -> int:
        """That went by."""

    @property
    def active(self) -> int:
        """With a warp resident."""

    @property
    def tensor(self) -> int:
        """Of the matrix pipe, at its fastest precision."""

    @property
    def dmma(self) -> int:
        """Of the matrix pipe where nothing but DMMA moved."""

    @property
    def vector(self) -> int:
        """Of all vector pipes."""

    @property
    def vector_fp(self) -> int:
        """Of those without the integer pipe."""


class Stretch(Protocol):
    """A stretch of one GPU in whole epoch seconds; those of one GPU never overlap."""

    @property
    def node(self) -> str:
        """Where it is."""

    @property
    def uuid(self) -> str:
        """The GPU or MIG instance."""

    @property
    def from_s(self) -> int:
        """Begin."""

    @property
    def to_s(self) -> int:
        """End."""

    @property
    def kind(self) -> Kind:
        """The card, and what is proven."""

    @property
    def cycles(self) -> Cycles:
        """At the rungs of cycles."""

    @property
    def busy_ms(self) -> int:
        """At the rung busy."""
