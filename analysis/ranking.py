"""The ranked list of runs, in the form in which it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from slurm_trace.analysis.energy import Energy, energy
from slurm_trace.analysis.envelope import Bools, Envelope, Ints
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.release import KILLED, LIMIT, NODE_LOST, OPEN, WHY
from slurm_trace.analysis.rules.evaluate import Decisions
from slurm_trace.analysis.tracking import Status
from slurm_trace.analysis.verdicts import INSUFFICIENT, VERDICTS, Question, assumptions, verdicts

ROWS_AT_ONCE = 20_000

_TEXT = ("cluster", "job_id", "user", "account", "state", "flags")
_NUMBERS = ("job_id_raw", "submit", "start", "end", "node_count")


def touching(envelope: Envelope, since: int | None, until: int | None) -> Bools:
    """Runs that touch [since, until), each to be counted whole. What has no time in its record always does."""
    start = envelope.runs["start"]
    begin = start.fillna(0).to_numpy(dtype=np.int64)
    given = start.notna().to_numpy()
    release = begin + envelope.release.held_s
    hit = np.ones(len(envelope), dtype=bool)
    if until is not None:
        hit &= ~given | (begin < until)
    if since is not None:
        hit &= ~given | ~envelope.release.known | (release > since)
    return hit


def ranked(envelope: Envelope, chosen: Bools, question: Question) -> Ints:
    """Positions of the chosen runs: what is not ruled out by ratio, then what can't be told by size, then the rest."""
    rows = np.flatnonzero(chosen)
    verdict = verdicts(envelope, question)[rows].astype(np.int64)
    magnitude = envelope.magnitude()[rows]
    held = envelope.release.held_s[rows].astype(np.float64)
    held[held < 0] = np.inf
    nodes = envelope.runs["node_count"].iloc[rows].fillna(1).to_numpy(dtype=np.float64)
    size = np.where(verdict == VERDICTS.index(INSUFFICIENT), held * np.maximum(nodes, 1), magnitude)
    raw = envelope.runs["job_id_raw"].iloc[rows].to_numpy(dtype=np.int64)
    return rows[np.lexsort((raw, -size, verdict))]


def rows(
    envelope: Envelope,
    order: Ints,
    question: Question,
    *,
    rates: Rates,
    complete: dict[str, Status],
    since: int | None = None,
    until: int | None = None,
    decisions: Decisions | None = None,
) -> Iterator[dict[str, Any]]:
    """The entries of `jobs` in `slurm-trace/rank/1`, in the given order.

    Args:
        envelope: The bounds.
        order: Positions, best first (see `ranked`).
        question: The threshold, the basis and the margin.
        rates: The registry, for what cards can draw.
        complete: What stands behind records_complete, by cluster.
        since: Start of the window, for usage figures only.
        until: End of the window, likewise.
        decisions: What the rules say of every run; without them an entry has no `routes`.
    """

    @lru_cache(maxsize=100_000)
    def rests_on(code: int, proven: bool, cluster: str, i: int) -> list[dict[str, str]]:
        return assumptions(envelope, i, complete[cluster])

    verdict, strict = verdicts(envelope, question), verdicts(envelope, question, strict=True)
    first_of: dict[tuple[int, bool, str], int] = {}
    release, usage_s = envelope.release, envelope.usage_s(since, until)
    for first in range(0, len(order), ROWS_AT_ONCE):
        part = order[first : first + ROWS_AT_ONCE]
        table = envelope.runs.iloc[part]
        texts = {name: [_text(v) for v in table[name].astype(object)] for name in _TEXT}
        numbers = {name: [_number(v) for v in table[name].astype(object)] for name in _NUMBERS}
        # What a frame is asked for one by one takes longer than all else, so only where there is something.
        seen, metered = (
            table[name].notna().to_numpy(dtype=bool) for name in ("lease_gpus", "lease_energy_mj")
        )
        for n, position in enumerate(part):
            i = int(position)
            claim = envelope.claim(i)
            cluster = texts["cluster"][n] or ""
            run_s, held_s = int(release.run_s[i]), int(release.held_s[i])
            key = (int(envelope.code[i]), bool(release.proven[i]), cluster)
            bound = envelope.bound_flop(i)
            yield {
                "rank": first + n + 1,
                "cluster": cluster,
                "job_id": texts["job_id"][n],
                **{name: numbers[name][n] for name in ("job_id_raw", "submit", "start", "end")},
                **{name: texts[name][n] for name in ("user", "account", "state")},
                "nodes": numbers["node_count"][n],
                "gpus": [asdict(g) for g in claim.gpus],
                "gpu_count": claim.gpu_count,
                "run_s": run_s if run_s >= 0 else None,
                "held_s": held_s if held_s >= 0 else None,
                "gpu_seconds": None
                if claim.gpu_count is None or run_s < 0
                else claim.gpu_count * int(usage_s[i]),
                "bound_gpu_flop": envelope.bound_flop(i, "gpu"),
                "bound_cpu_flop": envelope.bound_flop(i, "cpu"),
                "bound_flop": bound,
                "bound_flop_strict": envelope.strict_flop(i),
                "ratio": question.ratio(bound),
                "rung": envelope.rung(i),
                "verdict": VERDICTS[verdict[i]],
                "verdict_strict": VERDICTS[strict[i]],
                "assumptions": rests_on(*key, first_of.setdefault(key, i)),
                "coverage": envelope.coverage(i) if seen[n] else None,
                "flags": flags(
                    envelope, i, texts["flags"][n], energy(envelope, i, rates) if metered[n] else None
                ),
                "reasons": reasons(envelope, i),
                **({} if decisions is None else {"routes": decisions.entries(i)}),
            }


def flags(envelope: Envelope, i: int, recorded: str | None, drawn: Energy | None) -> list[str]:
    """What is odd about run i: noted when it was stored, and found by comparing."""
    found = [
        ("runaway", envelope.release.runaway[i]),
        ("lease_card_larger", envelope.larger_card(i)),
        ("lease_energy_unexplained", drawn is not None and drawn.unexplained),
    ]
    odd = [flag for flag, holds in found if holds]
    return [*(recorded or "").split(), *odd, *envelope.claim(i).clock_flags]


def reasons(envelope: Envelope, i: int) -> list[str]:
    """Why the bound of run i is larger than run time times its own devices, or why there is none, or none lower."""
    why = int(envelope.release.why[i])
    found = [f"release: {WHY[why]}"] if why in (KILLED, NODE_LOST, LIMIT, OPEN) else []
    if envelope.release.unclear[i] and why in (LIMIT, OPEN):
        found[0] += "; by its record it was over at once, and nothing bears that out"
    return [*found, *envelope.claim(i).reasons, *envelope.refusals(i)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]
