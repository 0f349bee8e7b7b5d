"""``weigh sweep`` and ``weigh run FILE.toml``: the commands of an experiment."""
