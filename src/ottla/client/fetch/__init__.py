"""Fetching: positions, fetched batches, and the fetcher that requests more."""
