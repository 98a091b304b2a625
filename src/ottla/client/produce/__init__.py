"""Writing records: from a record to a batch, to the broker, and to what became of it."""
