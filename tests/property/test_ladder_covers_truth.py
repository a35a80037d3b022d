"""The golden property with telemetry: whatever happens to counters and samplers, no rung falls below the truth."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from slurm_trace.analysis.ladder import RUNGS, Cards, Price
from slurm_trace.analysis.rates import Rates
from slurm_trace.node.fields import COUNTER_NAMES
from slurm_trace.store.spool_intervals import Sampled, intervals_of
from slurm_trace.store.stretches import Read, Trail, Witness, stretches
from support.gpu_history import CLOCK_MAX_MHZ, CYCLES, LIMIT_W, SAMPLE_S, SMS, Faults, History, Part, S

CARD = "NVIDIA H100 80GB HBM3"
READ_NS = 200_000_000
PIPES = [name for name in CYCLES if name != "gpm_sm_cycles_elapsed"]


@cache
def ceiling():
    return Rates.load(None).resolve(None, sku=CARD).ceiling_flop_s("max_any_op")


@cache
def cards(trust):
    return Cards(Rates.load(None), "max_any_op", trust)


def trail(history, reads, sms=SMS):
    """What is stored of a history that is read at these seconds."""
    told = [at for at in sorted(reads) if not history.faults.asleep(at)]
    rows = history.samples()
    values = {
        name: np.array([value(part) for _, part in rows], dtype=np.int64)
        for name, value in {
            "clock": lambda part: part.clock_mhz,
            "utilization": lambda part: 100 if part.active else 0,
            "power": lambda part: part.power_w * 1000,
            "processes": lambda part: 1,
        }.items()
    }
    times = np.array([at * 1000 for at, _ in rows], dtype=np.int64)
    far = np.diff(times, prepend=0) > 2 * SAMPLE_S * 1000
    samples = Sampled(times, holes=far, **values)
    moments = [(at * S, READ_NS) for at in told]
    spans = intervals_of(samples, moments, (0, history.seconds * S))
    return Trail(
        node="n1",
        uuid="GPU-0",
        name=CARD,
        mig_profile=None,
        sm_count=sms,
        clock_max_mhz=CLOCK_MAX_MHZ,
        power_limit_mw=LIMIT_W * 1000,
        wall_ns=0,
        reads=tuple(
            Read(at * S, READ_NS, history.driver(at), tuple(history.counters(at)[n] for n in COUNTER_NAMES))
            for at in told
        ),
        witnesses=tuple(Witness(*(getattr(one, n) for n in Witness.__slots__)) for one in spans),
        busy=(),
    )


def bound(found, history, trust):
    """The bound of a run that held the card for all of its history: kind by kind what is lower, as in `Ladder`."""
    whole = ceiling() * (history.seconds + 1)
    if trust == "allocation":
        return whole
    for kind in {one.kind for one in found}:
        price = cards(trust).price(kind, ceiling())
        mine = [one for one in found if one.kind == kind]
        if isinstance(price, Price):
            whole -= max(0, sum(ceiling() * one.seconds - price.flop(one) for one in mine))
    return whole


@st.composite
def parts(draw, load=None):
    active = draw(st.integers(80, 100)) if load else draw(st.sampled_from([0, 1, 5, 30, 60, 100]))
    tensor = draw(st.integers(45, 80)) if load else draw(st.integers(0, active))
    return Part(
        seconds=draw(st.integers(3, 200)) * SAMPLE_S,
        clock_mhz=draw(st.sampled_from([210, 345, 900, 1215, 1755, CLOCK_MAX_MHZ])),
        active=active,
        tensor=tensor,
        vector=draw(st.integers(1, 80)) if load else draw(st.integers(0, active)),
        double=draw(st.booleans()),
    )


def times(longest):
    return st.tuples(st.integers(0, longest), st.integers(1, max(1, longest))).map(
        lambda t: (t[0], t[0] + t[1])
    )


MATRIX = frozenset(name for name in PIPES if "mma" in name or "dfma" in name)
FACTORS = ((1, 2), (2, 3), (9, 10), (1, 100), (1, 1000), (1000, 1), (2, 1))
FAULTS = ("none", "frozen", "reset", "stuck", "missing", "factor", "dead", "dark", "driver")


@st.composite
def histories(draw):
    """One fault or two, at any moment, and reads from (almost) end to end or anywhere."""
    kinds = draw(st.sets(st.sampled_from(FAULTS), min_size=1, max_size=2))
    happened = tuple(draw(st.lists(parts(load="stuck" in kinds), min_size=1, max_size=4)))
    longest = sum(part.seconds for part in happened)
    told = {
        "frozen": lambda: {"frozen": (draw(times(longest)),)},
        "reset": lambda: {"reset": tuple(draw(st.lists(st.integers(1, longest), min_size=1, max_size=2)))},
        "stuck": lambda: {"stuck": draw(st.sampled_from([frozenset(PIPES), MATRIX]))},
        "missing": lambda: {"missing": frozenset({draw(st.sampled_from(sorted(CYCLES)))})},
        "factor": lambda: {"factor": draw(st.sampled_from(FACTORS))},
        "dead": lambda: {"dead": (draw(times(longest)),)},
        "dark": lambda: dict.fromkeys(("dead", "frozen"), (draw(times(longest)),)),
        "driver": lambda: {"driver": longest // 2},
        "none": dict,
    }
    faults = Faults(summed=draw(st.booleans()), **{k: v for kind in kinds for k, v in told[kind]().items()})
    reads = draw(st.sets(st.integers(0, longest), max_size=4))
    if draw(st.integers(0, 3)):
        reads |= {0, longest - 1}
    return History(happened, faults), reads, draw(st.sampled_from([SMS, SMS, SMS, None]))


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_no_rung_below_the_truth(world):
    history, reads, sms = world
    found = stretches(trail(history, reads, sms), 0, history.seconds + 1)
    bounds = [bound(found, history, trust) for trust in RUNGS]
    assert min(bounds) >= history.flop()
    assert bounds[:4] == sorted(bounds[:4], reverse=True)
    assert all(a.to_s <= b.from_s for a, b in itertools.pairwise(found))
    assert all(0 <= one.from_s < one.to_s <= history.seconds + 1 for one in found)


@settings(max_examples=150, deadline=None)
@given(st.lists(parts(), min_size=1, max_size=4), st.booleans(), times(5000))
def test_clean_counters_lower_every_rung(happened, summed, dead):
    """Not vacuous: what is read at both ends of a run comes out close to what was done, however the sampler fared."""
    history = History(tuple(happened), Faults(summed=summed))
    assume(history.seconds > 600)
    middle = history.seconds // 2
    found = stretches(trail(history, [0, middle, history.seconds - 1]), 0, history.seconds + 1)
    rungs = [bound(found, history, trust) for trust in RUNGS]
    most = ceiling() * (history.seconds + 1)
    flop_s = ceiling() // (CLOCK_MAX_MHZ * 100)
    elapsed = sum(flop_s * part.clock_mhz * 100 * part.seconds for part in happened)
    active = sum(flop_s * part.clock_mhz * part.active * part.seconds for part in happened)
    # Between two samples the larger clock counts, and a few seconds at both ends are not proven.
    slack = ceiling() * (SAMPLE_S * (len(happened) + 2) + 8)
    assert rungs[0] == most
    assert rungs[1] <= elapsed + slack
    if all(part.power_w * 3 <= LIMIT_W for part in happened) or all(part.active > 20 for part in happened):
        assert rungs[2] <= active + slack


@pytest.mark.parametrize("trust", RUNGS)
def test_a_late_read_closes_the_gap_of_a_dead_sampler(trust):
    busy = Part(6000, active=80, tensor=40, vector=20)
    history = History((busy,), Faults(dead=((1000, 5000),)))
    found = stretches(trail(history, [5, 900, 5990]), 0, history.seconds + 1)
    assert [(one.from_s, one.to_s) for one in found] == [(6, 900), (900, 5990)]
    assert history.flop() <= bound(found, history, trust) <= ceiling() * 6001
    if trust == "pipe_cycles":
        assert bound(found, history, trust) < history.flop() * 12 // 10
