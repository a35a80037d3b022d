"""Verdicts as they were given, with what they were given on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

from sqlalchemy import delete

from slurm_trace.store.bulk import in_chunks, insert_rows
from slurm_trace.store.engine import Store
from slurm_trace.store.models import verdict

RULES_DIGITS = 32
"""Hexadecimal digits of the rules' digest that a verdict is kept with: 128 bits tell any two apart."""


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """The verdict on one run for one threshold, basis and trust.

    Attributes:
        rates: Digest of the rate registry.
        evaluator: Version of the evaluator, then generation and digest of the rules: `0.1.0/3 rules 3:51af…`; of the
            digest the first RULES_DIGITS digits, as the column is short.
        bound: FLOP in decimal digits, since it passes 2^63; None if it is not known.
    """

    run_id: int
    threshold: str
    basis: str
    trust: str
    rates: str
    evaluator: str
    bound: str | None
    verdict: str
    verdict_strict: str
    generated_at: int


_COLUMNS = tuple(f.name for f in fields(StoredVerdict))


def save_verdicts(store: Store, verdicts: Iterable[StoredVerdict]) -> int:
    """Keep verdicts; each takes the place of the one given before on the same question.

    Returns:
        How many.
    """
    questions: dict[tuple[str, str, str], list[StoredVerdict]] = {}
    for one in verdicts:
        questions.setdefault((one.threshold, one.basis, one.trust), []).append(one)
    with store.writing() as connection:
        for (threshold, basis, trust), answers in questions.items():
            same = (
                (verdict.c.threshold == threshold) & (verdict.c.basis == basis) & (verdict.c.trust == trust)
            )
            for chunk in in_chunks(answers):
                ids = [one.run_id for one in chunk]
                connection.execute(delete(verdict).where(same, verdict.c.run_id.in_(ids)))
                insert_rows(connection, verdict, _COLUMNS, [astuple(one) for one in chunk])
    return sum(map(len, questions.values()))
