"""Brokers inside a test, and stand-ins for what the world does to them.

`Cluster` and `ClusterThread` are for everybody who tests what talks to a broker; docs/testing.md
tells how. The disks that forget and the clocks that obey are for Ottla's own tests. Imported by
nothing else of Ottla.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, ClusterBroker, Trouble
    from ottla.testing.cluster_thread import ClusterThread, ThreadBroker

__all__ = ["Cluster", "ClusterBroker", "ClusterThread", "ThreadBroker", "Trouble"]


def __getattr__(name: str) -> object:
    """Load the broker when it is asked for: pytest imports this folder in every run."""
    if name in ("Cluster", "ClusterBroker", "Trouble"):
        from ottla.testing import cluster

        return getattr(cluster, name)
    if name in ("ClusterThread", "ThreadBroker"):
        from ottla.testing import cluster_thread

        return getattr(cluster_thread, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
