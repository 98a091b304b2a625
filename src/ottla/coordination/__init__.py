"""Coordination with ZooKeeper's semantics: one interface and two implementations.

`session.py` is the interface. `embedded.py` implements it inside the process with a small durable
file, `zookeeper.py` with a real ensemble. `ensemble.py` starts a local ZooKeeper server.
"""
