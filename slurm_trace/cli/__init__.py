"""The command line: thin commands, imported only when they are called."""
