"""``weigh sweep`` and ``weigh run --stages``: the commands of an experiment."""
