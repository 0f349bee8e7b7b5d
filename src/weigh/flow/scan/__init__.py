"""``weigh scan``: sizes, CPUs, and estimates from records."""
