"""Puts many sites at once through the analysis.

Each gets cluster, user and account names of its own, so that none can touch another: the answer to a site is the same
alone and among others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, cast

import numpy as np
import pandas as pd

from slurm_trace.accounting.events import Event
from slurm_trace.analysis.capacity import Inventory
from slurm_trace.analysis.completeness import Completeness, completeness
from slurm_trace.analysis.corpus.anchors import Anchors
from slurm_trace.analysis.corpus.site import CLUSTER, Counted, LeaseReads, Run, Site
from slurm_trace.analysis.envelope import Envelope, envelope
from slurm_trace.analysis.group import NO_TERMS, Group, Terms
from slurm_trace.analysis.groups import Grouping
from slurm_trace.analysis.ladder import PIPES, Cards, Telemetry
from slurm_trace.analysis.memberships import By, memberships
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.records import Records
from slurm_trace.analysis.rules.evaluate import evaluate
from slurm_trace.analysis.rules.membership import observe_membership
from slurm_trace.analysis.rules.observe import observe_groups, observe_runs
from slurm_trace.analysis.rules.ruleset import RuleSet
from slurm_trace.analysis.thresholds import Thresholds
from slurm_trace.analysis.unattributed import moved_between, unattributed
from slurm_trace.analysis.verdicts import RULED_OUT, VERDICTS, Question, verdicts
from slurm_trace.site.profile import SiteProfile

SITES_AT_ONCE, WIDE_AT_ONCE = 1000, 100
"""Of one table: enough to share its cost, few enough for two processes to have work until the end; the second where
other groups than clusters are asked for, each of which looks at every cluster of the table."""

UIDS = 10**6
"""More than any site of the corpus has."""

_TEXT = (
    "cluster",
    "user",
    "account",
    "partition",
    "state",
    "node_list",
    "source",
    "flags",
    "name",
    "work_dir",
)
_BOOL = ("final", "started", "release_proven")
_INTEGER = tuple(
    f.name for f in fields(Run) if f.name not in {*_TEXT, *_BOOL, "alloc_tres", "alloc_gres", "true_flop"}
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What was said of one run or one group.

    Attributes:
        kind: "run", or the kind of the group.
        key: Cluster, raw id and submit time of a run, else the name of the group.
        beside: What the rules say beside the verdict: WARN, ATTRIBUTE(user).
        with_base: The verdict on a group together with the base model that was added to it.
        true_flop: Operations really performed by all its members; None if one of them is not simulated.
        below: Why the bound is not one-sided; "" where it is.
    """

    kind: str
    key: str
    verdict: str
    verdict_strict: str
    bound_flop: int | None
    true_flop: int | None
    beside: tuple[str, ...] = ()
    with_base: str | None = None
    runaway: bool = False
    below: str = ""


