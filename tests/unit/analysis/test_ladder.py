"""From sealed spool files to lower bounds: what is proven counts, what is not stays at `allocation`, and says why."""

import json
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.analysis.corpus.anchors import load_anchors
from slurm_trace.analysis.corpus.draw import Draw
from slurm_trace.analysis.corpus.families import rungs
from slurm_trace.analysis.corpus.judge import Judge
from slurm_trace.analysis.ladder import RUNGS, Cards
from slurm_trace.analysis.rates import Rates
from slurm_trace.assess import Request, assess
from slurm_trace.cli.main import app
from slurm_trace.node.spool import RING, SAMPLE
from slurm_trace.node.spool_writer import ChunkRows
from slurm_trace.store import stretches as why
from slurm_trace.store.engine import open_store
from slurm_trace.store.job_summary import CLOCK_S
from slurm_trace.store.spool_ingest import import_spools
from slurm_trace.store.stretches import Kind
from slurm_trace.store.telemetry import load_stretches
from support.gpu_history import CYCLES, Part
from support.runs import T0, ingest, run
from support.spools import UP_S, S, card, counter, samples, spool

BEGIN, END = 10, 3610
AT = (12, 600, 1200, 3600)
WORK = Part(1, clock_mhz=1500, active=50, tensor=25, vector=10)
H100 = "gres/gpu:h100_sxm5"
RATES = Rates.load(None)
CEILING = RATES.ceiling_ops_s("nvidia-h100-sxm5-80gb", "max_any_op")


def h100(uuid="GPU-0", **facts):
    return card(uuid, **{"power_limit_mw": 700_000, **facts})


def moved(seconds, part=WORK):
    cycles = {name: seconds * part.clock_mhz * 10**4 * share(part) for name, share in CYCLES.items()}
    return cycles | {"energy_mj": seconds * part.power_w * 1000}


def reads(uuid="GPU-0", at=AT, part=WORK, **change):
    told = [(second, moved(second, part)) for second in at]
    return [
        counter(second, uuid, **{k: change[k](second, v) if k in change else v for k, v in values.items()})
        for second, values in told
    ]


def sampled(part=WORK, **fields):
    told = {"sm_clock_mhz": part.clock_mhz, "utilization_pct": 90, "power_mw": part.power_w * 1000}
    return samples(range(BEGIN + 1, END + 2), **(told | fields))


class Site:
    """One job with its leases, and what is said of it."""

    def __init__(self, folder):
        self.folder, self.path = folder, str(folder / "store.db")
        self.store = open_store(self.path, create=True)
        self.outbox = folder / "outbox"
        self.outbox.mkdir()

    def job(self, tres=f"cpu=4,{H100}=1,gres/gpu=1,node=1", **changes):
        told = {
            "end": T0 + END,
            "elapsed_s": END - BEGIN,
            "alloc_tres": tres,
            "node_list": "n1",
            "node_count": 1,
        }
        ingest(self.store, run(1, **{**told, "cpu_count": 4, **changes}))

    def lease(self, devices=None, columns=None, counters=None, rings=(), **more):
        devices = devices or [h100()]
        told = {one.uuid: columns or sampled() for one in devices}
        span = ((UP_S + BEGIN) * S, (UP_S + END) * S)
        spool(
            self.outbox,
            devices=devices,
            chunks=[ChunkRows(SAMPLE, *span, told), *rings],
            counters=counters if counters is not None else [r for one in devices for r in reads(one.uuid)],
            **{"begin": BEGIN, "end": END, "meta": {"driver_version": "550"}, **more},
        )
        import_spools(self.store, self.outbox)

    def ask(self, trust, basis=None, profile=None):
        request = Request("eu-gpai", basis, Fraction(5, 100), trust=trust, profile=profile)
        return assess(self.store, request)

    def entry(self, trust, **asked):
        (entry,) = self.ask(trust, **asked).jobs()
        return entry

    def bounds(self):
        return [self.entry(trust)["bound_gpu_flop"] for trust in RUNGS]

    def terms(self, trust, *, strict=False, profile=None):
        found = self.ask(trust, profile=profile)
        told = load_stretches(self.store, int(found.envelope.runs["run_id"].iat[0]))
        terms = list(found.envelope.terms(0, strict=strict, stretches=told))
        bound = found.envelope.strict_flop(0) if strict else found.envelope.bound_flop(0)
        assert sum(term.flop for term in terms) == bound
        return terms


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.store.close()


