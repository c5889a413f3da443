"""The command line: one module a command, put together in `commands`."""
