"""In-process test clusters, and simulated clock, disk and network.

`Cluster` and `ClusterThread` are for tests of any code that talks to a broker; docs/testing.md
describes them. The simulated clock, disk and network are for Ottla's own tests. No other folder of
Ottla imports this one.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, ClusterBroker, Trouble
    from ottla.testing.cluster_thread import ClusterThread, ThreadBroker

__all__ = ["Cluster", "ClusterBroker", "ClusterThread", "ThreadBroker", "Trouble"]


def __getattr__(name: str) -> object:
    """Load the broker on first use, because pytest imports this package in every run."""
    if name in ("Cluster", "ClusterBroker", "Trouble"):
        from ottla.testing import cluster

        return getattr(cluster, name)
    if name in ("ClusterThread", "ThreadBroker"):
        from ottla.testing import cluster_thread

        return getattr(cluster_thread, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
