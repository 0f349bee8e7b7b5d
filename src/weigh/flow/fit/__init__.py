"""``weigh scan`` and ``weigh request``: from runs to predictions and requests."""
