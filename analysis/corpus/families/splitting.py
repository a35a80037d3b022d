"""Families about groups: one training spread over many runs is small in each of them, and whole in what holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slurm_trace.analysis.corpus.anchors import Anchors
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families.common import (
    DAY_S,
    ended,
    limit_flop,
    longest_s,
    moved,
    span,
    tres,
    verdict_at,
)
from slurm_trace.analysis.corpus.site import CLUSTER, Ask, Family, Run, Site
from slurm_trace.analysis.verdicts import NOT_RULED_OUT
from slurm_trace.site.profile import ClusterProfile, NodeGroup

PARTS = (2, 3, 5, 8, 13)
PAST_S = (-50, -1, 0, 1, 50)
GPUS, CPUS, CARD = 32, 256, "h100"
NODES = 4
WIDE = ("cluster", "account", "user", "lineage", "family")

Change = Callable[[Draw, int, Run], Run]


def _flop_s(anchors: Anchors) -> int:
    return GPUS * anchors.gpu(CARD) + CPUS * anchors.core()


def _longest(anchors: Anchors) -> int:
    """Seconds that all parts together may hold and stay below."""
    return longest_s(limit_flop(anchors, Ask()), _flop_s(anchors))


def _part(draw: Draw, anchors: Anchors, number: int, held_s: int, percent: int = 100) -> Run:
    return ended(
        draw,
        anchors,
        number,
        held_s=held_s,
        flop_s=_flop_s(anchors),
        percent=percent,
        node_count=NODES,
        cpu_count=CPUS,
        alloc_tres=tres(CPUS, NODES, GPUS, CARD),
    )


def _split(draw: Draw, number: int, anchors: Anchors, change: Change, levels: tuple[str, ...] = WIDE) -> Site:
    """One training cut into parts that each change something; together they lie just below or just above."""
    past_s, parts = along(number, PAST_S, PARTS)
    lengths = draw.parts(_longest(anchors) + past_s, parts)
    first = draw.between(1, 10**6)
    runs = tuple(change(draw, k, _part(draw, anchors, first + k, held_s)) for k, held_s in enumerate(lengths))
    return Site(
        varies={"parts": parts, "past_s": past_s},
        runs=runs,
        ask=Ask(),
        levels=levels,
        intended=verdict_at(past_s),
    )


def split_jobs(draw: Draw, number: int, anchors: Anchors) -> Site:
    """One training cut into several jobs of the same user."""
    return _split(draw, number, anchors, lambda _, __, run: run)


def split_names(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Every part under another user name and the same uid: a person is a uid."""
    return _split(draw, number, anchors, lambda _, k, run: replace(run, user=f"ada{k}", name=f"job{k}"))


