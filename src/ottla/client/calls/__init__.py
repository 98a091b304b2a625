"""Calls to brokers about many keys at once: targets, retries and results per key."""
