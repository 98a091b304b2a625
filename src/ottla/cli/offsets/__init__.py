"""Offsets of partitions: what `ottla offsets` does, and how offsets are said on a command line."""
