"""Slurm, Grid Engine and this machine: one folder each, and what they share."""
