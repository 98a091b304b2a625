"""`kafka-replica-verification`."""
