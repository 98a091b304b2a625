"""Profiles: what `ottla profile` does."""
