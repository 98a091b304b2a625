"""The connections of all listeners together, when there are more than max.connections.

Invariant: as with Kafka, whoever comes through the listener between brokers is let in though there
are too many, where there is another listener; for it, and where less are allowed than there are,
those of the other listeners are closed that have been silent for longest.
"""

from heapq import nsmallest

from ottla.transport.admission import Admission
from ottla.transport.listener import Listener


class ConnectionEviction:
    """Who has to go when there are too many."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.listeners: list[Listener] = []  # whose connections may be closed

    def evict_excess(self) -> None:
        """Close as many as there are too many."""
        excess = self._admission.excess
        if not excess:
            return
        here = [(one, each) for each in self.listeners for one in each.connections]
        staying = [pair for pair in here if not pair[0].is_closing]
        excess -= len(here) - len(staying)
        for connection, listener in nsmallest(
            excess, staying, key=lambda one: one[0].last_active_s
        ):
            listener.send_away(connection, "max.connections is exceeded, and it was silent longest")
