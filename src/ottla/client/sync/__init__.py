"""The synchronous client: the same names, with blocking calls."""
