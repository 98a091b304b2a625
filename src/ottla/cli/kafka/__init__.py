"""Kafka's tools: Kafka's flags, output and exit codes over the code of the `ottla` commands."""
