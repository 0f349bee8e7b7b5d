"""The schedulers: what to say to each, what it answers, and the one that says it."""
