"""``weigh scan``, ``fit`` and ``request``: from runs to what to ask for."""
