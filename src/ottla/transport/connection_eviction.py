"""Evicts connections while there are more than max.connections.

As in Kafka, the inter-broker listener accepts connections over the limit if there is another
listener. For them, and after the limit was lowered, the broker closes the connections of the other
listeners that have been idle longest.
"""

from heapq import nsmallest

from ottla.transport.admission import Admission
from ottla.transport.listener import Listener


class ConnectionEviction:
    """Closes connections of `listeners` while the admission counts too many."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.listeners: list[Listener] = []

    def evict_excess(self) -> None:
        """Close as many connections as there are over the limit, the longest idle first."""
        excess = self._admission.excess
        if not excess:
            return
        everyone = [(one, each) for each in self.listeners for one in each.connections]
        staying = [pair for pair in everyone if not pair[0].is_closing]
        excess -= len(everyone) - len(staying)
        for connection, listener in nsmallest(
            excess, staying, key=lambda one: one[0].last_active_s
        ):
            listener.evict(connection, "max.connections exceeded; this one was idle longest")
