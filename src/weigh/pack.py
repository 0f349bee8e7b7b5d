"""Items into bins by GPU memory, host memory and CPUs."""
