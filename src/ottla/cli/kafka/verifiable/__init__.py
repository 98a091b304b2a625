"""`kafka-verifiable-consumer` and `kafka-verifiable-producer`."""