def test_each_rung_is_lower_than_the_one_above_and_never_below_what_was_done(site):
    site.job()
    site.lease()
    bounds = site.bounds()
    assert bounds[0] == CEILING * (END + CLOCK_S - BEGIN + 1)
    assert bounds[:4] == sorted(set(bounds[:4]), reverse=True)
    assert bounds[4] == bounds[3]
    assert bounds[3] >= WORK.flop_s * (END - BEGIN)
    shares = [Fraction(bound, bounds[0]) for bound in bounds]
    assert [round(float(share), 2) for share in shares[1:4]] == [0.76, 0.38, 0.19]
    assert [site.entry(trust)["rung"] for trust in RUNGS] == [*RUNGS[:4], "pipe_cycles"]
    assert site.entry("busy")["coverage"] == pytest.approx(1, abs=0.001)


def test_by_default_nothing_changes_but_the_end(site):
    site.job()
    before = site.entry("allocation")
    site.lease()
    after = site.entry("allocation")
    assert after["coverage"] is not None
    for name in ("rung", "flags", "reasons"):
        assert after[name] == before[name]
    held_s = END - BEGIN + 1
    for name in ("bound_gpu_flop", "bound_cpu_flop", "bound_flop"):
        assert after[name] * held_s == before[name] * (held_s + CLOCK_S)


def test_every_gpu_is_told_from_the_start_to_the_release(site):
    site.job(f"cpu=4,{H100}=2,gres/gpu=2,node=1")
    site.lease([h100("GPU-0"), h100("GPU-1")])
    terms = [t for t in site.terms("pipe_cycles") if t.kind == "gpu"]
    assert {t.gpu for t in terms} == {"GPU-0", "GPU-1"}
    mine = [t for t in terms if t.gpu == "GPU-0"]
    assert [(t.from_ - T0, t.to - T0, t.rung) for t in mine] == [
        (10, 13, "allocation"),
        (13, 600, "pipe_cycles"),
        (600, 1200, "pipe_cycles"),
        (1200, 3600, "pipe_cycles"),
        (3600, 3613, "allocation"),
    ]
    assert all(t.to - t.from_ == t.seconds for t in terms)


def test_sums_over_the_sms_come_out_the_same_where_their_number_is_told(site):
    site.job()
    site.lease()
    mean = site.bounds()
    site.outbox = site.folder / "other"
    site.outbox.mkdir()
    other = Site(site.outbox)
    other.job()
    summed = [
        counter(at, **{k: v * 132 if k.startswith("gpm_") else v for k, v in moved(at).items()}) for at in AT
    ]
    other.lease([h100(sm_count=132)], counters=summed)
    assert [float(b) for b in other.bounds()] == pytest.approx([float(b) for b in mean], rel=1e-6)
    other.store.close()


