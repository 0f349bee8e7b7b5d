"""Regions of a program: phases, loops of batches, and what is told of them."""
