"""A job's GPUs while it runs: the thread that looks, and the account it keeps."""
