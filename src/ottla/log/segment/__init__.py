"""The segments of a log: records files, their indexes, and searches in them."""
