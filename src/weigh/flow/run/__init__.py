"""``weigh run``, ``weigh profile``, and ``import weigh`` in a program."""
