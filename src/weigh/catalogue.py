"""GPU models: what each is called and how much memory a program can use on it."""
