"""Grids of parameters, and the task files they are written to."""
