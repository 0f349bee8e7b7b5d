"""Where weigh hangs on to other people's frameworks, each imported only when used."""
