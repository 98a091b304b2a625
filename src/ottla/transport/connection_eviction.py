"""Evicts connections while there are more than max.connections or the limit of open files allow.

As in Kafka, the inter-broker listener accepts connections over max.connections if there is another
listener. For them, and after the limit was lowered, the broker closes the connections of the other
listeners that have been idle longest. It does the same when the log needs their file descriptors.
Then it first closes connections that wait for admission, and those that have not sent a request: a
crowd that connects and is silent does not displace clients that wait for records.
"""

from heapq import nsmallest

from ottla.transport.admission import Admission
from ottla.transport.connection import Connection
from ottla.transport.descriptors import Descriptors
from ottla.transport.listener import Listener


class ConnectionEviction:
    """Closes connections of `listeners` while there are too many."""

    def __init__(self, admission: Admission, descriptors: Descriptors) -> None:
        self._admission = admission
        self._descriptors = descriptors
        self.listeners: list[Listener] = []

    def evict_excess(self) -> None:
        """Close as many connections as there are over the limits, the longest idle first."""
        if excess := self._admission.excess:
            self._evict(excess, "max.connections exceeded; this one was idle longest")
        if excess := self._descriptors.excess:
            self._evict(excess, self._descriptors.reason, is_for_log=True)

    def _evict(self, excess: int, reason: str, *, is_for_log: bool = False) -> None:
        everyone = [(one, each) for each in self.listeners for one in each.connections]
        if is_for_log:
            everyone += [(one, each) for each in self.listeners for one in each.waiting]
        staying = [pair for pair in everyone if not pair[0].is_closing]
        excess -= len(everyone) - len(staying)

        def order(pair: tuple[Connection, Listener]) -> tuple[bool, bool, float]:
            connection, listener = pair
            is_admitted = connection not in listener.waiting
            return is_admitted, is_for_log and connection.has_asked, connection.last_active_s

        for connection, listener in nsmallest(excess, staying, key=order):
            listener.evict(connection, reason)
