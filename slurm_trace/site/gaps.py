"""What a cluster's profile leaves open, and what each gap costs."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_trace.site.profile import ClusterProfile, NodeGroup


def open_points(cluster: ClusterProfile) -> tuple[str, ...]:
    """One line for each fact to add, with the assumption that stands in for it."""
    return tuple(_open_points(cluster))


def _open_points(cluster: ClusterProfile) -> Iterator[str]:
    if cluster.zone is None:
        yield "zone: sacct times without an offset are read as UTC"
    if cluster.kill_wait_s is None or cluster.unkillable_step_timeout_s is None:
        yield "kill_wait_s, unkillable_step_timeout_s: 90 s are added to runs that did not end by themselves"
    if not cluster.registered_tres:
        yield (
            "registered_tres: a run without a recorded GPU is only assumed to have had none "
            "(import events proves it too)"
        )
    if cluster.gres_types is None:
        yield "gres_types: shares of cards (shard, mps) that accounting does not record can't be ruled out"
    if not cluster.nodes:
        yield "nodes: unknown counts take the most GPUs that any node holds, a group has no capacity bound"
    for group in cluster.nodes:
        for point in _group_points(group):
            yield f"nodes {group.hosts}: {point}"


def _group_points(group: NodeGroup) -> Iterator[str]:
    if group.gpus is None:
        yield "gpus: taken as the most that any node holds"
    if group.gpus != 0 and group.sku is None:
        yield "sku: the largest card that fits Slurm's type counts"
    if group.cpu_model is None or group.cores is None:
        yield "cpu_model, cores: the largest registered CPU counts"
    if group.devices_confined is None or group.cores_confined is None:
        yield "devices_confined, cores_confined: jobs are only assumed to keep to their own GPUs and cores"
