"""Work out what tasks need and pack them onto GPUs and nodes; touches no machine."""
