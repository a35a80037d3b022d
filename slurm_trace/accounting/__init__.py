"""Sources of accounting records: sacct text, sacct JSON and pyslurm, read into run records."""