class Judge:
    """The analysis with the registries and the rules it uses."""

    def __init__(self, anchors: Anchors) -> None:
        self._anchors = anchors
        self._rates = Rates.load(None)
        self._thresholds = Thresholds.load(None)
        self._rules = RuleSet.load()

    @property
    def digests(self) -> dict[str, str]:
        """What the answers rest on besides the sites."""
        return {
            "rates": self._rates.digest,
            "thresholds": self._thresholds.digest,
            "rules": self._rules.digest,
        }

    def table(self, sites: Sequence[Site]) -> list[list[Judged]]:
        """What is said of the runs and the groups of each of these sites, which can share a table."""
        ask, period = sites[0].ask, sites[0].period
        threshold = self._thresholds.get(ask.threshold)
        if ask.base_flop is not None:
            threshold = threshold.on_base(ask.base_flop)
        terms = Terms(within_s=ask.within_s, base_flop=ask.base_flop if threshold.of_base is None else None)
        question = Question(threshold.flop, ask.basis)
        if ask.margin is not None:
            question = replace(question, margin=ask.margin)
        profile = SiteProfile(
            {_apart(n, name): p for n, site in enumerate(sites) for name, p in site.profiles.items()}
        )
        rows = [_moved(n, run) for n, site in enumerate(sites) for run in site.runs]
        runs, allocations = frame(rows)
        bounds = envelope(
            runs,
            allocations,
            rates=self._rates,
            site=profile,
            events=_events(sites),
            as_of=self._anchors.as_of,
            basis=ask.basis,
            trust=ask.trust,
            telemetry=_telemetry(sites),
        )
        records = Records(
            complete={
                _apart(n, c): _complete(site, c) for n, site in enumerate(sites) for c in site.clusters
            },
            rejected={_apart(n, site.clusters[0]): site.rejected for n, site in enumerate(sites)},
            window=(None, None),
            period=period or (0, self._anchors.as_of),
            unattributed=unattributed(moved_between(_ends(sites)), Cards(self._rates, ask.basis, ask.trust)),
        )
        inventory = Inventory(self._rates, profile, ask.basis, self._anchors.as_of)
        beyond = {_apart(n, CLUSTER): site.unattributed_flop for n, site in enumerate(sites)}
        asked = _Asked(bounds, question, self._rules, records, inventory, terms, rows, beyond)
        owner = np.repeat(np.arange(len(sites)), [len(site.runs) for site in sites])
        found: list[list[Judged]] = [[] for _ in sites]
        of_groups = (one for level in sites[0].levels for one in asked.groups(cast(By, level)))
        for position, one in chain(enumerate(asked.runs()), of_groups):
            found[owner[position]].append(one)
        return found


def tables(sites: Sequence[Site]) -> Iterator[list[int]]:
    """Positions of sites that can share a table: the same question, and none leaves the groups of another open."""
    found: dict[Any, list[int]] = {}
    for position, site in enumerate(sites):
        leaves_open = bool(
            site.rejected
            or site.imports is not None
            or site.reads
            or any(None in (run.user, run.account) for run in site.runs)
        )
        wide = site.levels != ("cluster",)
        alone = wide and bool(leaves_open or site.profiles or "all" in site.levels)
        key = site.ask, site.period, site.levels, leaves_open, position if alone else None
        found.setdefault(key, []).append(position)
    for (_, _, levels, _, _), members in found.items():
        at_once = SITES_AT_ONCE if levels == ("cluster",) else WIDE_AT_ONCE
        for first in range(0, len(members), at_once):
            yield members[first : first + at_once]


def _apart(site: int, name: str) -> str:
    return f"{site}.{name}"


def _original(name: str) -> str:
    return name.partition(".")[2]


def _moved(n: int, run: Run) -> Run:
    """The run, with names that no other site of its table has."""
    return replace(
        run,
        cluster=_apart(n, run.cluster),
        user=None if run.user is None else _apart(n, run.user),
        account=None if run.account is None else _apart(n, run.account),
        uid=None if run.uid is None else n * UIDS + run.uid,
    )


def _events(sites: Sequence[Site]) -> list[Event]:
    return [
        replace(event, cluster=_apart(n, event.cluster))
        for n, site in enumerate(sites)
        for event in site.events
    ]


def _telemetry(sites: Sequence[Site]) -> Telemetry:
    """What the counters of all sites tell, in the form in which the store gives it."""
    kinds: dict[Counted, int] = {}
    rows, first = [], 0
    for site in sites:
        for one in site.telemetry:
            code = kinds.setdefault(one.kind, len(kinds))
            cycles = {f"{pipe}_kcycles": getattr(one, pipe) for pipe in PIPES}
            rows.append(
                {
                    "run_id": first + one.run,
                    "kind": code,
                    "seconds": one.seconds,
                    "busy_ms": one.busy_ms,
                    **cycles,
                }
            )
        first += len(site.runs)
    names = ("run_id", "kind", "seconds", "busy_ms", *(f"{pipe}_kcycles" for pipe in PIPES))
    table = pd.DataFrame({name: np.array([row[name] for row in rows], dtype=np.int64) for name in names})
    return Telemetry(table.sort_values("run_id", kind="stable", ignore_index=True), tuple(kinds))


