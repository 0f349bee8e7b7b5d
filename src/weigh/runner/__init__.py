"""Run the lines of a task file in slots, each measured, none lost, none run twice."""
