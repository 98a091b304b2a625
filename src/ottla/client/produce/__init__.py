"""Producing: records into batches, batches to brokers, and acknowledgements back."""
