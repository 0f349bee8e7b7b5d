"""``weigh doctor``: the problems of this machine, and their fixes."""
