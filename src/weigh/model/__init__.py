"""The frozen records that travel between the stages, and nothing else."""
