"""Run a command under probes, and reduce what they saw."""
