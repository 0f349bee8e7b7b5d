"""``weigh scan``: sizes, CPUs, least memory, and estimates from records."""
