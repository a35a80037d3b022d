"""The golden property: whatever happens to the records, no bound falls below what was computed, and no job is lost."""

import tempfile
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.rates import Rates
from tests.support.world import COLUMNS, T0, Job, judge, sacct_text

CORE_FLOP_S = 5 * 10**12
"""Well below what one core of a current server with a matrix unit can do."""

STATES = (
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED by 1000",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REQUEUED",
    "DEADLINE",
)


@cache
def rates():
    return Rates.load(None)


CARDS = (
    "nvidia-h100-sxm5-80gb",
    "nvidia-a100-sxm4-80gb",
    "nvidia-v100-sxm2",
    "nvidia-l40s",
    "nvidia-t4",
    "nvidia-b200-sxm",
)


def hardware_flop_s(card):
    """Matrix units and vector lanes at their highest clock, taken from the registry's raw figures."""
    return rates().ceiling_ops_s(card, "max_any_op")


@st.composite
def jobs(draw, number):
    card = draw(st.sampled_from([c for c in CARDS if c in rates().devices]))
    labels = [None, *rates().device(card).slurm_types]
    gpus = draw(st.integers(0, 8))
    cpus = draw(st.integers(1, 64))
    nodes = draw(st.integers(1, 3))
    start = T0 + draw(st.integers(0, 10**7))
    run_s = draw(st.integers(0, 10**6))
    suspended_s = draw(st.integers(0, run_s))
    state = draw(st.sampled_from(STATES))
    # Slurm may need up to KillWait + UnkillableStepTimeout to kill what is left of a run that did not end by itself
    overrun_s = 0 if state == "COMPLETED" else draw(st.integers(0, 90))
    intensity = draw(st.integers(0, 100))
    stopped_s = run_s + overrun_s
    truth = stopped_s * (gpus * hardware_flop_s(card) + cpus * CORE_FLOP_S) * intensity // 100
    return Job(
        number=number,
        submit=start - draw(st.integers(0, 10**5)),
        start=start,
        end=start + run_s,
        stopped_s=stopped_s,
        suspended_s=suspended_s,
        state=state,
        nodes=nodes,
        gpus=gpus,
        gpu_type=draw(st.sampled_from(labels)),
        cpus=cpus,
        flop=truth,
        user=draw(st.sampled_from(["u1", "u2"])),
        account=draw(st.sampled_from(["a1", "a2"])),
    )


def without(tres, prefix):
    return ",".join(part for part in tres.split(",") if not part.startswith(prefix))


def bad_count(row, job):
    tres = row["AllocTRES"].replace(f"gres/gpu={job.gpus}", "gres/gpu=?")
    return {"AllocTRES": tres.replace(f"{job.gpu_type}=", f"{job.gpu_type}=x")}


FAULTS = {
    "none": lambda row, job: {},
    "untyped": lambda row, job: {"AllocTRES": without(row["AllocTRES"], "gres/gpu:")},
    "typed only": lambda row, job: (
        {"AllocTRES": without(row["AllocTRES"], "gres/gpu=")} if job.gpu_type else {}
    ),
    "no tres": lambda row, job: {"AllocTRES": ""},
    "bad count": bad_count,
    "cut tres": lambda row, job: {"AllocTRES": row["AllocTRES"][:12] + "+"},
    "unknown type": lambda row, job: {
        "AllocTRES": row["AllocTRES"].replace(str(job.gpu_type), "our_new_cards")
    },
    "no end": lambda row, job: {"End": "Unknown"},
    "no elapsed": lambda row, job: {"Elapsed": ""},
    "zero elapsed": lambda row, job: {"Elapsed": "00:00:00"},
    "no pause": lambda row, job: {"Suspended": ""},
    "no state": lambda row, job: {"State": ""},
    "no cpus": lambda row, job: {"AllocCPUS": "", "AllocTRES": without(row["AllocTRES"], "cpu=")},
    "zero cpus": lambda row, job: {"AllocCPUS": "0", "AllocTRES": without(row["AllocTRES"], "cpu=")},
    "no nodes": lambda row, job: {"NNodes": "", "NodeList": ""},
    "bad nodes": lambda row, job: {"NodeList": "n[1-"},
    "newline": lambda row, job: {"JobName": "a\nb"},
    "delimiter": lambda row, job: {"JobName": "a|b"},
    "never closed": lambda row, job: {"State": "RUNNING", "End": "Unknown"},
    "cut": None,
    "twice": lambda row, job: {},
    "requeued": lambda row, job: {},
}
"""What a fault changes in the row of a job. None of them removes the row."""


