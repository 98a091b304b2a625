"""Asking brokers about many things at once: whom, how often, and what became of each."""
