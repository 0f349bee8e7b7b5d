"""``weigh report``: what was asked for beside what was used."""
