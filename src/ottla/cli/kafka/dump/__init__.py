"""`kafka-dump-log`."""
