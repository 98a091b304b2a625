"""Client metrics with Kafka's names."""
