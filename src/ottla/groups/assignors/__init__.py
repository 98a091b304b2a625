"""Partition assignment of classic groups, computed by the member that leads the group."""
