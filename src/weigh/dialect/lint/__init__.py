"""What is off in a job script: a room of rules, each asked of one script."""
