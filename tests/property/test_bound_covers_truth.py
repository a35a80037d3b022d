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


@st.composite
def damage(draw, job):
    """One fault in one row. None of them removes the row."""
    row = job.row()
    tres = row["AllocTRES"]
    fault = draw(st.sampled_from(
        ["none", "untyped", "typed only", "no tres", "bad count", "unknown type", "no end", "no elapsed", "zero elapsed",
         "epoch start", "no cpus", "no nodes", "newline", "delimiter", "cut", "twice", "requeued", "never closed", "bad nodes"]
    ))  # fmt: skip
    rows = [row]
    if fault == "untyped":
        row["AllocTRES"] = ",".join(p for p in tres.split(",") if not p.startswith("gres/gpu:"))
    elif fault == "typed only":
        row["AllocTRES"] = ",".join(
            p for p in tres.split(",") if not p.startswith("gres/gpu=") or not job.gpu_type
        )
    elif fault == "no tres":
        row["AllocTRES"] = ""
    elif fault == "bad count":
        row["AllocTRES"] = tres.replace(f"gres/gpu={job.gpus}", "gres/gpu=?")
        if job.gpu_type:
            row["AllocTRES"] = row["AllocTRES"].replace(f"{job.gpu_type}=", f"{job.gpu_type}=x")
    elif fault == "unknown type" and job.gpu_type:
        row["AllocTRES"] = tres.replace(job.gpu_type, "our_new_cards")
    elif fault == "no end":
        row["End"] = "Unknown"
    elif fault == "no elapsed":
        row["Elapsed"] = ""
    elif fault == "zero elapsed":
        row["Elapsed"] = "00:00:00"
    elif fault == "no cpus":
        row["AllocCPUS"] = ""
        row["AllocTRES"] = ",".join(p for p in row["AllocTRES"].split(",") if not p.startswith("cpu="))
    elif fault == "no nodes":
        row["NNodes"] = row["NodeList"] = ""
    elif fault == "bad nodes":
        row["NodeList"] = "n[1-"
    elif fault == "newline":
        row["JobName"] = "a\nb"
    elif fault == "delimiter":
        row["JobName"] = "a|b"
    elif fault == "cut":
        keep = draw(st.integers(0, len(COLUMNS) - 2))
        for name in COLUMNS[keep + 1 :]:
            row[name] = ""
    elif fault == "twice":
        rows = [row, dict(row)]
    elif fault == "requeued":
        rows = [
            row,
            job.row(
                State="PENDING",
                Submit=row["End"],
                Start="Unknown",
                End="Unknown",
                AllocTRES="",
                NodeList="None assigned",
            ),
        ]
    elif fault == "never closed":
        row["State"], row["End"] = "RUNNING", "Unknown"
    return fault, rows


@st.composite
def worlds(draw):
    happened = [draw(jobs(n)) for n in range(1, draw(st.integers(1, 6)) + 1)]
    damaged = [draw(damage(job)) for job in happened]
    without = draw(
        st.sets(
            st.sampled_from(
                ["Suspended", "Timelimit", "NNodes", "AllocCPUS", "NodeList", "Elapsed", "Account"]
            )
        )
    )
    return happened, damaged, frozenset(without)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_no_bound_below_the_truth_and_no_job_lost(world):
    happened, damaged, without = world
    if "Elapsed" in without or "Suspended" in without:
        # the pause is then only in End - Start; a record that lost that too says nothing of it
        damaged = [
            (f, r) if f != "no end" else (f, [j.row()]) for (f, r), j in zip(damaged, happened, strict=True)
        ]
    rows = [row for _, group in damaged for row in group]
    with tempfile.TemporaryDirectory() as folder:
        summary, found = judge(Path(folder), sacct_text(rows, without))
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
        assert None in bounds or max(bounds) >= job.flop, (fault, job, mine)
        strict = [e["bound_flop_strict"] for e in mine]
        assert None in strict or max(strict) >= job.flop, (fault, job, mine)
    never_started = int((~found.envelope.started).sum())
    pending = sum(1 for f, _ in damaged if f == "requeued")
    assert lost <= len(summary.rejected) + max(0, never_started - pending)
    truth = sum(j.flop for j in happened)
    for by in ("all", "cluster", "account", "user"):
        groups = found.groups(by)
        if all(g.bound_flop is not None for g in groups) and not summary.rejected and not lost:
            assert sum(g.bound_flop for g in groups) >= truth
