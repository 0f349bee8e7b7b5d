"""Review of runs, pure: requested vs. used, what to change, what failed."""
