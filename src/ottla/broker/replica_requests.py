"""Requests that a broker sends as a replica: who may send them, and which replica it is."""

from typing import NamedTuple

from ottla.ids import BrokerEpoch, BrokerId
from ottla.protocol.messages.fetch import FetchRequest
from ottla.transport.connection import Connection


class Replica(NamedTuple):
    """A broker that fetches as a follower, and the epoch of its registration."""

    id: BrokerId
    epoch: BrokerEpoch


def is_replica_allowed(connection: Connection) -> bool:
    """Whether a request of this connection may have a replica id (0 or higher).

    A replica reads records above the high watermark, and its fetches move the high watermark.
    """
    return connection.is_broker


def replica_of(message: FetchRequest) -> Replica | None:
    """Return the follower that sent a Fetch; None for a consumer.

    Consumers have replica id -1; debugging tools have -2 and read what consumers read.
    """
    state = message.replica_state
    if state is not None:  # since version 15
        if state.replica_id < 0:
            return None
        return Replica(BrokerId(state.replica_id), BrokerEpoch(state.replica_epoch))
    if message.replica_id < 0:
        return None
    return Replica(BrokerId(message.replica_id), BrokerEpoch(-1))
