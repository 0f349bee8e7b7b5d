"""Measure the memory of a process tree: one noun per file."""
