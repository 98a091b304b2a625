"""The administrator of `kafka-log-dirs`.

Invariant: it asks, and changes nothing unless its calls are made to.
"""

from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.log_dirs import LogDirCalls


class LogDirAdmin(Administration, ClusterCalls, LogDirCalls):
    """Asks brokers for their directories."""
