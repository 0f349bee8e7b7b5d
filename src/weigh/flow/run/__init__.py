"""``weigh run``, ``profile``, and the regions of a program: one run, measured."""