@st.composite
def damage(draw, job):
    """One fault in one row."""
    row = job.row()
    fault = draw(st.sampled_from(sorted(FAULTS)))
    if fault == "cut":
        return fault, [row | dict.fromkeys(COLUMNS[draw(st.integers(1, len(COLUMNS) - 1)) :], "")]
    row |= FAULTS[fault](row, job)
    again = {"State": "PENDING", "Submit": row["End"], "Start": "Unknown", "End": "Unknown"}
    more = {
        "twice": [dict(row)],
        "requeued": [job.row(**again, AllocTRES="", NodeList="None assigned")],
    }
    return fault, [row, *more.get(fault, [])]


def truth_of(job, fault):
    """What a job had done when its record was written: one that still runs goes on after that."""
    run_s = job.end - job.start
    return job.flop if fault != "never closed" else job.flop * run_s // max(job.stopped_s, 1)


@st.composite
def worlds(draw):
    happened = [draw(jobs(n)) for n in range(1, draw(st.integers(1, 6)) + 1)]
    damaged = [draw(damage(job)) for job in happened]
    missing = draw(
        st.sets(
            st.sampled_from(
                ["Suspended", "Timelimit", "NNodes", "AllocCPUS", "NodeList", "Elapsed", "Account"]
            )
        )
    )
    return happened, damaged, frozenset(missing)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_no_bound_below_the_truth_and_no_job_lost(world):
    happened, damaged, missing = world
    rows = [row for _, group in damaged for row in group]
    with tempfile.TemporaryDirectory() as folder:
        summary, found = judge(Path(folder), sacct_text(rows, missing))
    assert summary.read == summary.jobs + summary.steps_skipped + len(summary.rejected)
    entries = {}
    for entry in [*found.jobs(), *found.jobs(runaway=True)]:
        entries.setdefault(entry["job_id_raw"], []).append(entry)
    lost = 0
    for job, (fault, _) in zip(happened, damaged, strict=True):
        mine = entries.get(job.number, [])
        if not mine:
            lost += 1
            continue
        bounds = [e["bound_flop"] for e in mine]
        assert None in bounds or max(bounds) >= truth_of(job, fault), (fault, job, mine)
        strict = [e["bound_flop_strict"] for e in mine]
        assert None in strict or max(strict) >= truth_of(job, fault), (fault, job, mine)
    never_started = int((~found.envelope.started).sum())
    pending = sum(1 for f, _ in damaged if f == "requeued")
    assert lost <= len(summary.rejected) + max(0, never_started - pending)
    truth = sum(truth_of(job, fault) for job, (fault, _) in zip(happened, damaged, strict=True))
    for by in ("all", "cluster", "account", "user"):
        groups = found.groups(by)
        if all(g.bound_flop is not None for g in groups) and not summary.rejected and not lost:
            assert sum(g.bound_flop for g in groups) >= truth


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_the_terms_of_every_bound_add_up_to_it(world):
    _, damaged, missing = world
    rows = [row for _, group in damaged for row in group]
    with tempfile.TemporaryDirectory() as folder:
        _, found = judge(Path(folder), sacct_text(rows, missing))
    bounds = found.envelope
    for i in range(len(bounds)):
        for strict, bound in ((False, bounds.bound_flop(i)), (True, bounds.strict_flop(i))):
            terms = list(bounds.terms(i, strict=strict))
            assert sum(t.flop for t in terms) == (bound or 0)
            assert all(t.flop == t.count * t.ceiling_flop_s * t.seconds for t in terms)
            assert bound is not None or not terms
        both = [bounds.bound_flop(i, kind) for kind in ("gpu", "cpu")]
        assert bounds.bound_flop(i) == (None if None in both else sum(both))
