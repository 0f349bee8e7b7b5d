"""One function per verb: the only place where stages meet."""
