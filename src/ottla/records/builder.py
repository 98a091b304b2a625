"""Builds one record batch, a record at a time.

Invariant: what `build` returns is a batch that `batches` and Kafka read; before compression it is
no larger than the limit, unless a single record is. Building changes nothing: the same builder
may be built again, with other offsets.
"""

from typing import Final

from ottla.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records._kernel import HEADER_SIZE, RecordAppender
from ottla.records.batch import CONTROL, TRANSACTIONAL, seal
from ottla.records.compression import Compression, compress

MAX_MESSAGE_BYTES: Final = 1_048_588  # what a topic of Kafka takes unless told otherwise


class BatchBuilder(RecordAppender):
    """Collects records up to a limit in bytes: `append`, `size` and `count` are the kernel's.

    `append(timestamp, key, value, headers)` is False, and changes nothing, when the record does
    not fit; the first one always does.
    """

    __slots__ = ("compression", "level")

    def __init__(
        self,
        limit: int = MAX_MESSAGE_BYTES,
        compression: Compression = Compression.NONE,
        level: int | None = None,
    ) -> None:
        super().__init__(limit)
        self.compression = compression
        self.level = level

    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
    ) -> bytes:
        """The batch with its header and CRC; ValueError while there is no record."""
        if not self.count:
            raise ValueError("a batch is built of one record at least")
        if base_offset < 0:
            raise ValueError(f"a batch cannot begin at offset {base_offset}")
        buffer = self.encoded()
        attributes = self.compression.value
        if self.compression is not Compression.NONE:
            with memoryview(buffer) as whole, whole[HEADER_SIZE:] as records:
                compressed = compress(self.compression, records, self.level)
            buffer[HEADER_SIZE:] = compressed
        if transactional:
            attributes |= TRANSACTIONAL
        if control:
            attributes |= CONTROL
        seal(
            buffer,
            record_count=self.count,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            attributes=attributes,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return bytes(buffer)
