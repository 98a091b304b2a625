"""Admin client of `kafka-log-dirs`."""

from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.log_dirs import LogDirCalls


class LogDirAdmin(Administration, ClusterCalls, LogDirCalls):
    """Describes log directories of brokers."""
