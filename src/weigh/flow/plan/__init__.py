"""``weigh plan``: which tasks share a GPU and a node."""
