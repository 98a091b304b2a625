"""The client for code without an event loop: `from ottla.sync import Producer, Consumer, Admin`.

Invariant: a name that `ottla` also has does the same, and blocks where that one awaits.
"""

from ottla.client.sync.administrator import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer, RowsAck
from ottla.client.sync.send_queue import Ack
from ottla.client.sync.transaction import Transaction

__all__ = ["Ack", "Admin", "Consumer", "Producer", "RowsAck", "Transaction"]
