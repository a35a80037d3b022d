"""Which Slurm jobs cannot have been a training run above a compute threshold."""
