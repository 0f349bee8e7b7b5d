"""``weigh sweep`` and ``stages``: the commands of an experiment."""
