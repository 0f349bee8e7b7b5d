"""``weigh doctor``: what is wrong here, and the cure."""
