"""Measurements: what `ottla perf` does."""
