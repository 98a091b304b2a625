"""The buffers of a produced batch as the leader writes it: with offset, leader epoch and time.

Invariant: the records are the caller's bytes, not a copy, and the CRC of the result is right. The
request frame is not changed. Only the start of the header is replaced, or the whole header if the
timestamps change, because the CRC covers them.
"""

from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from ottla.protocol.primitives import Buffer
from ottla.records.batch import CRC_END, HEADER, HEADER_SIZE, LOG_APPEND_TIME, TimestampType
from ottla.records.validation import ValidBatch

# Base offset, length and leader epoch: the fields before the magic, which no CRC covers.
_PLACE: Final = Struct(">qii")
_PLACE_END: Final = 16
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17


def patched_batch(
    valid: ValidBatch, data: memoryview, base_offset: int, leader_epoch: int
) -> tuple[Buffer, ...]:
    """The buffers that one `writev` call appends to the log."""
    if valid.patch:
        return _patched(valid, data, base_offset, leader_epoch)
    return _PLACE.pack(base_offset, valid.header.length, leader_epoch), data[_PLACE_END:]


def _patched(
    valid: ValidBatch, data: memoryview, base_offset: int, leader_epoch: int
) -> tuple[Buffer, ...]:
    header = valid.header
    attributes = header.attributes & ~LOG_APPEND_TIME
    if valid.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME
    written = bytearray(
        HEADER.pack(
            base_offset,
            header.length,
            leader_epoch,
            header.magic,
            0,
            attributes,
            header.last_offset_delta,
            header.base_timestamp,
            valid.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
    )
    records = data[HEADER_SIZE:]
    # The CRC of the records continues the CRC of the header.
    crc = crc32c(records, crc32c(bytes(written[CRC_END:])))
    _CRC.pack_into(written, _CRC_AT, crc)
    return written, records
