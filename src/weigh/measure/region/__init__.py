"""Regions of a program: phases, loops of batches, and the file they are written to."""
