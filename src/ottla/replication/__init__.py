"""Partitions over their logs: what leaders append and serve."""
