"""The client for code without an event loop: `from ottla.sync import Producer, Consumer, Admin`.

Invariant: what has the name of something in `ottla` does the same, and waits where that is awaited.
"""

from ottla.client.sync.administrator import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.client.sync.row_ack import RowsAck
from ottla.client.sync.send_queue import Ack
from ottla.client.sync.transaction import Transaction

__all__ = ["Ack", "Admin", "Consumer", "Producer", "RowsAck", "Transaction"]
