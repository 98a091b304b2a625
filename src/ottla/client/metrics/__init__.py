"""Counting: what clients have done, in numbers, by Kafka's names."""