def _ends(sites: Sequence[Site]) -> pd.DataFrame:
    """What was read at the ends of leases, in the form in which the store gives it."""
    reads = [
        replace(read, cluster=_apart(n, read.cluster)) for n, site in enumerate(sites) for read in site.reads
    ]
    columns: dict[str, Any] = {}
    for one in fields(LeaseReads):
        values = [getattr(read, one.name) for read in reads]
        columns[one.name] = (
            pd.Categorical(values)
            if one.name in ("cluster", "boot_id", "uuid", "driver", "name", "mig_profile")
            else pd.array(values, dtype="Int64")
        )
    return pd.DataFrame(columns)


def _complete(site: Site, cluster: str) -> Completeness:
    return Completeness("proven") if site.imports is None else completeness(site.imports, cluster, None, None)


def frame(rows: Sequence[Run]) -> tuple[pd.DataFrame, dict[int, tuple[str | None, str | None]]]:
    """Runs as the store's `load_runs` and `load_allocations` would give them."""
    codes: dict[tuple[str | None, str | None], int] = {}
    allocation = [codes.setdefault((row.alloc_tres, row.alloc_gres), len(codes)) for row in rows]
    columns: dict[str, Any] = {"run_id": np.arange(len(rows)), "job_id": [str(r.job_id_raw) for r in rows]}
    for name in _INTEGER:
        columns[name] = pd.array([getattr(row, name) for row in rows], dtype="Int64")
    for name in _TEXT:
        columns[name] = pd.Categorical([getattr(row, name) for row in rows])
    for name in _BOOL:
        columns[name] = np.array([getattr(row, name) for row in rows], dtype=bool)
    columns["run_key"] = columns["submit"]
    columns["allocation"] = np.array(allocation, dtype=np.int64)
    return pd.DataFrame(columns), {code: pair for pair, code in codes.items()}


