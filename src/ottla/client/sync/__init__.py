"""The client for code without an event loop: the same names, and calls that wait."""
