"""Kafka's tools: Kafka's flags, output and exit codes, over the functions of our own commands."""
