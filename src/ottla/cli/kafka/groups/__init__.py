"""`kafka-consumer-groups`."""
