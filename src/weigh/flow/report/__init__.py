"""``weigh report``: requested vs. used."""
