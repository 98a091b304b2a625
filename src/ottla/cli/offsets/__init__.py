"""`ottla offsets`, and positions on the command line."""
