"""From the feeds in the store to verdicts on cloud accounts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from slurm_trace.analysis.completeness import Coverage, completeness
from slurm_trace.analysis.feed import AccountLine, FeedRecords, bound_accounts
from slurm_trace.analysis.provider_skus import ProviderSkus
from slurm_trace.analysis.question import Question
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.rules.evaluate import evaluate
from slurm_trace.analysis.rules.observe import observe_accounts
from slurm_trace.analysis.rules.ruleset import RuleSet
from slurm_trace.analysis.thresholds import Threshold, Thresholds
from slurm_trace.errors import UsageProblem
from slurm_trace.store.engine import Store
from slurm_trace.store.feed import KIND
from slurm_trace.store.feed_load import count_rejected_charges, load_charges
from slurm_trace.store.load import load_imports
from slurm_trace.version import EVALUATOR_VERSION, VERSION


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What is asked.

    Attributes:
        threshold: Id of a threshold, or a number of operations.
        basis: What counts as an operation.
        margin: Room for what the ceilings leave out.
        since: Start of the window (epoch), None for open; charges that touch it count whole.
        until: End of the window, exclusive.
        overlay: Path of the site's own rates, thresholds and SKUs.
    """

    threshold: str
    basis: str
    margin: Fraction
    since: int | None = None
    until: int | None = None
    overlay: str | None = None


@dataclass(frozen=True, slots=True)
class FeedAssessment:
    """The answer, not yet in the form of any report."""

    request: FeedRequest
    threshold: Threshold
    question: Question
    digests: dict[str, str]
    records: FeedRecords
    total: AccountLine
    accounts: list[AccountLine]

    def routes(self) -> list[list[dict[str, str | None]]]:
        """What the current rules say of each account, with the rules behind it."""
        columns = observe_accounts(self.accounts, self.question, self.records.complete.status)
        decisions = evaluate(RuleSet.load(), columns, "group")
        return [decisions.entries(i) for i in range(len(self.accounts))]

    def head(self, schema: str) -> dict[str, Any]:
        """What every JSON report of feeds begins with."""
        return {
            "schema": schema,
            "generated_at": int(time.time()),
            "threshold": {
                "id": self.threshold.id,
                "flop": self.threshold.flop,
                "counts": self.threshold.counts,
            },
            "basis": self.question.basis,
            "margin": float(self.question.margin),
            "window": {"since": self.request.since, "until": self.request.until},
        }


def assess_feed(store: Store, request: FeedRequest) -> FeedAssessment:
    """Answer a request from the feeds that the store holds.

    Raises:
        UsageProblem: The window, the threshold or an overlay can't be used.
    """
    if request.since is not None and request.until is not None and request.since >= request.until:
        raise UsageProblem("the window is empty: --since must lie before --until")
    overlay = Path(request.overlay) if request.overlay else None
    rates, thresholds = Rates.load(overlay), Thresholds.load(overlay)
    threshold = thresholds.get(request.threshold)
    question = Question(threshold.flop, request.basis, request.margin)
    rules = RuleSet.load()
    skus = ProviderSkus.load(rates, request.basis, overlay)
    imports = [i for i in load_imports(store) if i.kind == KIND]
    coverage = [
        Coverage(
            id=i.id,
            name=i.name,
            clusters=(KIND,),
            covers=None if i.covers_from is None or i.covers_to is None else (i.covers_from, i.covers_to),
            complete=i.complete,
            live=False,
            flags={},
        )
        for i in imports
        if i.complete or (i.completed_by is None and i.read)
    ]
    records = FeedRecords(
        completeness(coverage, KIND, request.since, request.until), count_rejected_charges(store)
    )
    charges = load_charges(store, request.since, request.until)
    total, accounts = bound_accounts(charges, skus, question, records)
    return FeedAssessment(
        request=request,
        threshold=threshold,
        question=question,
        digests={
            "rates": rates.digest,
            "skus": skus.digest,
            "thresholds": thresholds.digest,
            "rules": rules.digest,
            "evaluator": f"{VERSION}/{EVALUATOR_VERSION}",
        },
        records=records,
        total=total,
        accounts=accounts,
    )
