"""``weigh submit``: checked, sent, compared with what the scheduler understood."""
