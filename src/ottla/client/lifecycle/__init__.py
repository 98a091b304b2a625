"""Deadlines, retries, wake-ups and shutdown of a client."""
