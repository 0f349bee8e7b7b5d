"""The cluster at hand: its schedulers, queues, limits and site file."""
