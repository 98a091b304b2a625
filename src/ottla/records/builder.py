"""Builds one record batch, a record at a time.

Before compression the batch does not exceed the limit, unless its only record does.
"""

from typing import Final

from ottla.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records._kernel import HEADER_SIZE, RecordAppender
from ottla.records.batch import CONTROL, TRANSACTIONAL, Buffer, write_header
from ottla.records.compression import Compression, compress

MAX_MESSAGE_BYTES: Final = 1_048_588  # the default of max.message.bytes


class BatchBuilder(RecordAppender):
    """Collects records up to a limit in bytes.

    `append(timestamp, key, value, headers)` returns False and changes nothing if the record does
    not fit. The first record always fits. `size` is the size in bytes so far, `count` the records.
    """

    __slots__ = ("compression", "level")

    def __init__(
        self,
        limit: int = MAX_MESSAGE_BYTES,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        buffer: bytearray | None = None,
    ) -> None:
        """Encode into `buffer` if given, which `release` of another builder has returned."""
        super().__init__(limit, buffer)
        self.compression = compression
        self.level = level

    def build_in_place(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> Buffer:
        """Return the batch without a copy if it is not compressed. Seals the builder.

        Call it once: another call would change the bytes of the first. `build` copies them.
        """
        if self.compression is not Compression.NONE:
            self.seal()
            return self.build(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                transactional=transactional,
            )
        if not self.count:
            raise ValueError("a batch needs at least one record")
        buffer = self.seal_encoded()
        write_header(
            buffer,
            record_count=self.count,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return buffer.toreadonly()

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
        """Return the batch with its header and CRC; the builder does not change.

        Raise ValueError if there is no record.
        """
        if not self.count:
            raise ValueError("a batch needs at least one record")
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
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
        write_header(
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
