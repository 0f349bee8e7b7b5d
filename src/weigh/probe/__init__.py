"""Sources of readings: one file per source; each takes the root folder to read."""