def split_users(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Every part by another user of one account: the account holds them all."""
    return _split(draw, number, anchors, lambda _, k, run: replace(run, user=f"u{k}", uid=2000 + k))


def split_accounts(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Every part on another account: the user holds them all."""
    return _split(draw, number, anchors, lambda _, k, run: replace(run, account=f"a{k}"))


def split_both(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Every part by another user on another account: only the cluster holds them."""
    return _split(
        draw, number, anchors, lambda _, k, run: replace(run, user=f"u{k}", uid=2000 + k, account=f"a{k}")
    )


def split_array(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The parts are tasks of one array job."""
    return _split(draw, number, anchors, lambda _, __, run: replace(run, array_job_id=77))


def split_het(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The parts are the components of one heterogeneous job, which ran at the same time."""
    return _split(draw, number, anchors, lambda _, __, run: replace(run, het_job_id=88))


def split_pauses(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Long pauses lie between the parts."""

    def later(draw: Draw, k: int, run: Run) -> Run:
        gap_s = k * draw.between(1, 30) * DAY_S
        return moved(run, -gap_s)

    return _split(draw, number, anchors, later)


def split_shapes(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The parts take turns with few and with many GPUs, so that no two of them look alike."""
    past_s, parts = along(number, PAST_S, PARTS)
    limit, base = limit_flop(anchors, Ask()), 2 * anchors.gpu(CARD) + 16 * anchors.core()
    units = longest_s(limit, base) + past_s
    runs: list[Run] = []
    first = draw.between(1, 10**6)
    shares = draw.parts(units, parts)
    for k, share in enumerate(shares):
        scale = (1, 2, 4, 8)[k % 4]
        # What does not divide goes into a run of the smallest shape.
        for held_s, wide in ((share // scale, scale), (share % scale, 1)):
            if held_s:
                runs.append(
                    ended(
                        draw,
                        anchors,
                        first + len(runs),
                        held_s=held_s,
                        flop_s=wide * base,
                        percent=100,
                        node_count=wide,
                        cpu_count=16 * wide,
                        name=f"shape{wide}",
                        alloc_tres=tres(16 * wide, wide, 2 * wide, CARD),
                    )
                )
    return Site(
        varies={"parts": parts, "past_s": past_s},
        runs=tuple(runs),
        ask=Ask(),
        levels=WIDE,
        intended=verdict_at(past_s),
    )


def split_clusters(draw: Draw, number: int, anchors: Anchors) -> Site:
    """The parts ran on several clusters: only all of them together hold the training."""
    past_s, parts = along(number, PAST_S, (2, 3, 4))
    lengths = draw.parts(_longest(anchors) + past_s, parts)
    runs = tuple(
        replace(_part(draw, anchors, k + 1, held_s), cluster=f"{CLUSTER}{k}")
        for k, held_s in enumerate(lengths)
    )
    return Site(
        varies={"clusters": parts, "past_s": past_s},
        runs=runs,
        ask=Ask(),
        levels=("all", "cluster", "user", "lineage"),
        intended=verdict_at(past_s),
    )


def requeue_storm(draw: Draw, number: int, anchors: Anchors) -> Site:
    """One job that is requeued again and again: each time another run of the same raw id, and all of them count."""
    past_s, times = along(number, PAST_S, (3, 10, 25, 40))
    lengths = draw.parts(_longest(anchors) + past_s, times)
    raw = draw.between(1, 10**6)
    at = anchors.as_of - 300 * DAY_S
    runs = []
    for held_s in lengths:
        run = _part(draw, anchors, raw, held_s)
        runs.append(replace(moved(run, at - span(run)[0]), submit=at - 1))
        at += held_s + draw.between(2, 120)
    return Site(
        varies={"times": times, "past_s": past_s},
        runs=tuple(runs),
        ask=Ask(),
        levels=WIDE,
        intended=verdict_at(past_s),
    )


def job_id_reuse(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Raw ids began again from 1: two runs of one id years apart, by other users, are two runs."""
    past_s, users = along(number, PAST_S, (1, 2))
    one, two = draw.parts(_longest(anchors) + past_s, 2)
    first = _part(draw, anchors, 17, one)
    second = moved(_part(draw, anchors, 17, two), -900 * DAY_S)
    if users == 2:
        second = replace(second, user="bea", uid=1001)
    return Site(
        varies={"users": users, "past_s": past_s},
        runs=(first, second),
        ask=Ask(),
        levels=WIDE,
        intended=verdict_at(past_s),
    )


def resize_overlap(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A resized job has two rows with one Start: the time up to the change counts once, at the larger of the two."""
    past_s, after = along(number, PAST_S, (16, 64))
    before_flop_s = _flop_s(anchors)
    after_flop_s = after * anchors.gpu(CARD) + CPUS * anchors.core()
    early = draw.between(1000, 20_000)
    limit = limit_flop(anchors, Ask())
    # Up to the change the larger claim of both rows counts, from there on that of the second.
    first_flop = early * max(before_flop_s, after_flop_s)
    late = longest_s(limit - first_flop, after_flop_s) + past_s
    second = replace(
        _part(draw, anchors, 5, early + late),
        alloc_tres=tres(CPUS, NODES, after, CARD),
        true_flop=late * after_flop_s,
    )
    start, _ = span(second)
    first = _part(draw, anchors, 5, early)
    first = replace(moved(first, start - span(first)[0]), submit=second.submit)
    second = replace(second, submit=start + early - 1)
    return Site(
        varies={"gpus_after": after, "past_s": past_s},
        runs=(first, second),
        ask=Ask(),
        levels=WIDE,
        intended=verdict_at(past_s),
    )


def idle_padding(draw: Draw, number: int, anchors: Anchors) -> Site:
    """A training among runs that did next to nothing: the padding adds to the bound and hides nothing."""
    past_s, padding = along(number, PAST_S, (4, 10, 20))
    idle = [_part(draw, anchors, 100 + k, draw.between(60, 600), percent=0) for k in range(padding)]
    idle_s = sum((run.elapsed_s or 0) + 1 for run in idle)
    real = _part(draw, anchors, 7, _longest(anchors) + past_s - idle_s)
    others = tuple(replace(run, user=f"u{k % 3}", uid=3000 + k % 3) for k, run in enumerate(idle))
    return Site(
        varies={"padding": padding, "past_s": past_s},
        runs=(real, *others),
        ask=Ask(),
        levels=WIDE,
        intended=verdict_at(past_s),
    )


def shared_nodes(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Runs that share nodes cannot do more together than the nodes: only a whole inventory caps their sum."""
    past_s, known, sharing = along(number, PAST_S, ("inventory", "no cores"), (2, 3, 5))
    sku, model, cores = "nvidia-h100-sxm5-80gb", "Intel(R) Xeon(R) Platinum 8480+", 64
    node_flop_s = 8 * anchors.skus[sku]["max_any_op"] + cores * anchors.core(model)
    nodes = 4
    group = NodeGroup(
        hosts="n[1-4]", gpus=8, sku=sku, cpu_model=model, cores=cores if known == "inventory" else None
    )
    held_s = longest_s(limit_flop(anchors, Ask()), nodes * node_flop_s) + past_s
    whole = ended(
        draw,
        anchors,
        1,
        held_s=held_s,
        flop_s=nodes * node_flop_s,
        percent=100,
        node_count=nodes,
        cpu_count=nodes * cores,
        node_list="n[1-4]",
        alloc_tres=tres(nodes * cores, nodes, nodes * 8, "nvidia_h100_80gb_hbm3"),
    )
    truth = (whole.true_flop or 0) // sharing
    runs = tuple(
        replace(whole, job_id_raw=k + 1, submit=(whole.submit or 0) - k, true_flop=truth)
        for k in range(sharing)
    )
    return Site(
        varies={"known": known, "sharing": sharing, "past_s": past_s},
        runs=runs,
        ask=Ask(),
        profiles={CLUSTER: ClusterProfile(nodes=(group,))},
        intended=verdict_at(past_s) if known == "inventory" else NOT_RULED_OUT,
    )


def nobody(draw: Draw, number: int, anchors: Anchors) -> Site:
    """Runs that name no user may be anybody's: no user is ruled out while theirs could make the difference."""
    past_s, what = along(number, PAST_S, ("user", "account"))
    one, two = draw.parts(_longest(anchors) + past_s, 2)
    unnamed = _part(draw, anchors, 2, two)
    unnamed = replace(unnamed, user=None, uid=None) if what == "user" else replace(unnamed, account=None)
    return Site(
        varies={"unnamed": what, "past_s": past_s},
        runs=(_part(draw, anchors, 1, one), unnamed),
        ask=Ask(),
        levels=("cluster", what),
        intended=verdict_at(past_s),
    )


FAMILIES = (
    Family(split_jobs, 200),
    Family(split_names, 200),
    Family(split_users, 200),
    Family(split_accounts, 200),
    Family(split_both, 200),
    Family(split_array, 200),
    Family(split_het, 200),
    Family(split_pauses, 200),
    Family(split_shapes, 200),
    Family(split_clusters, 60),
    Family(requeue_storm, 160),
    Family(job_id_reuse, 160),
    Family(resize_overlap, 200),
    Family(idle_padding, 180),
    Family(shared_nodes, 240),
    Family(nobody, 60),
)
