"""Each scheduler's text: what it reads, what it writes, what it tells its jobs."""
