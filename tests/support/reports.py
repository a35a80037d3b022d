"""A ranking and its groups in the form of the JSON contract, with the worst text that a record can bring along."""

from __future__ import annotations

from typing import Any

from slurm_trace.analysis.rules.ruleset import RuleSet

HOSTILE = (
    "<script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "</title><svg onload=document.title='taken'>",
    "over\u202eride\x1b[31m\n",
    "&lt;b&gt; plain &amp; simple",
)
T = 10**23
LIMIT = int(T / 1.05)
BESIDE = (
    {"route": "ATTRIBUTE", "group": "user", "rule": "with-its-user"},
    {"route": "WARN", "group": None, "rule": "large-part-of-threshold"},
    {"route": None, "group": None, "rule": "looks-busy"},
)
"""Routes that every run has beside its verdict; the last is a note."""


def verdict_on(bound: int | None) -> str:
    if bound is None:
        return "INSUFFICIENT"
    return "RULED_OUT" if bound < LIMIT else "NOT_RULED_OUT"


def job(rank: int, bound: int | None, name: str) -> dict[str, Any]:
    return {
        "rank": rank, "cluster": "meridian", "job_id": f"{1000 + rank}", "job_id_raw": 1000 + rank,
        "submit": 1_750_000_000, "start": 1_750_000_060, "end": 1_750_086_460, "user": name, "account": name,
        "state": "COMPLETED", "name": name, "nodes": 8, "gpus": [{"type": "h100", "count": 64, "sku": "h100-sxm"}],
        "gpu_count": 64, "run_s": 86_400, "held_s": 86_401, "gpu_seconds": 64 * 86_400, "bound_gpu_flop": bound,
        "bound_cpu_flop": 0, "bound_flop": bound, "bound_flop_strict": None,
        "ratio": None if bound is None else bound / T, "rung": "allocation", "verdict": verdict_on(bound),
        "verdict_strict": "INSUFFICIENT", "assumptions": [{"id": "labels_true", "status": "assumed"}],
        "coverage": None, "flags": [], "reasons": [],
        "routes": [{"route": verdict_on(bound), "group": None, "rule": "bound-below-limit"}, *BESIDE],
    }  # fmt: skip


def head(schema: str) -> dict[str, Any]:
    return {
        "schema": schema,
        "generated_at": 1_767_225_600,
        "threshold": {"id": "eu-gpai", "flop": T, "counts": "training compute"},
        "basis": "max_any_op",
        "trust": "allocation",
        "margin": 0.05,
        "window": {"since": None, "until": None},
        "inputs": {
            "jobs": 12_345, "never_started": 67, "runaway": 1, "rejected": 3, "rates": "a" * 64,
            "thresholds": "b" * 64, "site_profile": "c" * 64, "evaluator": "0.1.0/1",
        },
        "records_complete": {"meridian": {"status": "assumed", "gaps": ["nothing says what the file covers"]}},
    }  # fmt: skip


def ranking() -> dict[str, Any]:
    bounds = [12 * 10**22, 96 * 10**21, None, 5 * 10**22, 3 * 10**17]
    jobs = [job(i + 1, bound, HOSTILE[i]) for i, bound in enumerate(bounds)]
    return head("slurm-trace/rank/1") | {
        "verdicts": {"NOT_RULED_OUT": 2, "INSUFFICIENT": 1, "RULED_OUT": 12_000},
        "verdicts_strict": {"NOT_RULED_OUT": 0, "INSUFFICIENT": 12_003, "RULED_OUT": 0},
        "runaway_jobs": [job(1, None, HOSTILE[0])],
        "jobs": jobs,
    }


def group(by: str, key: str, bound: int | None, fewest: int | None) -> dict[str, Any]:
    return {
        "by": by, "key": key, "jobs": 300, "users": 7, "gpu_seconds": 10**9, "gpu_unknown_jobs": 2,
        "bound_flop": bound, "capacity_flop": None, "ratio": None if bound is None else bound / T,
        "verdict": verdict_on(bound), "verdict_strict": "INSUFFICIENT", "fewest_jobs": fewest,
        "fewest_users": None if fewest is None else 1, "records_complete": "assumed", "reasons": (HOSTILE[0],),
        "routes": [{"route": "WARN", "group": None, "rule": "few-runs-reach-threshold"}],
    }  # fmt: skip


def grouped() -> list[dict[str, Any]]:
    kinds = {
        "all": [group("all", "all", 7 * 10**24, 1)],
        "cluster": [group("cluster", "meridian", 7 * 10**24, 1)],
        "account": [
            group("account", HOSTILE[i], bound, None if bound is None or bound < T else 2)
            for i, bound in enumerate((4 * 10**23, None, 8 * 10**22, 5 * 10**21, 0))
        ],
        "user": [group("user", f"u{i:03}", 10**17 * 3 ** (i % 13) * (1 + i), None) for i in range(80)],
    }
    return [head("slurm-trace/groups/1") | {"groups": groups} for groups in kinds.values()]


RULES = RuleSet.load().rules
THRESHOLDS = (("eu-gpai", 10**23), ("eu-systemic", 10**25), ("ca-sb53", 10**26), ("ny-raise", 10**26))
