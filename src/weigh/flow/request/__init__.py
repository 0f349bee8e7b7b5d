"""``weigh request``: from records, from history, from accounting."""
