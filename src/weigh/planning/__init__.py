"""What tasks need and how they are packed onto GPUs and nodes: pure."""
