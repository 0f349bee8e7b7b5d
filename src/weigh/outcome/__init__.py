"""How a run went: why it ended, and whether its numbers were lost on the way."""
