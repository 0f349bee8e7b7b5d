"""Progress and remaining time of a run, from what it prints or reports."""
