"""Two generations of rules side by side: what came out otherwise, and which rules did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slurm_trace.analysis.rules.evaluate import Bools, Decisions
from slurm_trace.analysis.rules.rule import VERDICTS


@dataclass(frozen=True, slots=True)
class Change:
    """One subject that came out otherwise.

    Attributes:
        position: Where it stands in the columns.
        rules_before: Rules behind its routes in the earlier generation that are not behind them in the later one.
        rules_after: The other way round.
    """

    position: int
    verdict_before: str
    verdict_after: str
    routes_before: tuple[str, ...]
    routes_after: tuple[str, ...]
    rules_before: tuple[str, ...]
    rules_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Decisions on the same subjects by two sets of rules."""

    before: Decisions
    after: Decisions

    @property
    def changed(self) -> npt.NDArray[np.int64]:
        """Positions of what came out otherwise, changed verdicts first."""
        ids = sorted({r.id for d in (self.before, self.after) for r in d.rules})
        differs = self.verdict_changed.copy()
        for name in ids:
            differs |= self.before.behind(name) != self.after.behind(name)
        found = np.flatnonzero(differs)
        return found[np.argsort(~self.verdict_changed[found], kind="stable")]

    @property
    def verdict_changed(self) -> Bools:
        """Subjects whose verdict changed."""
        changed: Bools = self.before.verdict != self.after.verdict
        return changed

    def changes(self, positions: npt.NDArray[np.int64]) -> Iterator[Change]:
        """What changed of these subjects."""
        for i in positions.tolist():
            earlier, later = ([r.id for r in d.counted(i)] for d in (self.before, self.after))
            yield Change(
                position=i,
                verdict_before=self.before.verdict_of(i),
                verdict_after=self.after.verdict_of(i),
                routes_before=tuple(self.before.routes(i)),
                routes_after=tuple(self.after.routes(i)),
                rules_before=tuple(name for name in earlier if name not in later),
                rules_after=tuple(name for name in later if name not in earlier),
            )

    def tallies(self) -> tuple[dict[str, int], dict[str, int]]:
        """Subjects by verdict, before and after."""
        before, after = (
            {name: int((d.verdict == n).sum()) for n, name in enumerate(VERDICTS)}
            for d in (self.before, self.after)
        )
        return before, after

    def by_rule(self) -> dict[str, int]:
        """How many more (or, negative, fewer) subjects each rule is behind, where that changed."""
        counts: Counter[str] = Counter()
        for decisions, sign in ((self.before, -1), (self.after, 1)):
            for rule in decisions.rules:
                counts[rule.id] += sign * int(decisions.behind(rule.id).sum())
        return {name: n for name, n in counts.items() if n}
