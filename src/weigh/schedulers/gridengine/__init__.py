"""Grid Engine: its text, job scripts, commands, limits, lint and accounting."""
