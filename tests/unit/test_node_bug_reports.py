"""Faults that users of other samplers met, from the node to what a report says: each with the value that is right."""

import json
import os
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner

from slurm_trace.assess import Request, assess
from slurm_trace.cli.main import app
from slurm_trace.node.devices.base import DeviceInfo
from slurm_trace.store.engine import open_store
from slurm_trace.store.models import job_summary, lease, lease_device
from slurm_trace.store.spool_ingest import import_spools
from support.runs import ingest, run
from support.sampling import Node, S
from support.spools import card, counter, samples, spool

ACCOUNTED = {"accelerators", "duration", "continuation"}
ONE_GPU = "cpu=4,gres/gpu:h100_sxm5=1,gres/gpu=1,node=1"


class World:
    """A store, and the outbox of a node."""

    def __init__(self, folder):
        self.location = str(folder / "store.db")
        self.store = open_store(self.location, create=True)
        self.outbox = folder / "outbox"
        self.outbox.mkdir()

    def take(self, *runs):
        ingest(self.store, *runs)
        import_spools(self.store, self.outbox)

    def rows(self, table):
        with self.store.reading() as connection:
            return connection.execute(table.select()).all()

    def explained(self, job=1, *options):
        asked = ["--store", self.location, "explain", str(job), *options]
        return json.loads(CliRunner().invoke(app, [*asked, "--json"], catch_exceptions=False).stdout)

    def measured(self, job):
        """Channels of `classify` that have a reading, beside those of accounting."""
        asked = ["--store", self.location, "classify", str(job), "--json"]
        told = json.loads(CliRunner().invoke(app, asked, catch_exceptions=False).stdout)
        return {c["channel"] for c in told["channels"] if c["value"] is not None} - ACCOUNTED

    def jobs(self, trust="allocation"):
        asked = Request("eu-gpai", None, Fraction(5, 100), trust=trust, routes=True)
        found = assess(self.store, asked)
        positions = found.order().tolist()
        return {row["job_id_raw"]: row for row in found.rows(positions, found.decisions(positions))}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.store.close()


def one_gpu(job=1, **changes):
    given = {"alloc_tres": ONE_GPU, "node_list": "n1", "node_count": 1, "cpu_count": 4}
    return run(job, **given | changes)


class Prologs:
    """Prolog and epilog of a node, with the sampler between them; files are of the node's own wall clock."""

    def __init__(self, folder):
        self.node = Node(folder)
        self.stems, self.spans = {}, {}

    def begin(self, job):
        self.stems[job] = self.node.lease(job)
        self.spans[job] = (self._dated(job, "lease"), None)

    def end(self, job):
        self.node.end(self.stems[job])
        self.spans[job] = (self.spans[job][0], self._dated(job, "end"))

    def _dated(self, job, suffix):
        wall = self.node.clock.wall
        os.utime(self.node.config.leases_folder / f"{self.stems[job]}.{suffix}", ns=(wall, wall))
        return wall // S


def test_two_owners_of_one_card_are_flagged_and_its_energy_is_nobody_s_own(world):
    # omnistat 2: an epilog runs 2 s after the prolog of the next job.
    hooks = Prologs(world.outbox.parent / "node")
    hooks.begin(12844)
    hooks.node.run_s(30)
    hooks.begin(12848)
    hooks.node.run_s(2)
    hooks.end(12844)
    hooks.node.run_s(30)
    hooks.end(12848)
    hooks.begin(12850)
    hooks.node.run_s(30)
    hooks.end(12850)
    hooks.node.run_s(1)
    for made in hooks.node.sealed():
        made.path.rename(world.outbox / made.path.name)
    world.take(
        *(
            one_gpu(job, cluster="hill", start=start, end=end, elapsed_s=end - start, submit=start)
            for job, (start, end) in hooks.spans.items()
        )
    )
    # Samples are split at the marks of prolog and epilog.
    covered = {row.job_id_raw: round(row.covered_ms / 1000) for row in world.rows(lease)}
    assert covered == {12844: 32, 12848: 32, 12850: 30}
    flags = {job: entry["flags"] for job, entry in world.jobs().items()}
    assert flags == {12844: ["gpu_shared"], 12848: ["gpu_shared"], 12850: []}
    scopes = {job: world.explained(job)["energy"]["scope"] for job in flags}
    assert scopes == {12844: "shared_gpu", 12848: "shared_gpu", 12850: "gpu"}
    measured = {job: bool(world.measured(job)) for job in flags}
    assert measured == {12844: False, 12848: False, 12850: True}


def test_energy_of_slices_is_never_that_of_their_card(world):
    # slurm-job-exporter pull 55, dcgm-exporter 317: four slices of one card of 300 W.
    for number in range(4):
        part = DeviceInfo(
            f"MIG-{number}", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 0, 0, None,
            parent_uuid="GPU-0", mig_profile="1g.10gb", sm_count=14,
        )  # fmt: skip
        told = samples(range(11, 112), memory_used_bytes=1 << 30)
        spool(world.outbox, 1 + number, devices=[part], columns={part.uuid: told})
    tres = "cpu=1,gres/gpu:a100_1g.10gb=1,gres/gpu=1,node=1"
    world.take(*(one_gpu(1 + number, alloc_tres=tres) for number in range(4)))
    drawn = [(row.energy_mj, row.power_max_mw) for row in world.rows(job_summary)]
    assert drawn == [(None, None)] * 4
    assert world.explained()["energy"] is None


