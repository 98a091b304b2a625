"""Ottla: event streaming in Python, with the wire protocol and the files of Kafka."""
