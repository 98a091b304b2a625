"""`kafka-log-dirs`."""
