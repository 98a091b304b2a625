"""`kafka-get-offsets`."""
