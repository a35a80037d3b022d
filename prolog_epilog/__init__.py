"""Slurm prolog and epilog hooks, and the packaging of the node side."""
