"""`python -m slurm_trace.node`, and the zipapp's entry."""

from __future__ import annotations

import sys

from slurm_trace.node.main import main

if __name__ == "__main__":
    sys.exit(main())
