"""Apache Kafka for comparisons in tests and benchmarks: downloaded, started, asked and stopped.

This package is not installed. Tests import it because the root of the repository is on their path
(pyproject.toml), and benchmarks because `benchmarks/kafka_server.py` adds it.
"""
