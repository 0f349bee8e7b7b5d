"""Job script text that copies inputs to a node's disk and results back."""
