"""From the store to verdicts: loads what the pure analysis needs and puts the question to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slurm_trace.accounting.sreport import ControlTotal
from slurm_trace.analysis.capacity import Inventory
from slurm_trace.analysis.clocks import ClockRead, Clocks
from slurm_trace.analysis.completeness import Coverage, completeness, covered
from slurm_trace.analysis.control import Compared, compare
from slurm_trace.analysis.energy import energy
from slurm_trace.analysis.envelope import Bools, Envelope, Ints, envelope
from slurm_trace.analysis.groups import NO_TERMS, Group, Grouping, Groups, Terms
from slurm_trace.analysis.job_ids import JobIds, job_ids
from slurm_trace.analysis.ladder import Cards, Rung, Telemetry
from slurm_trace.analysis.memberships import By, columns_of
from slurm_trace.analysis.people import people
from slurm_trace.analysis.ranking import ranked, rows, touching
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.records import Records
from slurm_trace.analysis.rules.evaluate import Column, Decisions, evaluate
from slurm_trace.analysis.rules.membership import KINDS, observe_membership
from slurm_trace.analysis.rules.observe import observe_groups, observe_runs, observe_samples
from slurm_trace.analysis.rules.ruleset import RuleSet
from slurm_trace.analysis.thresholds import Threshold, Thresholds
from slurm_trace.analysis.tracking import Status
from slurm_trace.analysis.unattributed import moved_between, unattributed
from slurm_trace.analysis.verdicts import RULED_OUT, VERDICTS, Question, verdicts
from slurm_trace.child import in_background, without_cycles
from slurm_trace.errors import UsageProblem
from slurm_trace.site.profile import SiteProfile, load_profile
from slurm_trace.store.card_clocks import load_clocks
from slurm_trace.store.device_ends import count_spools, load_ends
from slurm_trace.store.engine import Store
from slurm_trace.store.frame import LARGE
from slurm_trace.store.load import (
    ImportRecord,
    count_rejected,
    load_allocations,
    load_columns,
    load_events,
    load_imports,
    load_runs,
)
from slurm_trace.store.summaries import load_summaries
from slurm_trace.store.telemetry import load_cycles
from slurm_trace.store.verdicts import RULES_DIGITS, StoredVerdict
from slurm_trace.version import EVALUATOR_VERSION, VERSION

ACCOUNTING = ("file", "sacct", "pyslurm")
"""Kinds of imports that bring runs; only they can make the records complete."""

GROUPS_AT_ONCE = 5_000
"""Groups that are put together at once; as text each of them is large."""

COLUMNS = (
    "run_id", "cluster", "job_id_raw", "job_id", "submit", "start", "end", "elapsed_s", "suspended_s",
    "limit_s", "step_end", "step_count", "queried_at", "uid", "node_count", "cpu_count", "user", "account",
    "state", "node_list", "source", "flags", "final", "started", "allocation", "lease_end", "lease_gpus",
    "lease_covered_ms", "lease_energy_mj", "lease_energy_from", "release_proven",
)  # fmt: skip
"""What the question needs of a run; the rest stays in the store."""

OF_CLOCK = ("lease_clock_top_mhz", "lease_clock_max_mhz")
"""Of these the higher counts."""


_TEXTS = frozenset({"name", "work_dir"})
"""Of the columns that groups take."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked.

    Attributes:
        threshold: Id of a threshold, or a number of operations.
        basis: What counts as an operation; None for the threshold's own.
        margin: Room for what the ceilings leave out.
        since: Start of the window (epoch), None for open.
        until: End of the window, exclusive.
        profile: Path of the site profile.
        overlay: Path of the site's own rates and thresholds.
        trust: The lowest rung to go down to.
        routes: What the rules say beside the verdicts will be asked for, so what it rests on is loaded too.
        kinds: Kinds of groups that will be asked for.
        terms: What else decides what is asked of groups.
        control: Sums of the same time from elsewhere, to hold the records against.
    """

    threshold: str
    basis: str | None
    margin: Fraction
    since: int | None = None
    until: int | None = None
    profile: str | None = None
    overlay: str | None = None
    trust: Rung = "allocation"
    routes: bool = False
    kinds: tuple[By, ...] = ()
    terms: Terms = NO_TERMS
    control: tuple[ControlTotal, ...] = ()


@dataclass(frozen=True, slots=True)
class Assessment:
    """The answer, not yet in the form of any report."""

    request: Request
    threshold: Threshold
    question: Question
    rates: Rates
    thresholds_digest: str
    site: SiteProfile
    envelope: Envelope
    in_window: Bools
    records: Records
    inventory: Inventory
    summaries: pd.DataFrame | None
    control: tuple[Compared, ...] = ()
    job_ids: Mapping[str, JobIds] = field(default_factory=dict)

    @property
    def members(self) -> Bools:
        """Runs that count: they touch the window and may have held something."""
        return self.in_window & self.envelope.started

    @property
    def ranking_members(self) -> Bools:
        """Runs that the ranking lists: a record that was never closed is listed apart."""
        return self.members & ~self.envelope.release.runaway

    def head(self, schema: str) -> dict[str, Any]:
        """What every JSON report begins with."""
        release = self.envelope.release
        return {
            "schema": schema,
            "generated_at": int(time.time()),
            "threshold": {
                "id": self.threshold.id,
                "flop": self.threshold.flop,
                "counts": self.threshold.counts,
            },
            "basis": self.question.basis,
            "trust": self.request.trust,
            "margin": float(self.question.margin),
            "window": {"since": self.request.since, "until": self.request.until},
            "inputs": {
                "jobs": int(self.in_window.sum()),
                "never_started": int((self.in_window & ~self.envelope.started).sum()),
                "runaway": int((self.members & release.runaway).sum()),
                "rejected": sum(self.records.rejected.values()),
                "rates": self.rates.digest,
                "thresholds": self.thresholds_digest,
                "site_profile": self.site.digest,
                "rules": RuleSet.load().digest,
                "rules_generation": RuleSet.load().generation.generation,
                "evaluator": f"{VERSION}/{EVALUATOR_VERSION}",
            },
            "records_complete": {
                name: {"status": c.status, "gaps": list(c.gaps)} for name, c in self.records.complete.items()
            },
        }

    def jobs(
        self, top: int | None = None, *, runaway: bool = False, decisions: Decisions | None = None
    ) -> Iterator[dict[str, Any]]:
        """The ranked runs (or, apart, the records that were never closed)."""
        return self.rows(self.order(top, runaway=runaway), decisions)

    def order(self, top: int | None = None, *, runaway: bool = False) -> Ints:
        """Positions of these runs, the ones that can't be ruled out first."""
        chosen = self.members & self.envelope.release.runaway if runaway else self.ranking_members
        return ranked(self.envelope, chosen, self.question)[:top]

    def rows(self, order: Any, decisions: Decisions | None = None) -> Iterator[dict[str, Any]]:
        """Runs at these positions as entries of a report, with their routes if what the rules say is given."""
        return rows(
            self.envelope,
            order,
            self.question,
            rates=self.rates,
            complete=self._complete,
            since=self.request.since,
            until=self.request.until,
            decisions=decisions,
        )

    @property
    def _complete(self) -> dict[str, Status]:
        return {name: c.status for name, c in self.records.complete.items()}

    def observed(self, positions: Sequence[int] | None = None) -> dict[str, Column]:
        """All that the rules may ask of runs, one entry a run of the store; right for `positions` if they are given."""
        columns = observe_runs(self.envelope, self.question, self._complete)
        if self.summaries is not None:
            columns |= observe_samples(self.envelope, self.summaries, self.rates)
        verdict = verdicts(self.envelope, self.question)
        near = None if positions is None else np.array(positions, dtype=np.int64)
        return columns | observe_membership(self.grouping(), verdict, near)

    def near(self, store: Store, positions: Sequence[int]) -> Assessment:
        """The same with what the rules say of these runs beside their verdicts, for `decisions` of them alone.

        It takes further columns of every run of the same people, who are few; of the others they stay NULL.
        """
        runs, at = self.envelope.runs.copy(deep=False), np.flatnonzero(self.members)
        person, _ = people(runs[["cluster", "user", "uid"]].iloc[at])
        same = np.isin(person, person[np.isin(at, positions)])
        ids = runs["run_id"].to_numpy(dtype=np.int64)
        missing = [name for name in columns_of(KINDS) if name not in runs]
        found = load_columns(store, ids[at[same]].tolist(), missing).reindex(ids)
        for name in missing:
            runs[name] = found[name].astype("category" if name in _TEXTS else "Int64").array
        return replace(
            self,
            envelope=replace(self.envelope, runs=runs),
            summaries=load_summaries(store, ids[np.array(positions, dtype=np.int64)].tolist()),
        )

    def decisions(self, positions: Sequence[int] | None = None) -> Decisions:
        """What the current rules say of runs, beside the verdict too (with `request.routes`, or `near` them)."""
        return evaluate(RuleSet.load(), self.observed(positions))

    def energy(self, i: int) -> dict[str, Any] | None:
        """Energy of the GPUs of run i, as its leases tell it; evidence, and no part of the bound."""
        found = energy(self.envelope, i, self.rates)
        return None if found is None else asdict(found) | {"unexplained": found.unexplained}

    @property
    def all_ruled_out(self) -> bool:
        """Every run is, the records that were never closed included, and every row could be read."""
        codes = verdicts(self.envelope, self.question)[self.members]
        every_one = bool((codes == VERDICTS.index(RULED_OUT)).all())
        return every_one and self.knows_anything and not any(self.records.rejected.values())

    @property
    def knows_anything(self) -> bool:
        """There is a run, or an import that says that there was none: an empty store rules out nothing."""
        covered = any(c.status != "assumed" and not c.gaps for c in self.records.complete.values())
        return covered or bool(self.members.any())

    def tally(self, *, strict: bool = False) -> dict[str, int]:
        """Runs of the ranking by verdict."""
        found = np.bincount(
            verdicts(self.envelope, self.question, strict=strict)[self.ranking_members],
            minlength=len(VERDICTS),
        )
        return {verdict: int(n) for verdict, n in zip(VERDICTS, found, strict=True)}

    def verdicts(self) -> Iterator[StoredVerdict]:
        """The verdicts on the ranked runs and on those never closed, in the form in which the store keeps them."""
        head, rules = self.head(""), RuleSet.load()
        evaluator = (
            f"{head['inputs']['evaluator']} rules {rules.generation.generation}:{rules.digest[:RULES_DIGITS]}"
        )
        plain, strict = (verdicts(self.envelope, self.question, strict=s) for s in (False, True))
        ids = self.envelope.runs["run_id"].to_numpy(dtype=np.int64)
        for i in np.flatnonzero(self.members).tolist():
            bound = self.envelope.bound_flop(i)
            yield StoredVerdict(
                run_id=int(ids[i]),
                threshold=self.threshold.id,
                basis=self.question.basis,
                trust=self.request.trust,
                rates=self.rates.digest,
                evaluator=evaluator,
                bound=None if bound is None else str(bound),
                verdict=VERDICTS[plain[i]],
                verdict_strict=VERDICTS[strict[i]],
                generated_at=head["generated_at"],
            )

    @property
    def terms(self) -> Terms:
        """What is asked of groups. A base model's compute that decides the threshold is not added to anything."""
        terms = self.request.terms
        return terms if self.threshold.of_base is None else replace(terms, base_flop=None)

    def group_routes(self, groups: Sequence[Group]) -> list[list[dict[str, str | None]]]:
        """What the current rules say of groups: the routes of each, with the rules behind them."""
        decisions = evaluate(RuleSet.load(), self.observed_groups(groups), "group")
        return [decisions.entries(i) for i in range(len(groups))]

    def observed_groups(self, groups: Sequence[Group]) -> dict[str, Column]:
        """All that the rules may ask of groups, one entry a group. A million of them are looked at part by part."""
        parts = [
            observe_groups(groups[first : first + GROUPS_AT_ONCE], self.question, self.records)
            for first in range(0, len(groups), GROUPS_AT_ONCE)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def grouping(self) -> Grouping:
        """The same question for groups of every kind in `request.kinds`, and of those that need no further columns."""
        return Grouping(self.envelope, self.members, self.question, self.records, self.inventory, self.terms)

    def groups(self, by: By) -> Groups:
        """The same question for groups of one kind."""
        return self.grouping().groups(by)


def assess(store: Store, request: Request) -> Assessment:
    """Answer a request from what the store holds.

    Raises:
        UsageProblem: The window, the threshold, the profile or an overlay can't be used.
    """
    # What the nodes told takes as long to read as the runs themselves.
    aside = in_background if count_spools(store) >= LARGE else nullcontext
    with (
        without_cycles(),
        aside(partial(_telemetry, store, request)) as telemetry,
        aside(partial(_moved, store)) as moved,
        aside(partial(_summaries, store, request)) as summaries,
    ):
        return _assess(store, request, telemetry, moved, summaries)


def _assess(
    store: Store,
    request: Request,
    telemetry: Callable[[], Telemetry | None],
    moved: Callable[[], pd.DataFrame],
    summaries: Callable[[], pd.DataFrame | None],
) -> Assessment:
    if request.since is not None and request.until is not None and request.since >= request.until:
        raise UsageProblem("the window is empty: --since must lie before --until")
    overlay = Path(request.overlay) if request.overlay else None
    rates, registry = Rates.load(overlay), Thresholds.load(overlay)
    threshold = registry.get(request.threshold)
    if request.terms.base_flop is not None:
        threshold = threshold.on_base(request.terms.base_flop)
    site = load_profile(request.profile)
    question = Question(threshold.flop, request.basis or "max_any_op", request.margin)
    kinds = {*request.kinds, *(KINDS if request.routes else ())}
    runs = load_runs(store, columns=(*COLUMNS, *OF_CLOCK, *columns_of(kinds)))
    read_mhz = [runs.pop(name).fillna(0).to_numpy(dtype=np.int64) for name in OF_CLOCK]
    runs["lease_clock_mhz"] = np.maximum(*read_mhz)
    reads = (ClockRead(c.cluster, c.card, c.clock_mhz, c.node, c.uuid) for c in load_clocks(store))
    clocks = Clocks(rates, question.basis, reads)
    imports = load_imports(store)
    events = load_events(store)
    as_of = _as_of(runs, imports)
    if request.until is None and request.since is not None and request.since > as_of > 0:
        raise UsageProblem(
            f"the records speak of nothing from epoch {request.since} on; import more, or give --until too"
        )
    bounds = envelope(
        runs,
        load_allocations(store),
        rates=rates,
        site=site,
        events=events,
        as_of=max(as_of, *(i.finished_at or 0 for i in imports if i.kind == "events"), 0),
        basis=question.basis,
        trust=request.trust,
        telemetry=telemetry(),
        clocks=clocks,
    )
    begin = int(runs["start"].min()) if runs["start"].notna().any() else as_of
    released = (runs["start"] + bounds.release.held_s).max()
    period = (
        min(begin, as_of if request.since is None else request.since),
        max(
            as_of,
            begin + 1,
            0 if pd.isna(released) else int(released),
            0 if request.until is None else request.until,
        ),
    )
    # An import that broke off and was made good by a later one, or never had a row, leaves nothing open; and what a
    # file covers was said once and for all.
    spoken_for = {i.digest for i in imports if i.digest is not None and i.covers_from is not None}
    coverage = [
        _coverage(i)
        for i in imports
        if i.kind in ACCOUNTING
        and (i.complete or (i.completed_by is None and i.read))
        and (i.covers_from is not None or i.digest not in spoken_for)
    ]
    rejected = count_rejected(store)
    # A cluster of which nothing could be read, or nothing was imported, has runs all the same.
    clusters = {
        *(str(c) for c in runs["cluster"].dropna().unique()),
        *(name for name in rejected if name is not None),
        *(name for i in coverage for name in i.clusters),
        *site.clusters,
        *(total.cluster for total in request.control),
    }
    control = compare(bounds, request.control)
    records = Records(
        complete={
            name: completeness(coverage, name, request.since, request.until) for name in sorted(clusters)
        },
        rejected=rejected,
        window=(request.since, request.until),
        period=period,
        unattributed=unattributed(moved(), Cards(rates, question.basis, request.trust, clocks)),
        shortfalls={
            name: [c.reason for c in control if c.total.cluster == name and c.short_s] for name in clusters
        },
    )
    spans = {name: covered(coverage, name) for name in sorted(clusters)} if request.kinds else {}
    ids = {name: job_ids(runs, name, spans[name]) for name in spans}
    return Assessment(
        request=request,
        threshold=threshold,
        question=question,
        rates=rates,
        thresholds_digest=registry.digest,
        site=site,
        envelope=bounds,
        in_window=touching(bounds, request.since, request.until),
        records=records,
        inventory=Inventory(rates, site, question.basis, as_of, clocks),
        control=tuple(control),
        job_ids={name: found for name, found in ids.items() if found is not None},
        summaries=summaries(),
    )


def _telemetry(store: Store, request: Request) -> Telemetry | None:
    if request.trust == "allocation":
        return None
    stored = load_cycles(store)
    return Telemetry(stored.table, stored.kinds)


def _moved(store: Store) -> pd.DataFrame:
    return moved_between(load_ends(store))


def _summaries(store: Store, request: Request) -> pd.DataFrame | None:
    return load_summaries(store) if request.routes else None


def _coverage(entry: ImportRecord) -> Coverage:
    covers = (
        None if entry.covers_from is None or entry.covers_to is None else (entry.covers_from, entry.covers_to)
    )
    asked = entry.flags.get("cluster")
    return Coverage(
        id=entry.id,
        name=entry.name,
        clusters=entry.clusters or ((asked,) if asked else ()),
        covers=covers,
        complete=entry.complete,
        live=entry.kind in ("sacct", "pyslurm"),
        flags=entry.flags,
    )


def _as_of(runs: Any, imports: Any) -> int:
    """The latest moment that the records speak of."""
    moments = [
        int(runs[name].max())
        for name in ("end", "queried_at", "step_end", "start")
        if runs[name].notna().any()
    ]
    # What a cloud feed covers says nothing of the clusters.
    moments += [i.covers_to for i in imports if i.covers_to is not None and i.kind != "feed"]
    return max(moments, default=0)
