"""``weigh check``: a few tasks tried, a script read."""
