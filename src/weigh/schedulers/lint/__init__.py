"""Rules for job scripts that all schedulers share."""
