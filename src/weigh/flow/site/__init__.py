"""The cluster of this machine: its schedulers, queues, limits and site file."""
