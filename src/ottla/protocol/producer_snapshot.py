"""The file that keeps the state of the producers of a partition (`.snapshot`).

Invariant: the checksum covers everything behind it; a file whose checksum differs is not used.
"""

from collections.abc import Sequence

from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, uint32


class ProducerEntry(Struct):
    producer_id: int = int64("1")
    epoch: int = int16("1")
    last_sequence: int = int32("1")
    last_offset: int = int64("1")
    offset_delta: int = int32("1")
    timestamp: int = int64("1")
    coordinator_epoch: int = int32("1")
    current_txn_first_offset: int = int64("1")


class ProducerSnapshot(Message, versions="1"):
    crc: int = uint32("1")
    producer_entries: Sequence[ProducerEntry] = array(ProducerEntry, "1")
