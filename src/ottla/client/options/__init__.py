"""Converts a client's settings into the config of its parts."""
