"""Footnotes of a table: what the rules say of a row beside its verdict, a letter a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice, product
from string import ascii_lowercase

COLUMN = "see"
"""Heading of the column of letters."""


class Footnotes:
    """Letters for the rules that warn of rows or name a group for them, in the order in which they are met."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}
        self._next = ("".join(letters) for n in count(1) for letters in product(ascii_lowercase, repeat=n))

    def mark(self, routes: Iterable[Mapping[str, str | None]]) -> str:
        """The letters of a row, from its `routes`; "" where nothing is said beside the verdict."""
        rules = (r["rule"] for r in routes if r["route"] in ("WARN", "ATTRIBUTE"))
        return " ".join(self._letter(rule) for rule in rules if rule is not None)

    def _letter(self, rule: str) -> str:
        if rule not in self._letters:
            (self._letters[rule],) = islice(self._next, 1)
        return self._letters[rule]

    def lines(self) -> Iterator[str]:
        """What each letter stands for: the route, the rule and its reason."""
        from slurm_trace.analysis.rules.ruleset import RuleSet

        known = {rule.id: rule for rule in RuleSet.load().rules}
        for name, letter in self._letters.items():
            yield f"  {letter}: {known[name].route_text}: {known[name].reason} (rule {name})"
