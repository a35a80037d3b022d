"""`make cluster`: a Slurm with the hooks and samplers on every node, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from support.cluster import cluster, why_not
from support.cluster_conf import GPUS, NODES
from support.cluster_samplers import samplers


def main() -> int:
    """Bring it up, say how to use it, and wait."""
    problem = why_not()
    if problem:
        sys.stderr.write(f"{problem}\n")
        return 4
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt), cluster() as lab, samplers(lab, source="replay") as traced:
        sys.stdout.write(
            f"A Slurm with {len(NODES)} nodes of {GPUS} fake GPUs is up after {time.monotonic() - began:.0f} s.\n"
            f"  In another shell:  export SLURM_CONF={lab.conf}\n"
            f"                     sinfo; sacct -X\n"
            f"  Jobs, as a user:   cd {lab.jobs}; runuser -u alice -- sbatch --gres=gpu:2 --wrap 'sleep 60'\n"
            f"  Into a store:      slurm-trace --store lab.db import sacct\n"
            f"                     slurm-trace --store lab.db import spool {traced.outbox}\n"
            f"  Leases:            {lab.root}/nodes/*/leases    logs: {lab.root}/log\n"
            f"  Stop and remove:   Ctrl-C here, or kill {os.getpid()}\n"
        )
        sys.stdout.flush()
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
