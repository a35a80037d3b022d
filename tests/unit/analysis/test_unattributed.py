"""Use of a card between the leases that held it: added to all and to its cluster, and to nothing else."""

from fractions import Fraction

import numpy as np
import pytest

from slurm_trace.analysis import unattributed
from slurm_trace.analysis.rates import Rates
from slurm_trace.assess import Request, assess
from slurm_trace.store.engine import open_store
from slurm_trace.store.spool_ingest import import_spools
from support.runs import T0, ingest, run
from support.spools import card, counter, spool

H100 = card(power_limit_mw=700_000)
MHZ = 1_500
RATE = Rates.load(None).ceiling_ops_s("nvidia-h100-sxm5-80gb", "max_any_op") / 1980e6
"""Operations of the whole card in a cycle."""


class World:
    """Leases of one card, one after the other."""

    def __init__(self, folder):
        self.store = open_store(str(folder / "store.db"), create=True)
        self.outbox = folder / "outbox"
        self.outbox.mkdir()
        self.job = 0

    def lease(self, begin, end, *, first=None, last=None, meta=None, reads=None, **lease):
        self.job += 1
        ingest(
            self.store,
            run(self.job, start=T0 + begin, end=T0 + end, elapsed_s=end - begin, submit=T0 + self.job,
                alloc_tres="cpu=4,gres/gpu:h100_sxm5=1,gres/gpu=1,node=1", node_list="n1", node_count=1, cpu_count=4),
        )  # fmt: skip
        told = reads if reads is not None else [(begin + 1, first, "start"), (end + 1, last, "end")]
        counters = [
            counter(
                at, moment=moment, **dict(zip(("gpm_sm_cycles_active", "energy_mj"), values, strict=True))
            )
            for at, values, moment in told
        ]
        spool(
            self.outbox,
            self.job,
            begin=begin,
            end=end,
            counters=counters,
            meta={"driver_version": "550", **(meta or {})},
            **{"devices": [H100], **lease},
        )

    def seen(self, trust="allocation"):
        import_spools(self.store, self.outbox)
        return assess(
            self.store, Request("eu-gpai", None, Fraction(5, 100), trust=trust)
        ).records.unattributed


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.store.close()


def cycles(seconds):
    return MHZ * 10**6 * seconds


def test_what_moved_between_two_leases_counts(world):
    world.lease(10, 110, first=(0, 0), last=(cycles(50), 10**7))
    world.lease(1110, 1200, first=(cycles(350), 10**8), last=(cycles(400), 2 * 10**8))
    (flop,) = world.seen().values()
    assert flop == pytest.approx(cycles(300) * RATE, rel=1e-6)
    assert flop >= cycles(300) * RATE


def test_it_is_of_its_cluster_and_of_all_and_of_no_user(world):
    world.lease(10, 110, first=(0, 0), last=(0, 0))
    world.lease(1110, 1200, first=(cycles(300), 0), last=(cycles(300), 0))
    import_spools(world.store, world.outbox)
    asked = Request("eu-gpai", None, Fraction(5, 100))
    found = assess(world.store, asked)
    ((_, flop),) = found.records.unattributed.items()
    sums = {by: next(iter(found.groups(by))).bound_flop for by in ("all", "cluster", "user")}
    assert sums["all"] == sums["cluster"] == sums["user"] + flop


def warned_of(store, threshold):
    """The assessment, and the kinds of groups that are warned of use between leases."""
    found = assess(store, Request(threshold, None, Fraction(5, 100)))
    kinds = ("all", "cluster", "user", "account")
    rules = {by: {r["rule"] for r in found.group_routes(found.groups(by)[:1])[0]} for by in kinds}
    return found, {by for by, ids in rules.items() if "use-between-leases" in ids}


def test_the_groups_that_hold_it_are_warned_of_where_it_is_much_beside_their_bound(world):
    world.lease(10, 110, first=(0, 0), last=(0, 0))
    world.lease(1110, 1200, first=(cycles(300), 0), last=(cycles(300), 0))
    import_spools(world.store, world.outbox)
    found, kinds = warned_of(world.store, "eu-gpai")
    (whole,), (user,) = found.groups("all"), found.groups("user")
    assert kinds == {"all", "cluster"}
    seen = found.observed_groups([whole, user])
    assert seen["O22.of_threshold"][0] < 0.01
    assert seen["O22.of_bound"][0] == pytest.approx(whole.unattributed_flop / whole.bound_flop)
    # It may be the user's own; nobody knows.
    assert user.unattributed_flop == whole.unattributed_flop
    assert np.isnan(seen["O22.of_threshold"][1])
    assert np.isnan(seen["O22.of_bound"][1])


def test_little_beside_their_bound_is_warned_of_where_it_is_much_beside_the_threshold(world):
    world.lease(10, 10010, first=(0, 0), last=(0, 0))
    world.lease(11000, 21000, first=(cycles(300), 0), last=(cycles(300), 0))
    import_spools(world.store, world.outbox)
    found, kinds = warned_of(world.store, "eu-gpai")
    flop = found.groups("all")[0].unattributed_flop
    assert flop > 0
    assert kinds == set()
    assert warned_of(world.store, str(100 * flop))[1] == {"all", "cluster"}
    assert warned_of(world.store, str(101 * flop))[1] == set()


