"""Slurm: its text, job scripts, commands, limits, lint and accounting."""