def test_a_reading_above_a_hundred_spoils_no_mean(world):
    # DCGM issue 199.
    told = samples((20, 30, 40), utilization_pct=[37, 808334905, 41])
    spool(world.outbox, begin=10, end=40, devices=[card()], columns={"GPU-0": told})
    world.take(one_gpu(end=1_700_000_040, elapsed_s=30))
    (row,) = world.rows(lease_device)
    assert row.utilization_pct_ms / row.utilization_ms == 39
    assert (row.invalid, row.utilization_max_pct) == (1, 41)


def test_a_job_on_a_slice_is_not_called_idle(world):
    # gpu-monitoring-tools 152, distributed 8739, nvtop 256: no utilisation is not 0.
    spool(world.outbox, 1, devices=[card()], columns={"GPU-0": samples(range(11, 112), power_mw=90_000)})
    spool(world.outbox, 2, devices=[card()], columns={"GPU-0": samples(range(11, 112), utilization_pct=0)})
    world.take(one_gpu(1), one_gpu(2))
    rules = {job: {route["rule"] for route in entry["routes"]} for job, entry in world.jobs().items()}
    assert "looks-idle" not in rules[1]
    assert "looks-idle" in rules[2]


@pytest.mark.parametrize("utilization", [0, 1, 100])
def test_polled_utilisation_lowers_no_bound(world, utilization):
    # It is the share of a moment with any kernel resident, and 100 at 70 W of 700 W says nothing either.
    told = samples(range(11, 112), utilization_pct=utilization, power_mw=70_000, sm_clock_mhz=300)
    spool(world.outbox, devices=[card(power_limit_mw=700_000)], columns={"GPU-0": told})
    world.take(one_gpu())
    assert world.jobs("busy")[1]["bound_flop"] == world.jobs("allocation")[1]["bound_flop"]
    assert world.jobs("busy")[1]["rung"] == "allocation"


def test_counter_and_integral_are_both_kept_and_the_figure_says_which_it_is(world):
    # zeus 181, kokkos-tools pull 295: 187 J by the counter, 327 J by power, in 5 s.
    told = samples(range(11, 16), power_mw=65_400)
    reads = [counter(10, energy_mj=1_000_000), counter(15, energy_mj=1_187_000)]
    spool(world.outbox, begin=10, end=15, devices=[card()], columns={"GPU-0": told}, counters=reads)
    world.take(one_gpu(end=1_700_000_015, elapsed_s=5))
    (row,) = world.rows(lease_device)
    assert (row.energy_mj, row.energy_from, row.power_mj) == (187_000, "counter", 327_000)
    energy = world.explained()["energy"]
    assert (energy["energy_mj"], energy["source"]) == (327_000, "power")


@pytest.mark.parametrize(
    ("power", "energy"),
    [(200_000, {"energy_mj": 12_000_000, "source": "power"}), (None, None)],
    ids=["power alone", "nothing"],
)
def test_no_counter_is_an_integral_that_says_so_or_nothing(world, power, energy):
    # codecarbon 1316: 200 W for 60 s without a counter became 0 kWh.
    told = samples(range(11, 71), power_mw=power, memory_used_bytes=1 << 30)
    device = replace(card(), capability={"energy_mj": "not_supported"})
    spool(world.outbox, begin=10, end=70, devices=[device], columns={"GPU-0": told})
    world.take(one_gpu(end=1_700_000_070, elapsed_s=60))
    found = world.explained()["energy"]
    assert (found and {name: found[name] for name in ("energy_mj", "source")}) == energy


def test_a_counter_that_stands_still_for_a_moment_and_millijoules(world):
    # pyJoules 17 and pull 20: two equal reads 1 ms apart; 15,000 mJ are 15 J.
    at = (11, 11.001, 110)
    reads = [counter(moment, energy_mj=mj) for moment, mj in zip(at, (7_000, 7_000, 22_000), strict=True)]
    spool(world.outbox, devices=[card()], columns={"GPU-0": samples(range(11, 112))}, counters=reads)
    world.take(one_gpu())
    (row,) = world.rows(lease_device)
    assert (row.energy_mj, row.energy_resets) == (15_000, 0)
    shown = CliRunner().invoke(app, ["--store", world.location, "explain", "1"], catch_exceptions=False)
    assert "energy of its GPUs by their counters: 15 J" in shown.stdout


def test_two_jobs_one_after_the_other_keep_what_is_theirs(world):
    # device-metrics-exporter 212: state that is kept by GPU alone forgets the job before.
    for job, begin, watts in ((1, 10, 100), (2, 110, 300)):
        told = samples(range(begin + 1, begin + 101), power_mw=watts * 1000)
        spool(world.outbox, job, begin=begin, end=begin + 100, devices=[card()], columns={"GPU-0": told})
    second = {"start": 1_700_000_110, "end": 1_700_000_210, "submit": 1_700_000_001}
    world.take(one_gpu(1), one_gpu(2, **second))
    assert [row.energy_mj for row in world.rows(job_summary)] == [10_000_000, 30_000_000]
    assert [entry["flags"] for entry in world.jobs().values()] == [[], []]
