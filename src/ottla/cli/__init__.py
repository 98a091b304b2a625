"""The command line: one module per command, each an ordinary client."""