class _Asked:
    """The runs and the groups of one table."""

    def __init__(
        self,
        bounds: Envelope,
        question: Question,
        rules: RuleSet,
        records: Records,
        inventory: Inventory,
        terms: Terms,
        rows: Sequence[Run],
        beyond: Mapping[str, int],
    ) -> None:
        self._bounds, self._question, self._rules = bounds, question, rules
        self._records, self._rows, self._terms, self._beyond = records, rows, terms, beyond
        plain = Grouping(bounds, bounds.started, question, records, inventory)
        # What a run is part of has no window and no base model.
        self._plain = plain
        self._grouping = (
            plain
            if terms == NO_TERMS
            else Grouping(bounds, bounds.started, question, records, inventory, terms)
        )

    def runs(self) -> Iterator[Judged]:
        """Every run."""
        bounds, question = self._bounds, self._question
        complete = {name: one.status for name, one in self._records.complete.items()}
        plain, strict = (verdicts(bounds, question, strict=s, rules=self._rules) for s in (False, True))
        columns = observe_runs(bounds, question, complete)
        columns |= observe_membership(self._plain, plain)
        decisions = evaluate(self._rules, columns)
        for i, row in enumerate(self._rows):
            verdict, *beside = decisions.routes(i)
            bound, truth, verdict_strict = bounds.bound_flop(i), row.true_flop, VERDICTS[strict[i]]
            said = ((verdict, bound), (f"{verdict_strict} (strict)", bounds.strict_flop(i)))
            yield Judged(
                kind="run",
                key=_run_key(row),
                verdict=verdict,
                verdict_strict=verdict_strict,
                bound_flop=bound,
                true_flop=truth,
                beside=tuple(beside),
                runaway=bool(bounds.release.runaway[i]),
                below=_not_one_sided(truth, question, said),
            )

    def groups(self, level: By) -> Iterator[tuple[int, Judged]]:
        """Every group of one kind, and the position of its first member."""
        found = list(self._grouping.groups(level))
        decisions = evaluate(self._rules, observe_groups(found, self._question, self._records), "group")
        members = self._members(level)
        for n, group in enumerate(found):
            mine = members[group.key]
            truth = self._truth(level, [self._rows[i] for i in mine])
            verdict, *beside = decisions.routes(n)
            said = (
                (verdict, group.bound_flop),
                (group.verdict, group.bound_flop),
                (f"{group.verdict_strict} (strict)", None),
            )
            yield (
                mine[0],
                Judged(
                    kind=level,
                    key=_label(level, self._rows[mine[0]]),
                    verdict=group.verdict,
                    verdict_strict=group.verdict_strict,
                    bound_flop=group.bound_flop,
                    true_flop=truth,
                    beside=tuple(beside),
                    with_base=group.verdict_with_base,
                    below=_not_one_sided(truth, self._question, said) or self._below_with_base(truth, group),
                ),
            )

    def _truth(self, level: str, rows: Sequence[Run]) -> int | None:
        """Operations really performed by a group, in the window asked for; None if one run is not simulated."""
        truths = [row.true_flop for row in rows if row.true_flop is not None]
        if len(truths) < len(rows):
            return None
        outside = sum(self._beyond.get(name, 0) for name in {row.cluster for row in rows})
        within_s = self._terms.within_s
        own = sum(truths) if within_s is None else _worst_truth(rows, within_s)
        return own + (outside if level in ("all", "cluster") else 0)

    def _below_with_base(self, truth: int | None, group: Group) -> str:
        if truth is None or group.verdict_with_base is None:
            return ""
        said = (f"{group.verdict_with_base} (with base)", group.bound_with_base_flop)
        return _not_one_sided(truth + (self._terms.base_flop or 0), self._question, (said,))

    def _members(self, level: By) -> dict[str, list[int]]:
        """Positions of the runs of every group, by its key."""
        grouping = self._grouping
        person = grouping.person, grouping.labels
        found = memberships(self._bounds, grouping.rows, level, person, grouping.terms.pause_s)
        keys = [found.key(code) for code in range(found.size)]
        members: dict[str, list[int]] = {}
        for position, code in zip(grouping.rows.tolist(), found.codes.tolist(), strict=True):
            members.setdefault(keys[code], []).append(position)
        return members


def _worst_truth(rows: Sequence[Run], length_s: int) -> int:
    """The most that the runs of any window of this length did, by trying every window that a run begins or ends."""
    begins = [row.start or 0 for row in rows]
    spans = [(row.start or 0, row.end or 0, row.true_flop or 0) for row in rows]
    moments = {moment for begin in begins for moment in (begin, begin - length_s + 1)}
    return max(
        sum(flop for begin, end, flop in spans if begin < moment + length_s and end > moment)
        for moment in moments
    )


def _label(level: str, row: Run) -> str:
    if level in ("family", "lineage"):
        return _run_key(row)
    value = "all" if level == "all" else getattr(row, level)
    return "(none)" if value is None else _original(str(value)) or str(value)


def _run_key(row: Run) -> str:
    return f"{_original(row.cluster)}:{row.job_id_raw}@{row.submit}"


def _not_one_sided(truth: int | None, question: Question, said: Iterable[tuple[str, int | None]]) -> str:
    """Why what was said of `truth` operations is not one-sided; "" if it is."""
    if truth is None:
        return ""
    for verdict, bound in said:
        if bound is not None and bound < truth:
            return f"{verdict}: bound {bound} is below the {truth} operations that were performed"
        if truth >= question.threshold_flop and verdict.startswith(RULED_OUT):
            return f"{verdict}: {truth} operations were performed, which is T or more"
    return ""


def site_verdict(answers: Iterable[Judged]) -> str | None:
    """The verdict on everything at a site together: that of its widest group, with the base model that was added."""
    by_kind = {answer.kind: answer.with_base or answer.verdict for answer in answers}
    return by_kind.get("all", by_kind.get("cluster"))
