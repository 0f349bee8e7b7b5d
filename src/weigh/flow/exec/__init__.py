"""``weigh exec``: the tasks run, each measured, none lost."""
