"""Coordination with ZooKeeper's semantics: the interface, and two that keep it.

`session.py` is the interface. `embedded.py` keeps it inside the process, in a small durable file;
`zookeeper.py` through a real ensemble; `ensemble.py` starts a local one.
"""
