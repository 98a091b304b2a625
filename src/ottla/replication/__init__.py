"""Partitions over their logs: what a leader appends and serves."""