FAULTS = {
    "no counters": (lambda: reads(gpm_sm_cycles_elapsed=lambda at, v: None), why.NO_COUNTER),
    "went back": (lambda: reads(gpm_hmma_cycles_active=lambda at, v: 0 if at > 600 else v), why.WENT_BACK),
    "a unit slip": (
        lambda: reads(**{n: lambda at, v: v // 1000 for n in CYCLES}),
        why.NO_SMS,
    ),
    "more than the clock": (lambda: reads(**{n: lambda at, v: v * 2 for n in CYCLES}), why.NO_SMS),
    "a pipe beyond time": (lambda: reads(gpm_fp32_cycles_active=lambda at, v: v * 100), why.TOO_MANY),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_stretch_that_fails_stays_at_allocation_and_says_why(site, fault):
    counters, reason = FAULTS[fault]
    site.job()
    site.lease(counters=counters())
    terms = [t for t in site.terms("pipe_cycles") if t.kind == "gpu"]
    assert any(reason in told for told in site.entry("pipe_cycles")["reasons"])
    assert any(t.rung == "allocation" and reason in t.source for t in terms) or len(terms) == 1
    if fault != "went back":
        assert len(set(site.bounds())) == 1


def test_counters_that_stand_still_under_load_are_not_believed(site):
    still = {n: (lambda at, v: 0) for n in CYCLES if n != "gpm_sm_cycles_elapsed"}
    site.job()
    site.lease(counters=reads(**still))
    bounds = site.bounds()
    assert bounds[1] == bounds[2] == bounds[3] < bounds[0]
    assert any(why.NOT_IDLE in t.source for t in site.terms("pipe_cycles"))


def test_what_would_not_be_lower_says_why_no_lower_rung_is_proven(site):
    whole = Part(1, clock_mhz=1980, active=100, tensor=50)
    site.job()
    site.lease(columns=sampled(whole), counters=reads(part=whole))
    told = f"it would not be lower: {why.NOT_SLOW}"
    (reason,) = [r for r in site.entry("pipe_cycles")["reasons"] if "telemetry" in r]
    assert reason.endswith(f"GPU seconds lowers nothing: {told}")
    site.store.close()
    shown = CliRunner().invoke(
        app, ["--store", site.path, "explain", "1", "--trust", "pipe_cycles"], catch_exceptions=False
    )
    assert f"why it is not lower: {reason}" in shown.stdout


def test_no_witness_no_lower_bound(site):
    site.job()
    bare = sampled(utilization_pct=None, power_mw=None)
    site.lease(columns=bare, counters=reads(energy_mj=lambda at, v: None))
    assert len(set(site.bounds())) == 1
    assert any(why.NO_WITNESS in reason for reason in site.entry("busy")["reasons"])


def test_only_dmma_counts_as_dmma(site):
    part = Part(1, clock_mhz=1500, active=50, tensor=25, vector=10, double=True)
    site.job()
    site.lease(columns=sampled(part), counters=reads(part=part))
    bound = site.bounds()[3]
    assert part.flop_s * (END - BEGIN) <= bound < CEILING * (END - BEGIN) // 10


def test_another_driver_or_boot_ends_what_is_proven(site):
    site.job()
    parts = [(10, 1000, 0, "part", "550", AT[:2]), (1000, END, 1, "end", "560", AT[2:])]
    for begin, end, part, closed, driver, at in parts:
        site.lease(counters=reads(at=at), begin=begin, end=end, opened=10, part=part, closed=closed,
                   meta={"driver_version": driver})  # fmt: skip
    proven = [(t.from_ - T0, t.to - T0) for t in site.terms("pipe_cycles") if t.rung == "pipe_cycles"]
    assert proven == [(13, 600), (1201, 3600)]
    assert any(why.OTHER_DRIVER in reason for reason in site.entry("pipe_cycles")["reasons"])


@pytest.mark.parametrize(
    ("tres", "changes", "lease"),
    [
        (f"cpu=4,{H100}=2,gres/gpu=2,node=1", {}, {}),
        (f"cpu=4,{H100}=1,gres/gpu=1,node=1", {"uid": 77}, {}),
        (f"cpu=4,{H100}=1,gres/gpu=1,node=1", {}, {"attribution": "ambiguous"}),
        ("cpu=4,gres/shard=4,node=1", {}, {}),
        (f"cpu=4,{H100}=1,gres/gpu=1,node=2", {"node_count": 2, "node_list": "n[1-2]"}, {}),
    ],
    ids=[
        "fewer cards than claimed",
        "another user",
        "which cards is not known",
        "shares",
        "a node without a lease",
    ],
)
def test_leases_that_do_not_fit_the_record_lower_nothing(site, tres, changes, lease):
    site.job(tres, **changes)
    site.lease(**lease)
    assert len(set(site.bounds())) == 1


def test_a_larger_card_than_the_record_says_is_a_flag_with_both_figures(site):
    site.job("cpu=4,gres/gpu:a100=1,gres/gpu=1,node=1")
    site.lease()
    assert len(set(site.bounds())) == 1
    entry = site.entry("pipe_cycles")
    assert "lease_card_larger" in entry["flags"]
    fits = RATES.resolve("a100").device_ids
    a100 = max(RATES.ceiling_ops_s(one, "max_any_op", clock_mhz=1980) for one in fits)
    assert any(str(a100) in r and str(CEILING) in r and "H100" in r for r in entry["reasons"])


def test_a_wide_label_is_narrowed_by_what_the_driver_calls_the_card(site):
    site.job("cpu=4,gres/gpu=1,node=1")
    site.lease()
    bounds = site.bounds()
    assert bounds[1] < CEILING * (END - BEGIN) < bounds[0]


def test_a_clock_above_the_registry_raises_what_time_counts_and_not_what_cycles_do(site):
    site.job()
    site.lease()
    usual = site.bounds()
    site.lease([h100(max_sm_mhz=2178)], begin=5000, end=5100, counters=[], columns=samples([5050]), node="n2")
    found = site.bounds()
    assert found[0] * 1980 == usual[0] * 2178
    # What no cycle was counted of, at both ends, is raised too.
    assert all(b < a < b * Fraction(2178, 1980) for a, b in zip(found[1:4], usual[1:4], strict=True))
    assert "clock_raised" in site.entry("busy")["flags"]
    assert "lease_card_larger" not in site.entry("busy")["flags"]


def test_busy_time_counts_at_the_highest_clock_of_the_model(site):
    site.job("cpu=4,gres/gpu:a100_sxm4_80gb=1,gres/gpu=1,node=1")
    quiet = {"columns": sampled(sm_clock_mhz=1410, power_mw=100_000), "counters": []}
    site.lease([card(**A100)], rings=[ring("GPU-0", [(10, 3609, 29)])], **quiet)
    usual = site.bounds()
    fast = card(**A100 | {"max_sm_mhz": 1551})
    site.lease([fast], begin=5000, end=5100, counters=[], columns=samples([5050]), node="n2")
    found = site.bounds()
    assert [a * 10 - b * 11 < 10**6 for a, b in zip(found, usual, strict=True)] == [True] * len(RUNGS)
    assert found[4] * 10 >= usual[4] * 11 - 10**6
    site.terms("busy")


MIG = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"


def test_a_mig_instance_has_its_own_counters(site):
    part = Part(1, active=50, tensor=25, vector=10)
    slice_ = h100(
        "MIG-0", name=MIG, parent_uuid="GPU-0", mig_profile="1g.10gb", sm_count=16, power_limit_mw=None
    )
    site.job("cpu=4,gres/gpu:h100_1g.10gb=1,gres/gpu=1,node=1")
    quiet = sampled(part, utilization_pct=None, power_mw=None, process_count=1)
    site.lease([slice_], quiet, reads("MIG-0", part=part, energy_mj=lambda at, v: None))
    bounds = site.bounds()
    truth = part.flop_s * 16 // 132 * (END - BEGIN)
    assert truth <= bounds[3] < bounds[2] < bounds[0] < CEILING * (END - BEGIN) // 4


def test_strict_takes_it_where_confinement_is_proven(site, tmp_path):
    profile = tmp_path / "site.toml"
    profile.write_text(
        '[[clusters.c.nodes]]\nhosts = "n1"\ngpus = 1\nsku = "nvidia-h100-sxm5-80gb"\ncores = 64\n'
        'cpu_model = "AMD EPYC 7763 64-Core Processor"\ndevices_confined = true\ncores_confined = true\n'
        'basis = "proven"\n'
    )
    site.job()
    site.lease()
    loose = [site.entry(trust)["bound_flop_strict"] for trust in ("allocation", "pipe_cycles")]
    assert loose[0] == loose[1]
    held = [site.entry(t, profile=str(profile))["bound_flop_strict"] for t in ("allocation", "pipe_cycles")]
    assert held[1] < held[0]
    site.terms("pipe_cycles", strict=True, profile=str(profile))


def test_a_run_that_goes_on_is_proven_up_to_the_query(site):
    site.job(state="RUNNING", final=False, end=None, elapsed_s=1000, suspended_s=0, queried_at=T0 + 1010)
    site.lease()
    whole, lower = site.bounds()[0], site.bounds()[3]
    assert WORK.flop_s * 1000 <= lower < whole
    assert max(t.to for t in site.terms("pipe_cycles") if t.rung == "pipe_cycles") <= T0 + 1010


def test_a_record_that_comes_later_or_changes_is_taken_into_account(site):
    site.lease()
    site.job(end=T0 + 2000, elapsed_s=1990)
    site.terms("pipe_cycles")
    site.job()
    assert max(t.to for t in site.terms("pipe_cycles") if t.rung == "pipe_cycles") == T0 + 3600


def test_the_estimate_is_lowered_too_and_rules_nothing_out(site):
    site.job()
    site.lease()
    found = [site.entry(trust, basis="bf16_dense") for trust in ("allocation", "pipe_cycles")]
    assert found[1]["bound_gpu_flop"] < found[0]["bound_gpu_flop"] // 2
    assert {entry["verdict"] for entry in found} == {"INSUFFICIENT"}


A100 = {"name": "NVIDIA A100-SXM4-80GB", "max_sm_mhz": 1410, "power_limit_mw": 400_000}


def ring(uuid, windows):
    """A chunk of the ring buffer of utilisation; windows are begin and end in seconds after T0, and a percentage."""
    rows = [
        ((UP_S + a) * 1000, (UP_S + b) * 1000, b - a, pct * (b - a) * 1000, pct, pct) for a, b, pct in windows
    ]
    return ChunkRows(f"{RING}utilization_pct", (UP_S + BEGIN) * S, (UP_S + END) * S,
                     {uuid: [list(column) for column in zip(*rows, strict=True)]})  # fmt: skip


@pytest.mark.parametrize(
    ("windows", "share"),
    [
        ([(10, 1000, 29), (1000, 3609, 29)], 0.30),
        ([(10, 1000, 29), (1100, 3609, 29)], 0.32),
        ([(1000, 2000, 0)], 0.73),
    ],
)
def test_busy_counts_where_the_ring_buffer_has_no_hole(site, windows, share):
    site.job("cpu=4,gres/gpu:a100_sxm4_80gb=1,gres/gpu=1,node=1")
    site.lease(
        [card(**A100)],
        sampled(sm_clock_mhz=1410, power_mw=100_000),
        counters=[],
        rings=[ring("GPU-0", windows)],
    )
    bounds = site.bounds()
    assert len(set(bounds[:4])) == 1
    assert float(Fraction(bounds[4], bounds[0])) == pytest.approx(share, abs=0.01)
    assert site.entry("busy")["rung"] == "busy"
    site.terms("busy")


def test_busy_that_power_contradicts_counts_for_nothing(site):
    site.job("cpu=4,gres/gpu:a100_sxm4_80gb=1,gres/gpu=1,node=1")
    site.lease(
        [card(**A100)],
        sampled(sm_clock_mhz=1410, power_mw=350_000),
        counters=[],
        rings=[ring("GPU-0", [(10, 3609, 1)])],
    )
    assert len(set(site.bounds())) == 1


@pytest.mark.parametrize("trust", RUNGS)
def test_commands_go_down_to_a_rung(site, trust):
    site.job()
    site.lease()
    site.store.close()
    shown = {}
    for name, arguments in {"rank": [], "explain": ["1"], "groups": ["--by", "user"]}.items():
        told = CliRunner().invoke(
            app, ["--store", site.path, name, *arguments, "--trust", trust, "--json"], catch_exceptions=False
        )
        shown[name] = json.loads(told.stdout)
        schema = files("slurm_trace.schema.json").joinpath(f"{name}.schema.json").read_text()
        jsonschema.validate(shown[name], json.loads(schema))
        assert shown[name]["trust"] == trust
    bound = shown["rank"]["jobs"][0]["bound_flop"]
    assert sum(term["flop"] for term in shown["explain"]["terms"]) == bound
    assert shown["groups"]["groups"][0]["bound_flop"] == bound
    text = CliRunner().invoke(app, ["--store", site.path, "explain", "1", "--trust", trust]).stdout
    assert (" pipe_cycles  " in text) == (trust in ("pipe_cycles", "busy"))


def test_by_default_explain_names_the_counters_that_are_not_believed(site):
    site.job()
    shown = CliRunner().invoke(app, ["--store", site.path, "explain", "1", "--json"], catch_exceptions=False)
    assert not [reason for reason in json.loads(shown.stdout)["job"]["reasons"] if "counters" in reason]
    site.lease()
    shown = CliRunner().invoke(app, ["--store", site.path, "explain", "1"], catch_exceptions=False).stdout
    seconds = AT[-1] - AT[0]
    told = f"counters of {seconds - 1} GPU seconds are not believed without --trust, down to pipe_cycles"
    assert f"why it is not lower: {told}" in shown


def test_a_card_costs_in_a_cycle_what_its_ceiling_says():
    """Cycles at the highest clock come to the ceiling, and every pipe at once to all of it."""
    for basis in ("max_any_op", "max_fp_sparse", "max_fp_dense"):
        cards = Cards(RATES, basis, "busy")
        for device in RATES.devices.values():
            found = cards.card(device.nvml_names[0], None, None) if device.nvml_names else None
            if found is None:
                continue
            hz = RATES.device(found.device).max_clock_mhz
            assert found.whole <= found.tensor + found.vector <= found.whole + 1
            assert found.dmma <= found.tensor
            if hz:
                assert found.whole * hz * 1000 >= found.flop_s
    unknown = Kind("Some Card", None, None, 1000, "pipe_cycles", None)
    assert "registry" in Cards(RATES, "max_any_op", "busy").price(unknown, CEILING).reason


@pytest.mark.parametrize("gpus", [0, 1, rungs.GPUS - 1, rungs.GPUS + 1, None])
def test_leases_of_fewer_or_more_gpus_than_the_claim_lower_nothing(gpus):
    """Without a flag too: what is said of some GPUs of a run may be of any that it does not claim."""
    anchors = load_anchors()
    plain = rungs.cycles_edge(Draw(1, "fitting", 1), 1, anchors)

    def bound(gpus, telemetry):
        run = replace(plain.runs[0], lease_gpus=gpus, true_flop=None)
        (answers,) = Judge(anchors).table([replace(plain, runs=(run,), telemetry=telemetry)])
        return next(answer.bound_flop for answer in answers if answer.kind == "run")

    assert bound(rungs.GPUS, plain.telemetry) < bound(rungs.GPUS, ())
    assert bound(gpus, plain.telemetry) == bound(gpus, ()) >= bound(rungs.GPUS, ())


def test_a_card_that_is_larger_only_at_its_clock_is_a_larger_card():
    kinds = [Kind("NVIDIA H100 80GB HBM3", None, 132, mhz, "pipe_cycles", None) for mhz in (1980, 2178)]
    usual, fast = (Cards(RATES, "max_any_op", "busy").price(kind, CEILING) for kind in kinds)
    assert not hasattr(usual, "larger")
    assert fast.larger
    assert all(figure in fast.reason for figure in ("2178 MHz", str(CEILING), str(CEILING * 11 // 10)))
