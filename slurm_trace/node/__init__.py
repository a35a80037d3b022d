"""What runs on a compute node: Python 3.9 and later, the standard library and nvidia-ml-py, nothing else."""
