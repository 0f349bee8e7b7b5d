"""Sources of readings: one file a source, each handed the root it reads under."""
