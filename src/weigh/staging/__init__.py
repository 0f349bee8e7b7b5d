"""Inputs to a node's own disk and results back: text for a job script."""
