"""One function a verb: the only place where stages meet."""
