"""``weigh submit``: check a plan, submit it, verify what the scheduler understood."""
