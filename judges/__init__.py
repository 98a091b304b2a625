"""Kafka itself, as a judge in tests and as a peer in benchmarks: fetched, started, asked, stopped.

Not a part of what is installed. Tests find this package because the repository's root is on their
path (pyproject.toml), benchmarks because `benchmarks/kafka_server.py` puts it there.
"""
