"""Runs the corpus: makes the sites, puts them through the analysis, and compares."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

from slurm_trace.analysis.corpus.anchors import load_anchors
from slurm_trace.analysis.corpus.design import DEFAULT_SEED, Instance, instances
from slurm_trace.analysis.corpus.expectations import Change, load_expectations, route_text
from slurm_trace.analysis.corpus.judge import Judge, Judged, site_verdict, tables
from slurm_trace.analysis.corpus.site import Site

WATCH_S = 0.5
"""How often a worker looks whether its parent is still there."""


@dataclass(frozen=True, slots=True)
class Case:
    """An instance and what was said of it."""

    instance: Instance
    answers: tuple[Judged, ...]
    route: str

    @property
    def as_intended(self) -> bool | None:
        """The verdict on the site is that of the family's own arithmetic; None where it has none."""
        intended = self.instance.site.intended
        return None if intended is None else site_verdict(self.answers) == intended

    @property
    def violations(self) -> list[Judged]:
        """What is not one-sided."""
        return [answer for answer in self.answers if answer.below]

    def line(self) -> dict[str, Any]:
        """The routes as a line of raw_routes.jsonl."""
        return {
            "id": self.instance.id,
            "route": self.route,
            "verdict": site_verdict(self.answers),
            "intended": self.instance.site.intended,
            "answers": [
                {
                    "kind": a.kind,
                    "key": a.key,
                    "routes": [a.verdict, *a.beside],
                    "verdict_strict": a.verdict_strict,
                    "verdict_with_base": a.with_base,
                    "runaway": a.runaway,
                    "bound_flop": a.bound_flop,
                    "true_flop": a.true_flop,
                    "not_one_sided": a.below or None,
                }
                for a in self.answers
            ],
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """All cases of a run.

    Attributes:
        changes: Cases whose route is not the expected one; None where nothing is expected of this seed.
    """

    seed: int
    cases: tuple[Case, ...]
    changes: tuple[Change, ...] | None
    digests: dict[str, str]

    @property
    def holds(self) -> bool:
        """Nothing changed, every bound is one-sided, and no family contradicts its own arithmetic."""
        return not self.changes and not any(c.violations or c.as_intended is False for c in self.cases)


def run(
    seed: int = DEFAULT_SEED,
    most: int | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Run the corpus of a seed.

    Args:
        seed: Whose sites.
        most: At most so many instances of each family; None for the whole design.
        processes: How many work at once.
        progress: Is told how many instances are judged, and of how many.
    """
    made = list(instances(seed, load_anchors(), most))
    work = sorted(tables([one.site for one in made]), key=len, reverse=True)
    answers: list[list[Judged]] = [[] for _ in made]
    done = 0
    with _pool(processes) if processes > 1 else nullcontext() as pool:
        for members, found in zip(
            work, _judged(pool, [[made[i].site for i in m] for m in work]), strict=True
        ):
            for position, answer in zip(members, found, strict=True):
                answers[position] = answer
            done += len(members)
            progress(done, len(made))
    cases = tuple(
        Case(instance, tuple(answer), route_text(answer))
        for instance, answer in zip(made, answers, strict=True)
    )
    expected = load_expectations()
    changes = (
        tuple(expected.changes((case.instance, case.route) for case in cases))
        if seed == expected.seed
        else None
    )
    return Outcome(seed, cases, changes, _judge().digests)


def _pool(processes: int) -> ProcessPoolExecutor:
    # Forked, so that the parent of a worker is this process.
    return ProcessPoolExecutor(
        processes, get_context("fork"), initializer=_end_with_parent, initargs=(os.getpid(),)
    )


def _end_with_parent(parent: int) -> None:
    """Let this worker end soon after its parent, however that ends: the pool's own pipe is held open by the workers.

    The parent may have ended before the worker could ask for it.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _judged(pool: ProcessPoolExecutor | None, work: Sequence[list[Site]]) -> Iterator[list[list[Judged]]]:
    return map(_table, work) if pool is None else pool.map(_table, work)


def _table(sites: list[Site]) -> list[list[Judged]]:
    return _judge().table(sites)


@cache
def _judge() -> Judge:
    return Judge(load_anchors())
