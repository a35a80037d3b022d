from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster, cluster, why_not
from support.cluster_checks import Expect
from support.cluster_samplers import Samplers, samplers
from support.slurmdbd import Accounting, missing_programs, slurmdbd

CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "2205"


@pytest.fixture(scope="session")
def accounting() -> Iterator[Accounting]:
    """The real slurmdbd of the host's packages over the recorded database of 57 submissions."""
    if os.geteuid() != 0:
        pytest.skip("needs root: Slurm's and MariaDB's daemons run as their own users")
    missing = missing_programs()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    with slurmdbd(CAPTURE / "slurm_acct_db.sql") as running:
        yield running


@pytest.fixture(scope="session")
def lab() -> Iterator[Cluster]:
    """One whole Slurm for all tests that run jobs."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with cluster(prolog_flags=os.environ.get("SLURM_TRACE_PROLOG_FLAGS", "Alloc")) as running:
        yield running


@pytest.fixture(scope="session")
def traced(lab: Cluster) -> Iterator[Samplers]:
    """The project's sampler on every node of it."""
    with samplers(lab) as running:
        yield running


@pytest.fixture(scope="session")
def expect(lab: Cluster, traced: Samplers) -> Expect:
    """Checks what a job left behind."""
    return Expect(lab, traced)
