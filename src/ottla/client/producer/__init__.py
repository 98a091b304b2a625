"""The producer: collects records in batches, sends them and reports their acknowledgements."""
