"""`kafka-producer-perf-test` and `kafka-consumer-perf-test`."""