def test_nothing_while_the_card_was_idle_and_the_trust_does_not_matter(world):
    world.lease(10, 110, first=(0, 0), last=(cycles(50), 10**7))
    world.lease(1110, 1200, first=(cycles(50), 10**7 + 70 * 10**6), last=(cycles(60), 10**8))
    assert world.seen() == {}
    world.lease(1300, 1400, first=(cycles(70), 10**8), last=(cycles(80), 10**8))
    # Counters are not believed to lower a bound; this raises it.
    assert world.seen() == world.seen("cycles_active") != {}


@pytest.mark.parametrize(("joules", "counts"), [(100 * 1000, False), (500 * 1000, True)])
def test_without_cycles_energy_tells_use(world, joules, counts):
    world.lease(10, 110, first=(None, 0), last=(None, 10**6))
    world.lease(1110, 1200, first=(None, 10**6 + joules * 1000), last=(None, 10**9))
    found = world.seen()
    assert bool(found) == counts
    if counts:
        assert sum(found.values()) >= 1000 * Rates.load(None).ceiling_ops_s(
            "nvidia-h100-sxm5-80gb", "max_any_op"
        )


def test_a_counter_that_began_anew_shows_what_it_counted_since(world):
    world.lease(10, 110, first=(cycles(900), 0), last=(cycles(950), 0))
    world.lease(1110, 1200, first=(cycles(100), 0), last=(cycles(150), 0))
    (flop,) = world.seen().values()
    assert flop == pytest.approx(cycles(100) * RATE, rel=1e-6)


def test_never_more_than_the_card_could_do_meanwhile(world):
    world.lease(10, 110, first=(0, 0), last=(0, 0))
    world.lease(1110, 1200, first=(10**18, 0), last=(10**18, 0))
    (flop,) = world.seen().values()
    assert flop == pytest.approx(1000 * 1980e6 * RATE, rel=1e-3)


@pytest.mark.parametrize(
    "change", [{"meta": {"driver_version": "560"}}, {"boot_id": "99999999-2222-3333-4444-555555555555"}]
)
def test_another_boot_or_driver_has_other_counters(world, change):
    world.lease(10, 110, first=(0, 0), last=(0, 0))
    world.lease(1110, 1200, first=(cycles(300), 0), last=(cycles(300), 0), **change)
    assert world.seen() == {}


def test_leases_that_share_a_card_or_follow_at_once_leave_nothing_between(world):
    world.lease(10, 1000, first=(0, 0), last=(cycles(900), 0))
    world.lease(100, 200, first=(cycles(80), 0), last=(cycles(150), 0))
    world.lease(300, 400, first=(cycles(250), 0), last=(cycles(300), 0))
    assert world.seen() == {}


def test_a_lease_that_was_not_read_to_its_end_may_have_done_it_itself(world):
    world.lease(10, 1000, reads=[(11, (0, 0), "start"), (300, (cycles(200), 0), "periodic")])
    world.lease(1110, 1200, first=(cycles(900), 0), last=(cycles(950), 0))
    assert world.seen() == {}


def test_parts_of_one_lease_are_one(world, tmp_path):
    tres = "cpu=4,gres/gpu:h100_sxm5=1,gres/gpu=1,node=1"
    ingest(world.store, run(9, end=T0 + 2000, elapsed_s=1990, alloc_tres=tres, node_list="n1", node_count=1))
    meta = {"driver_version": "550"}
    first = [
        counter(11, moment="start", gpm_sm_cycles_active=0),
        counter(400, gpm_sm_cycles_active=cycles(300)),
    ]
    last = [counter(1000, gpm_sm_cycles_active=cycles(900)), counter(2000, gpm_sm_cycles_active=cycles(1500))]
    spool(world.outbox, 9, begin=10, end=500, devices=[H100], counters=first, closed="part", meta=meta)
    spool(world.outbox, 9, begin=500, end=2000, opened=10, part=1, devices=[H100], counters=last, meta=meta)
    assert world.seen() == {}


def test_it_may_have_gone_as_fast_as_any_card_of_its_model(world):
    world.lease(10, 110, first=(0, 0), last=(0, 0))
    world.lease(1110, 1200, first=(10**18, 0), last=(10**18, 0))
    fast = card("GPU-9", max_sm_mhz=2178)
    world.lease(2000, 2100, boot_id="99999999-2222-3333-4444-555555555555", devices=[fast], reads=[])
    (flop,) = world.seen().values()
    assert flop == pytest.approx(1000 * 2178e6 * RATE, rel=1e-3)


def test_cards_that_are_looked_at_apart_add_up(world, monkeypatch):
    boots = [f"{number:08}-2222-3333-4444-555555555555" for number in range(5)]
    for boot in boots:
        world.lease(10, 110, first=(0, 0), last=(0, 0), boot_id=boot)
        world.lease(1110, 1200, first=(cycles(300), 0), last=(cycles(300), 0), boot_id=boot)
    (flop,) = world.seen().values()
    assert flop == pytest.approx(5 * cycles(300) * RATE, rel=1e-6)
    monkeypatch.setattr(unattributed, "_AT_ONCE", 3)
    assert list(world.seen().values()) == [flop]
